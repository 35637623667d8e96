"""Recordings whose codes are given: as a finished codec makes them, and as a trained talker draws them.

A decoder that has heard nothing but recorded codes meets others when a talker speaks. Tuned on what the talker draws
for the same recordings (``talker/redraw.py``), held against those recordings, it gets used to its mistakes, as
vocoders do (HiFi-GAN, section 4.4). The codes stay, and with them the talker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from ..corpus.shards import Corpus, Utterance
from ..talker.codes import FIRST_LEAD, Codes, load_codes
from .config import SAMPLES_PER_FRAME, Training
from .data import Speech, pack_lines


@dataclass(frozen=True)
class Aligned:
    """A line of whole frames and its codes int16 ``[frames, 2, 16]``: as recorded and as drawn."""

    line: Utterance
    codes: np.ndarray


def align(lines: Corpus, recorded: Codes, drawn: Codes) -> Iterator[Aligned]:
    """The lines that have been drawn, padded to whole frames; none that a voice speaks twice: texts are their names.

    Raises:
        ValueError: when drawn and recorded codes, or codes and audio, differ in length.
    """
    first = _places(recorded, recorded.first_takes("train"))
    second = _places(drawn, drawn.rows("train"))
    for place in range(len(lines)):
        line = lines[place]
        key = (line.speaker, line.text)
        if key not in first or key not in second:
            continue
        codes = [_without_lead(recorded, first[key]), _without_lead(drawn, second[key])]
        padding = len(codes[0]) * SAMPLES_PER_FRAME - len(line.audio)
        if len(codes[0]) != len(codes[1]) or not 0 <= padding < SAMPLES_PER_FRAME:
            raise ValueError(
                f"{line.text!r} by {line.speaker}: {len(codes[0])} frames recorded, {len(codes[1])} drawn and "
                f"{len(line.audio)} samples; encode and draw this corpus again"
            )
        durations = line.durations.copy()
        durations[-1] += padding
        audio = np.pad(line.audio, (0, padding))
        yield Aligned(replace(line, audio=audio, durations=durations), np.stack(codes, axis=1))


def _places(codes: Codes, rows: np.ndarray) -> dict[tuple[str, str], int]:
    keys = [(codes.names[codes.speakers[row]], codes.texts[row]) for row in rows]
    times = Counter(keys)
    return {key: int(row) for key, row in zip(keys, rows, strict=True) if times[key] == 1}


def _without_lead(codes: Codes, row: int) -> np.ndarray:
    """A first take's codes without its silence's: int16 ``[F, 16]``."""
    return codes.utterance_codes(row)[FIRST_LEAD:]


def pack_given(lines: Sequence[Aligned], symbols: Sequence[str] | None = None) -> Speech:
    """``data.pack_lines`` with codes."""
    ordered = sorted(lines, key=lambda one: one.line.speaker)  # as pack_lines lays them on end
    speech = pack_lines([one.line for one in ordered], symbols)
    return replace(speech, codes=torch.from_numpy(np.concatenate([one.codes for one in ordered])))


def load_given(
    corpus: Path, codes: Path, drawn: Path, options: Training, symbols: Sequence[str] | None = None
) -> Speech:
    """Read a corpus's training lines with their codes from two folders.

    Raises:
        ValueError: when the options would change what was encoded, or nothing was drawn.
    """
    if any(options.gain_db) or options.silent_start or not options.decoder_only:
        raise ValueError(
            "with given codes only the decoder learns, and crops keep their level: set decoder_only true, gain_db "
            "[0, 0] and silent_start 0, as configs/codec_drawn.json does"
        )
    return pack_given(list(align(Corpus(corpus, "train"), load_codes(codes), load_codes(drawn))), symbols)
