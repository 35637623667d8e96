"""Lines with a known fault, and unchanged ones, to count how many of each are reported.

A forced fault is a sentence with one to three words removed, repeated or added. The changed sentence is spoken; then
its codes run once more after the prompt of the unchanged one, with whose text they are compared.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import torch
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import GenerateOptions
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.speech.pieces import build_piece
from qwen3_tts_morph.morph.voice.prompt import PromptBuilder
from qwen3_tts_morph.morph.voice.voice import Voice

from .lines import PARAGRAPHS, WORDS, cut, normalized, read_part
from .paragraphs import paragraphs
from .record import Head, PlannedLine, TracedLine, attend, record

FORCED, UNCHANGED = "forced", "unchanged"
KINDS = ("skipped", "repeated", "invented", "cut")
COUNTS = (1, 2, 3)  # words of a fault
PUNCTUATION = ".,?!;:"
# Each part has its own voices, by their index in ``read_voices``.
VOICES = {"development": (0, 1, 6), "held_out": (2, 3, 4)}
GROUPS = (5, 15)
LEAST = 8  # words of a sentence that is changed
EACH, LINES = 17, 500  # faults of each kind and number of words, and unchanged lines


def change(text: str, kind: str, count: int, more: Sequence[str], rng: random.Random) -> str:
    """Return a text with a fault of ``count`` words: never of its first word, and of its last only if it is cut.

    Args:
        text: a sentence of LEAST words or more.
        kind: one of KINDS.
        count: how many words are removed, repeated or added.
        more: the words of another sentence, to add from.
        rng: chooses the place.
    """
    words = text.split()
    if kind == "cut":
        return " ".join(words[:-count]).rstrip(PUNCTUATION) + "."
    place = rng.randrange(1, len(words) - count)
    if kind == "skipped":
        return " ".join([*words[:place], *words[place + count :]])
    if kind == "repeated":
        return " ".join([*words[: place + count], *words[place:]])
    begin = rng.randrange(1, len(more) - count)
    added = [word.strip(PUNCTUATION) for word in more[begin : begin + count]]
    return " ".join([*words[:place], *added, *words[place:]])


def forced_lines(
    part: str, voices: Sequence[Voice], count: int | None = None
) -> Iterator[tuple[str, PlannedLine, str]]:
    """Yield kind, line to speak, and the text that it should have been; ``count``: of each kind and size."""
    texts = [normalized(text) for text in read_part(part)]
    long = [text for text in texts if len(text.split()) >= LEAST]
    own = [voices[place] for place in VOICES[part]]
    rng = random.Random(f"{part} forced")
    seed = 20000
    for turn, (number, kind, words) in enumerate(product(range(count or EACH), KINDS, COUNTS)):
        text = long[turn % len(long)]
        changed = change(text, kind, words, rng.choice(long).split(), rng)
        options = GenerateOptions(seq_groups=GROUPS[number % 2])
        yield f"{kind} {words}", PlannedLine(changed, own[turn % len(own)], seed + turn, options), text


def unchanged_lines(
    part: str, voices: Sequence[Voice], count: int | None = None
) -> Iterator[tuple[str, PlannedLine, str]]:
    """Yield the same for unchanged lines: sentences, then pieces of paragraphs."""
    texts = read_part(part)
    pieces = [piece for text in paragraphs(texts, PARAGRAPHS, WORDS, 0) for piece in cut(text)]
    own = [voices[place] for place in VOICES[part]]
    all_texts = [*map(normalized, texts), *pieces, *map(normalized, texts), *pieces]
    for turn, text in enumerate(all_texts[: count or LINES]):
        groups = GROUPS[turn >= len(texts) + len(pieces)]
        voice = own[(turn + groups) % len(own)]
        yield UNCHANGED, PlannedLine(text, voice, 40000 + turn, GenerateOptions(seq_groups=groups)), text


def spoken_lines(
    model: Model, lines: Sequence[tuple[str, PlannedLine, str]], head: Head, folder: Path
) -> Iterator[tuple[str, TracedLine]]:
    """Yield each line's kind, and its trace over the text that it should have been."""
    paths: dict[PlannedLine, list[Path]] = {}
    for groups in GROUPS:
        own = [asked for _, asked, _ in lines if asked.options.seq_groups == groups]
        paths.update(zip(own, record(model, [[asked] for asked in own], head, folder, with_sound=False), strict=True))
    for kind, asked, text in lines:
        [path] = paths[asked]
        line = TracedLine.read(path)
        yield kind, line if text == asked.text else retrace(model, line, text, asked.voice, head)


@torch.inference_mode()
def retrace(model: Model, line: TracedLine, text: str, voice: Voice, head: Head) -> TracedLine:
    """Return a spoken line with its trace over another text."""
    prompt = build_piece(PromptBuilder(model), Line(text, voice), text)
    return replace(line, text=text, rows=attend(model, prompt, torch.from_numpy(line.codes), head))
