"""Lines of random codes, steps of them, and how near two waveforms are, for tests of the codec in all its forms."""

from collections.abc import Iterable, Iterator

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.codec.stream import CodecState, CodecStream
from qwen3_tts_morph.morph.waveform.incremental import CodecSnapshot, RowStream

FRAME = 1920
# The random codec amplifies rounding: against float64, both upstream's float32 and ours have 89-90 dB.
FLOAT32_DB = 80
RAMP = (1, 1, 2, 4, 8, 12)


def random_codes(model, frames: int, seed: int = 0) -> torch.Tensor:
    """Return codes ``[frames, 16]`` of the model's codebook."""
    size = model.codec.config.decoder_config.codebook_size
    return torch.randint(size, (frames, 16), generator=torch.Generator().manual_seed(seed))


def steps(sizes: Iterable[int], codes: torch.Tensor) -> Iterator[torch.Tensor]:
    """Cut codes into steps of these sizes; the last size repeats."""
    sizes = iter(sizes)
    size = 1
    while len(codes):
        size = next(sizes, size)
        yield codes[:size]
        codes = codes[size:]


def signal_to_noise(signal: np.ndarray, other: np.ndarray) -> float:
    """Return the signal-to-noise ratio in dB; infinite where both are equal."""
    error = np.square(signal.astype(np.float64) - other).mean()
    return 10 * np.log10(np.square(signal.astype(np.float64)).mean() / error) if error else np.inf


def note_references(monkeypatch: pytest.MonkeyPatch) -> list[type]:
    """Return a list, which grows with every reference that a stream's codec begins to decode from now on."""
    begun: list[type] = []
    feed_line, feed_row = CodecStream.feed, RowStream.feed

    def note_line(codec: CodecStream, state: CodecState, reference: torch.Tensor) -> None:
        begun.extend([CodecStream] if state.frames == 0 else [])
        feed_line(codec, state, reference)

    def note_row(row: RowStream, line: int, snapshot: CodecSnapshot | None, reference: torch.Tensor) -> CodecSnapshot:
        begun.extend([RowStream] if snapshot is None else [])
        return feed_row(row, line, snapshot, reference)

    monkeypatch.setattr(CodecStream, "feed", note_line)
    monkeypatch.setattr(RowStream, "feed", note_row)
    return begun
