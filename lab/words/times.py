"""How far the starts of words by the alignment head are from those that a recogniser heard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from qwen3_tts_morph.morph.options import FRAME_RATE
from qwen3_tts_morph.morph.words.path import token_path

from ..benchmarks.results import PartRow
from .heard import HeardWord, plain
from .record import Recorded
from .tokens import said_tokens

NEAR_S = 0.2
STEP_S, QUIET_DB = 0.01, -35.0  # under the loudest step: quiet
SAMPLE_RATE = 24000


@dataclass(frozen=True)
class TimesRow(PartRow):
    """Errors of the starts of words against a recogniser's.

    Args:
        lines: SENTENCES or PARAGRAPHS.
        voices: "presets", "clones" or "icl clones".
        spoken: how many lines, ``compared``: those in which all words were heard and no others.
        words: of these; the first word of a line is left out, as the recogniser lets it begin with the sound.
        lead_ms: the median of heard minus reported starts.
        median_ms, p95_ms, worst_ms: of the distance, without correcting the median.
        near_percent: of the words within NEAR_S.
        without_time: words that no frame belongs to: they have the time of the next word's start.
    """

    lines: str
    voices: str
    seq_groups: int
    spoken: int
    compared: int
    words: int
    lead_ms: float
    median_ms: float
    p95_ms: float
    worst_ms: float
    near_percent: float
    without_time: int


def word_frames(line: Recorded, words: Sequence[tuple[int, int]]) -> tuple[np.ndarray, int]:
    """Return the frame in which each word of a piece begins, and how many words have no frame of their own."""
    tokens, weights, _ = line.trace
    path = token_path(tokens.tolist(), weights.tolist(), line.rows.shape[1])
    edges = np.searchsorted(path, [token for word in words for token in word]).reshape(-1, 2)
    return edges[:, 0], int((edges[:, 0] == edges[:, 1]).sum())


def after_quiet(starts: Sequence[float], waveform: np.ndarray, sample_rate: int) -> list[float]:
    """Return starts in seconds; one that is in a quiet place is moved to its end, as no word begins in a pause."""
    size = round(STEP_S * sample_rate)
    steps = waveform[: len(waveform) // size * size].reshape(-1, size)
    power = np.square(steps, dtype=np.float64).mean(axis=1)
    loud = np.flatnonzero(power >= power.max() * 10 ** (QUIET_DB / 10))
    moved = []
    for start in starts:
        later = loud[np.searchsorted(loud, round(start / STEP_S)) :]
        moved.append(max(start, float(later[0]) * STEP_S) if len(later) else start)
    return moved


def start_errors(
    pieces: Sequence[Recorded], heard: Sequence[HeardWord], tokenizer: Any
) -> tuple[np.ndarray, int] | None:
    """Return heard minus reported starts of a line's words but the first, in seconds, and the words without a frame.

    A start in a quiet place counts from its end, as in captions.

    None if the recogniser did not hear all words, or heard others.
    """
    starts: list[float] = []
    texts: list[str] = []
    frames = missing = 0
    for piece in pieces:
        begins, without = word_frames(piece, said_tokens(tokenizer, piece.text))
        starts += ((frames + begins) / FRAME_RATE).tolist()
        texts += piece.text.split()
        frames, missing = frames + len(piece.codes), missing + without
    if [plain(word) for word in texts] != [plain(word.word) for word in heard]:
        return None
    starts = after_quiet(starts, np.concatenate([piece.waveform for piece in pieces]), SAMPLE_RATE)
    return np.array([word.start for word in heard][1:]) - np.array(starts[1:]), missing


def summarise_times(errors: Sequence[tuple[np.ndarray, int] | None]) -> dict[str, Any]:
    """Return a row's figures from the errors of its lines."""
    compared = [one for one in errors if one is not None]
    late = 1000 * np.concatenate([np.zeros(0), *(one[0] for one in compared)])
    if not len(late):
        raise ValueError("no line was heard as it was asked for: speak more lines")
    far = np.abs(late)
    return {
        "spoken": len(errors),
        "compared": len(compared),
        "words": len(late),
        "lead_ms": round(float(np.median(late)), 1) + 0.0,  # no -0.0
        "median_ms": round(float(np.median(far)), 1),
        "p95_ms": round(float(np.quantile(far, 0.95)), 1),
        "worst_ms": round(float(far.max()), 1),
        "near_percent": round(100 * float((far <= 1000 * NEAR_S + 1e-6).mean()), 2),
        "without_time": sum(one[1] for one in compared),
    }
