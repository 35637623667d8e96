"""Whose voice it is, by Resemblyzer (Apache-2.0), an encoder that no training step here uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .clips import JUDGE_RATE


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))


def profile(embeddings: Sequence[np.ndarray]) -> np.ndarray:
    """A speaker's mean direction; raises ValueError without embeddings."""
    if not embeddings:
        raise ValueError("a speaker without references: give at least one wav each")
    return np.mean([one / np.linalg.norm(one) for one in embeddings], axis=0)


def identify(embedding: np.ndarray, profiles: Mapping[str, np.ndarray]) -> str:
    """The speaker whose profile is nearest."""
    return max(profiles, key=lambda name: cosine(embedding, profiles[name]))


class SpeakerEncoder:
    """Resemblyzer on the CPU."""

    def __init__(self) -> None:
        from resemblyzer import VoiceEncoder

        self._encoder: Any = VoiceEncoder("cpu", verbose=False)

    def embed(self, audio: np.ndarray) -> np.ndarray:
        """The 256 values of 16 kHz audio, with long silences cut; raises ValueError when nothing is left."""
        from resemblyzer import preprocess_wav

        speech = preprocess_wav(audio, source_sr=JUDGE_RATE)
        if not speech.size:
            raise ValueError("no speech to know a speaker by")
        return self._encoder.embed_utterance(speech)
