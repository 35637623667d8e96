"""The spoken lines: everyday lines and paragraphs that are in no training data, and lines with frequent faults.

Thresholds were chosen on ``development``; all figures are of ``held_out``, which no voice may be trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle

import soundfile
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.text.normalize import Normalizer
from qwen3_tts_morph.morph.text.pieces import split_text
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice, preset_voice
from qwen3_tts_morph.morph.voice.voice import Voice

from pack import ROOT

from ..benchmarks.quality.lines import read_texts
from .paragraphs import paragraphs
from .record import PlannedLine

PARTS = {"development": "lab/words/development.txt", "held_out": "lab/words/held_out.txt"}
RECORDINGS = {
    "austen-0870": "And Mister John Dashwood had then leisure to consider how much there might be prudently in his "
    "power to do for them.",
    "austen-0880": "He was not an ill-disposed young man.",
}
CLONES = ("x_vector", "icl")
LONGEST = 99  # characters of a piece: the demo voice's limit, with room for a full stop
SENTENCES, PARAGRAPHS = 100, 20
WORDS, MORE_WORDS = (60, 80), (100, 140)  # of a paragraph; of one that is spoken in one piece
GOOD = ("sentences", "paragraphs")
# Causes of faults: few groups with stock heads; cold, hot or greedy sampling; long pieces.
WRONG = ("stock1", "stock2", "stock3", "cold", "hot", "greedy", "long")


def read_voices(model: Model, kind: str = CLONES[0]) -> list[Voice]:
    """Return the checkpoint's presets, and clones of the recordings, in turn; ``kind``: one of CLONES."""
    clones = []
    for name, words in RECORDINGS.items():
        waveform, rate = soundfile.read(ROOT / "tests" / "data" / f"{name}.flac", dtype="float32")
        options = CloneOptions(kind, words if kind == "icl" else None, name=name)
        clones.append(clone_voice(model, waveform, rate, options))
    presets = [preset_voice(model, name) for name in model.speakers]
    return [voice for pair in zip(presets, cycle(clones), strict=False) for voice in pair]


def read_part(part: str) -> list[str]:
    """Return a part's sentences: none is in both parts."""
    texts = {name: read_texts(ROOT / file) for name, file in PARTS.items()}
    other = texts["held_out"] if part == "development" else []
    return [line for line in texts[part] if line not in other]


def good_lines(
    part: str, name: str, groups: int, count: int | None, voices: Sequence[Voice]
) -> list[list[PlannedLine]]:
    """Return lines at the checkpoint's own settings, each as its pieces; ``name`` is one of GOOD."""
    sentences, options = read_part(part), GenerateOptions(seq_groups=groups)
    texts = sentences[:SENTENCES] if name == "sentences" else paragraphs(sentences, PARAGRAPHS, WORDS, 0)
    seed = 1000 if name == "sentences" else 3000
    lines, number = [], 0
    for index, text in enumerate(texts[:count]):
        pieces = cut(text)
        voice = voices[index % len(voices)]
        lines.append([PlannedLine(piece, voice, seed + number + k, options) for k, piece in enumerate(pieces)])
        number += len(pieces)
    return lines


def wrong_lines(
    model: Model, part: str, name: str, count: int | None, voices: Sequence[Voice]
) -> list[list[PlannedLine]]:
    """Return lines that often have faults, each as one piece; ``name`` is one of WRONG."""
    sentences = read_part(part)[SENTENCES:]
    texts = paragraphs(sentences, PARAGRAPHS // 2, MORE_WORDS, 3) if name == "long" else sentences
    options = wrong_options(name, model.sampling)
    seed = 7000 + 1000 * WRONG.index(name)
    return [
        [PlannedLine(normalized(text), voices[index % len(voices)], seed + index, options)]
        for index, text in enumerate(texts[:count])
    ]


def wrong_options(name: str, own: Sampling) -> GenerateOptions:
    """Return the options of lines of this name; ``own`` is the checkpoint's sampling."""
    if name.startswith("stock"):
        return GenerateOptions(seq_groups=int(name[-1]), tail="stock")
    changes = {"cold": {"temperature": 0.2}, "hot": {"temperature": 1.3, "top_k": 0, "top_p": 1.0}}
    if name == "greedy":
        changes[name] = {"do_sample": False}
    both = {who: replace(getattr(own, who), **changes.get(name, {})) for who in ("talker", "subtalker")}
    return GenerateOptions(sampling=replace(own, **both))


def normalized(text: str) -> str:
    """Return the normalized text, which ends like a sentence."""
    normalizer = Normalizer("en")
    return normalizer.close(normalizer.write_out(text).text)


def cut(text: str) -> list[str]:
    """Return the pieces in which a text is spoken."""
    normalizer = Normalizer("en")
    return [normalizer.close(piece) for piece in split_text(normalizer.write_out(text).text, LONGEST)]
