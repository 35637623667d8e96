"""Lines whose text is not what is spoken, so that each has a known fault: what the guard finds of them is counted.

The codes of a line that was heard right run once more, after the prompt of another text: one with words that are not
spoken ("skipped", and "cut" at its end), or without some that are ("invented"). For "repeated" a text is spoken with
some words twice, and runs after the text with these words once.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.speech.pieces import build_piece
from qwen3_tts_morph.morph.voice.prompt import PromptBuilder
from qwen3_tts_morph.morph.voice.voice import Voice

from .record import Asked, Head, Recorded, attend

KINDS = ("skipped", "cut", "invented", "repeated")
COUNTS = (1, 2, 3)  # words
MORE = (
    "green",
    "over",
    "before",
    "window",
    "little",
    "under",
    "seven",
    "after",
    "people",
    "of",
    "candle",
    "slowly",
)


def edit(text: str, kind: str, count: int, rng: random.Random) -> str:
    """Return the text of which a spoken one has ``count`` words left out, or not at its end, or too many."""
    words = text.split()
    more = rng.sample(MORE, count)
    if kind == "cut":
        return " ".join([*words[:-1], words[-1].rstrip(".?!"), *more]) + "."
    if kind == "skipped":
        place = rng.randrange(2, len(words) - 1)
        return " ".join([*words[:place], *more, *words[place:]])
    place = rng.randrange(1, max(2, len(words) - count - 1))
    return " ".join([*words[:place], *words[place + count :]])


def double(text: str, count: int, rng: random.Random) -> str:
    """Return a text with ``count`` of its words twice."""
    words = text.split()
    place = rng.randrange(1, max(2, len(words) - count))
    return " ".join([*words[: place + count], *words[place:]])


def doubled_lines(lines: Sequence[Sequence[Asked]], count: int) -> list[list[Asked]]:
    """Return lines of one piece that say some of their words twice."""
    rng = random.Random(count)
    return [[replace(one, text=double(one.text, count, rng))] for [one] in lines]


@torch.inference_mode()
def retrace(model: Model, line: Recorded, text: str, voices: Mapping[str, Voice], head: Head) -> Recorded:
    """Return a spoken line as if it were that of another text; ``voices``: by ``Recorded.voice``."""
    prompt = build_piece(PromptBuilder(model), Line(text, voices[line.voice]), text)
    rows = attend(model, prompt, torch.from_numpy(line.codes), head)
    return replace(line, text=text, rows=rows)
