"""Speaker similarity and identification by Resemblyzer (Apache-2.0), which no voice here was trained with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .clips import JUDGE_RATE


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))


def profile(embeddings: Sequence[np.ndarray]) -> np.ndarray:
    """Return a speaker's mean direction, ``[256]``; raises ValueError without embeddings."""
    if not embeddings:
        raise ValueError("a speaker has no references: add at least one wav per speaker")
    return np.mean([one / np.linalg.norm(one) for one in embeddings], axis=0)


def identify(embedding: np.ndarray, profiles: Mapping[str, np.ndarray]) -> str:
    """Return the name of the speaker with the most similar profile."""
    return max(profiles, key=lambda name: cosine(embedding, profiles[name]))


class SpeakerEncoder:
    """Resemblyzer, on the CPU."""

    def __init__(self) -> None:
        from resemblyzer import VoiceEncoder

        self._encoder: Any = VoiceEncoder("cpu", verbose=False)

    def embed(self, audio: np.ndarray) -> np.ndarray:
        """Embed 16 kHz audio, ``[256]``, with long silences cut; raises ValueError if no speech is left."""
        from resemblyzer import preprocess_wav

        speech = preprocess_wav(audio, source_sr=JUDGE_RATE)
        if not speech.size:
            raise ValueError("the audio contains no speech to identify a speaker by")
        return self._encoder.embed_utterance(speech)
