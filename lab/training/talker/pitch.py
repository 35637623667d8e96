"""The pitch of the corpus's voices, which the speaker encoder learns to tell besides their styles.

Without it an encoder tells the pitch by the timbre: of four voices outside of its training, men of 114 and 95 Hz
became 150 and 115 (docs/log/experiments.md). A style has the pitch too, in 128 numbers that are not only about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch

from ..corpus import shards
from ..periodicity import SAMPLE_RATE, pitch_of

LINES = 2  # of each voice
TOGETHER = 32  # voices
WEIGHT = 8.0  # of the pitch in deviations: its squared error counts as much as 64 of a style's 256 numbers


def voice_pitches(corpora: Iterable[shards.Corpus], device: torch.device) -> dict[str, float]:
    """Return the median pitch of each voice's first lines, in log Hz; not of a voice that is never voiced in them."""
    lines: dict[str, list[np.ndarray]] = {}
    for corpus in corpora:
        for index, name in enumerate(corpus.speakers):
            if len(heard := lines.setdefault(name, [])) < LINES:
                heard.append(corpus[index].audio)
    names, found = list(lines), dict[str, float]()
    for first in range(0, len(names), TOGETHER):
        some = names[first : first + TOGETHER]
        pitches = _log_pitches([np.concatenate(lines[name]) for name in some], device)
        found |= {name: pitch for name, pitch in zip(some, pitches, strict=True) if pitch is not None}
    return found


def _log_pitches(audios: Sequence[np.ndarray], device: torch.device) -> list[float | None]:
    waves = torch.zeros(len(audios), max(map(len, audios)))
    for wave, audio in zip(waves, audios, strict=True):
        wave[: len(audio)] = torch.from_numpy(audio.astype(np.float32) / 32768)
    pitch = pitch_of(waves.to(device))
    voiced = [lags[known] for lags, known in zip(pitch.lags, pitch.voiced, strict=True)]
    return [float((SAMPLE_RATE / lags.float().median()).log()) if len(lags) else None for lags in voiced]


def with_pitch(styles: Mapping[str, np.ndarray], pitches: Mapping[str, float]) -> dict[str, np.ndarray]:
    """Return each style with the pitch after it, in deviations of all pitches times ``WEIGHT``, float32 ``[D + 1]``.

    A voice without one has the mean.
    """
    known = np.asarray(list(pitches.values()))
    middle, spread = (float(known.mean()), float(known.std())) if len(known) else (0.0, 0.0)
    found = {name: WEIGHT * (pitch - middle) / (spread + 1e-6) for name, pitch in pitches.items()}
    return {name: np.append(style, found.get(name, 0.0)).astype(np.float32) for name, style in styles.items()}
