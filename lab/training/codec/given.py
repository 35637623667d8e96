"""Recordings with given codes: those of a finished codec, and those that a trained talker samples.

A decoder trained only on recorded codes meets different ones when a talker speaks. Tuned on the codes that the talker
samples for the same recordings (``talker/redraw.py``), with those recordings as targets, it learns to compensate for
the talker's errors, as vocoders do (HiFi-GAN, section 4.4). The codes do not change, so the talker stays valid.
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
    """A line of whole frames and its codes int16 ``[frames, 2, 16]``: as recorded and as sampled."""

    line: Utterance
    codes: np.ndarray


def align(lines: Corpus, recorded: Codes, drawn: Codes) -> Iterator[Aligned]:
    """Yield the lines that have sampled codes, padded to whole frames.

    Lines are matched by voice and text, so lines that a voice speaks twice are skipped.

    Raises:
        ValueError: sampled and recorded codes, or codes and audio, differ in length.
    """
    first = _row_numbers(recorded, recorded.first_takes("train"))
    second = _row_numbers(drawn, drawn.rows("train"))
    for index in range(len(lines)):
        line = lines[index]
        key = (line.speaker, line.text)
        if key not in first or key not in second:
            continue
        codes = [_without_lead(recorded, first[key]), _without_lead(drawn, second[key])]
        padding = len(codes[0]) * SAMPLES_PER_FRAME - len(line.audio)
        if len(codes[0]) != len(codes[1]) or not 0 <= padding < SAMPLES_PER_FRAME:
            raise ValueError(
                f"{line.text!r} by {line.speaker}: {len(codes[0])} frames recorded, {len(codes[1])} sampled and "
                f"{len(line.audio)} samples of audio: encode this corpus and sample its codes again"
            )
        durations = line.durations.copy()
        durations[-1] += padding
        audio = np.pad(line.audio, (0, padding))
        yield Aligned(replace(line, audio=audio, durations=durations), np.stack(codes, axis=1))


def _row_numbers(codes: Codes, rows: np.ndarray) -> dict[tuple[str, str], int]:
    keys = [(codes.names[codes.speakers[row]], codes.texts[row]) for row in rows]
    times = Counter(keys)
    return {key: int(row) for key, row in zip(keys, rows, strict=True) if times[key] == 1}


def _without_lead(codes: Codes, row: int) -> np.ndarray:
    """Return a first take's codes without its leading silence, int16 ``[F, 16]``."""
    return codes.utterance_codes(row)[FIRST_LEAD:]


def pack_given(lines: Sequence[Aligned], symbols: Sequence[str] | None = None) -> Speech:
    """Pack lines as ``data.pack_lines`` does, with their codes."""
    ordered = sorted(lines, key=lambda one: one.line.speaker)  # the order of pack_lines
    speech = pack_lines([one.line for one in ordered], symbols)
    return replace(speech, codes=torch.from_numpy(np.concatenate([one.codes for one in ordered])))


def load_given(
    corpus: Path, codes: Path, drawn: Path, options: Training, symbols: Sequence[str] | None = None
) -> Speech:
    """Read a corpus's training lines, with recorded and sampled codes from two folders.

    Raises:
        ValueError: the options would change the encoded audio, or nothing was sampled.
    """
    if any(options.gain_db) or options.silent_start or not options.decoder_only:
        raise ValueError(
            "with given codes only the decoder can learn and crops must keep their level: set decoder_only true, "
            "gain_db [0, 0] and silent_start 0, as configs/codec_drawn.json does"
        )
    return pack_given(list(align(Corpus(corpus, "train"), load_codes(codes), load_codes(drawn))), symbols)
