"""Lines with a known fault, and unchanged ones: how many of each the guard reports.

A forced fault is made of a sentence with one to three words left out, said twice or added. The changed sentence is
spoken; then its codes run once more after the prompt of the unchanged one, whose text the guard follows.
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

from .lines import PARAGRAPHS, WORDS, cut, read_part, said
from .paragraphs import paragraphs
from .record import Asked, Head, Recorded, attend, record

FORCED, UNCHANGED = "forced", "unchanged"
KINDS = ("skipped", "repeated", "invented", "cut")
COUNTS = (1, 2, 3)  # words of a fault
PUNCTUATION = ".,?!;:"
# Each part has voices of its own, by their place in ``read_voices``.
VOICES = {"development": (0, 1, 6), "held_out": (2, 3, 4)}
GROUPS = (5, 15)
LEAST = 8  # words of a sentence that is changed
EACH, LINES = 17, 500  # faults of each kind and number of words, and unchanged lines


def change(text: str, kind: str, count: int, more: Sequence[str], rng: random.Random) -> str:
    """Return a text with a fault of ``count`` words: never of its first word, and of its last only where it is cut.

    Args:
        text: a sentence of LEAST words or more.
        kind: one of KINDS.
        count: how many words are left out, said twice or added.
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
) -> Iterator[tuple[str, Asked, str]]:
    """Yield kind, line to speak, and the text that it should have been; ``count``: of each kind and size."""
    texts = [said(text) for text in read_part(part)]
    long = [text for text in texts if len(text.split()) >= LEAST]
    own = [voices[place] for place in VOICES[part]]
    rng = random.Random(f"{part} forced")
    seed = 20000
    for turn, (number, kind, words) in enumerate(product(range(count or EACH), KINDS, COUNTS)):
        text = long[turn % len(long)]
        changed = change(text, kind, words, rng.choice(long).split(), rng)
        options = GenerateOptions(seq_groups=GROUPS[number % 2])
        yield f"{kind} {words}", Asked(changed, own[turn % len(own)], seed + turn, options), text


def unchanged_lines(
    part: str, voices: Sequence[Voice], count: int | None = None
) -> Iterator[tuple[str, Asked, str]]:
    """Yield the same of lines that are spoken as they are: sentences, then pieces of paragraphs."""
    texts = read_part(part)
    pieces = [piece for text in paragraphs(texts, PARAGRAPHS, WORDS, 0) for piece in cut(text)]
    own = [voices[place] for place in VOICES[part]]
    all_texts = [*map(said, texts), *pieces, *map(said, texts), *pieces]
    for turn, text in enumerate(all_texts[: count or LINES]):
        groups = GROUPS[turn >= len(texts) + len(pieces)]
        voice = own[(turn + groups) % len(own)]
        yield UNCHANGED, Asked(text, voice, 40000 + turn, GenerateOptions(seq_groups=groups)), text


def spoken_lines(
    model: Model, lines: Sequence[tuple[str, Asked, str]], head: Head, folder: Path
) -> Iterator[tuple[str, Recorded]]:
    """Yield each line's kind, and the line as the guard sees it."""
    paths: dict[Asked, list[Path]] = {}
    for groups in GROUPS:
        own = [asked for _, asked, _ in lines if asked.options.seq_groups == groups]
        paths.update(
            zip(own, record(model, [[asked] for asked in own], head, folder, with_sound=False), strict=True)
        )
    for kind, asked, text in lines:
        [path] = paths[asked]
        line = Recorded.read(path)
        yield kind, line if text == asked.text else retrace(model, line, text, asked.voice, head)


@torch.inference_mode()
def retrace(model: Model, line: Recorded, text: str, voice: Voice, head: Head) -> Recorded:
    """Return a spoken line as if it were that of another text."""
    prompt = build_piece(PromptBuilder(model), Line(text, voice), text)
    return replace(line, text=text, rows=attend(model, prompt, torch.from_numpy(line.codes), head))
