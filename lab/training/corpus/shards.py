"""The corpus on disk: safetensors shards, memory-mapped, read without torch.

Tensors of a shard of n lines: ``audio`` int16, all lines concatenated at 24 kHz; ``audio_starts`` int64 ``[n + 1]``;
``durations`` int32, samples per token, and ``duration_starts`` int64 ``[n + 1]``; ``speaker`` int32 ``[n]``, an index
into the metadata's ``voices``. The metadata's ``lines`` are ``[text, phonemes]``. A line of p phonemes has p + 2
tokens: an edge, its phonemes, an edge.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from .finish import Finished


@dataclass(frozen=True)
class Utterance:
    """One spoken line: ``audio`` int16 ``[T]``, ``durations`` int32 ``[len(phonemes) + 2]`` summing to T."""

    text: str
    phonemes: str
    speaker: str
    audio: np.ndarray
    durations: np.ndarray

    def __post_init__(self) -> None:
        if len(self.durations) != len(self.phonemes) + 2 or self.durations.sum() != len(self.audio):
            raise ValueError(
                f"{self.text!r}: {len(self.durations)} durations summing to {self.durations.sum()} for "
                f"{len(self.phonemes)} phonemes and {len(self.audio)} samples"
            )


def utterance(text: str, phonemes: str, speaker: str, finished: Finished) -> Utterance:
    return Utterance(text, phonemes, speaker, finished.audio, finished.durations)


def write_shard(path: Path, utterances: Sequence[Utterance], sample_rate: int) -> None:
    """Write these lines to a file, atomically."""
    if not utterances:
        raise ValueError(f"no lines to write to {path}")
    voices = sorted({one.speaker for one in utterances})
    tensors = {
        "audio": np.concatenate([one.audio for one in utterances]),
        "audio_starts": _starts([len(one.audio) for one in utterances]),
        "durations": np.concatenate([one.durations for one in utterances]),
        "duration_starts": _starts([len(one.durations) for one in utterances]),
        "speaker": np.array([voices.index(one.speaker) for one in utterances], np.int32),
    }
    metadata = {
        "sample_rate": str(sample_rate),
        "voices": json.dumps(voices),
        "lines": json.dumps([[one.text, one.phonemes] for one in utterances], ensure_ascii=False),
    }
    unfinished = path.with_suffix(".part")
    save_file(tensors, unfinished, metadata)
    unfinished.replace(path)


def _starts(lengths: Sequence[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


class Shard:
    """One shard; a line's audio is read from disk on access."""

    def __init__(self, path: Path) -> None:
        self._file = safe_open(path, framework="np")
        metadata = self._file.metadata()
        self.sample_rate = int(metadata["sample_rate"])
        self._voices = json.loads(metadata["voices"])
        self._lines = json.loads(metadata["lines"])
        self._audio_starts = self._file.get_tensor("audio_starts").tolist()
        self._duration_starts = self._file.get_tensor("duration_starts").tolist()
        self.speakers = [self._voices[index] for index in self._file.get_tensor("speaker")]

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, index: int) -> Utterance:
        text, phonemes = self._lines[index]
        audio = self._slice("audio", self._audio_starts, index)
        durations = self._slice("durations", self._duration_starts, index)
        return Utterance(text, phonemes, self.speakers[index], audio, durations)

    def _slice(self, name: str, starts: Sequence[int], index: int) -> np.ndarray:
        return self._file.get_slice(name)[starts[index] : starts[index + 1]]

    @property
    def seconds(self) -> float:
        return self._audio_starts[-1] / self.sample_rate

    @property
    def symbols(self) -> set[str]:
        """The phone symbols that occur; reads no audio."""
        return {symbol for _, phonemes in self._lines for symbol in phonemes}


class Corpus:
    """All shards of one split of a folder, as one sequence of Utterance."""

    def __init__(self, folder: Path, split: str) -> None:
        self.shards = [Shard(path) for path in sorted(folder.glob(f"{split}-*.safetensors"))]
        if not self.shards:
            raise ValueError(f"no {split}-*.safetensors in {folder}: speak that split first")
        self._ends = np.cumsum([len(shard) for shard in self.shards]).tolist()

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> Utterance:
        if not 0 <= index < len(self):
            raise IndexError(f"line {index} of {len(self)}")
        shard = bisect_right(self._ends, index)
        return self.shards[shard][index - (self._ends[shard - 1] if shard else 0)]

    @property
    def speakers(self) -> list[str]:
        """The speaker of each line; reads no audio."""
        return [name for shard in self.shards for name in shard.speakers]

    @property
    def seconds(self) -> float:
        return sum(shard.seconds for shard in self.shards)
