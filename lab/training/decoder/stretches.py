"""Speech with its recorded codes: lines of a voice joined to stretches, each encoded once by the shipped codec.

    python -m lab.training.decoder.stretches --corpus SHARDS --codec demo_voice/speech_tokenizer --split train \
        --out train.safetensors --device cuda

A stretch is encoded from its start, as a line is when somebody clones a voice. Its level and the digital silence that
it may begin with are drawn once, so codes and audio belong together.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from ..codec.config import GROUPS, SAMPLE_RATE, SAMPLES_PER_FRAME
from ..corpus.log import start_log
from ..corpus.shards import Corpus
from .network import load_codec

log = logging.getLogger("lab.training.decoder")


class Spoken(Protocol):
    """The fields used of a corpus line; ``audio`` is int16 ``[T]`` at 24 kHz."""

    @property
    def speaker(self) -> str: ...
    @property
    def audio(self) -> np.ndarray: ...


@dataclass(frozen=True)
class JoinOptions:
    """How lines become stretches.

    Args:
        seconds: a stretch gets lines until it is at least this long.
        gain_db: range of the level's change.
        silent: share of the stretches that begin with 1 to 4 frames of digital silence, as a padded line does.
        batch_seconds: padded audio that is encoded at once.
    """

    seconds: float = 8.0
    gain_db: tuple[float, float] = (-6.0, 3.0)
    silent: float = 0.3
    batch_seconds: float = 320.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.seconds <= 0 or self.batch_seconds <= 0 or not 0 <= self.silent <= 1:
            raise ValueError(f"{self}: seconds must be above 0, silent 0 to 1")


@dataclass(frozen=True)
class Stretches:
    """``audio`` int16 ``[frames * 1920]``, ``codes`` int16 ``[frames, 16]``, ``starts`` int64 ``[stretches + 1]``.

    ``starts`` are the frames at which stretches begin, and the number of frames.
    """

    audio: torch.Tensor
    codes: torch.Tensor
    starts: torch.Tensor

    def __post_init__(self) -> None:
        frames = len(self.codes)
        if len(self.audio) != frames * SAMPLES_PER_FRAME or self.codes.shape[1:] != (GROUPS,):
            raise ValueError(
                f"{len(self.audio)} samples and codes {tuple(self.codes.shape)}: need 1920 samples and 16 codes a frame"
            )
        if len(self.starts) < 2 or int(self.starts[0]) or int(self.starts[-1]) != frames:
            raise ValueError(f"starts must lead from 0 to {frames}: encode the corpus again")

    def to(self, device: torch.device | str) -> Stretches:
        """Return the same with audio and codes on a device; ``starts`` stay on the CPU."""
        return Stretches(self.audio.to(device), self.codes.to(device), self.starts)


def join(lines: Iterable[Spoken], options: JoinOptions) -> list[np.ndarray]:
    """Return stretches, int16 ``[frames * 1920]``: a voice's lines one after another, padded to whole frames."""
    rng = np.random.default_rng(options.seed)
    by_voice: dict[str, list[np.ndarray]] = {}
    for line in lines:
        by_voice.setdefault(line.speaker, []).append(line.audio)
    groups = [group for voice in sorted(by_voice) for group in _cut(by_voice[voice], options.seconds)]
    if not groups:
        raise ValueError("no lines to join: speak the corpus first")
    return [_stretch(group, rng, options) for group in groups]


def _cut(parts: Sequence[np.ndarray], seconds: float) -> Iterator[list[np.ndarray]]:
    """Yield runs of lines of at least this length; the last may be shorter."""
    group: list[np.ndarray] = []
    for part in parts:
        group.append(part)
        if sum(map(len, group)) >= seconds * SAMPLE_RATE:
            yield group
            group = []
    if group:
        yield group


def _stretch(parts: Sequence[np.ndarray], rng: np.random.Generator, options: JoinOptions) -> np.ndarray:
    gain = 10 ** (rng.uniform(*options.gain_db) / 20)
    lead = int(rng.integers(1, 5)) * SAMPLES_PER_FRAME if rng.random() < options.silent else 0
    speech = np.clip(np.concatenate(parts).astype(np.float32) * gain, -32767, 32767).round()
    tail = -(lead + len(speech)) % SAMPLES_PER_FRAME
    return np.pad(speech.astype(np.int16), (lead, tail))


def encode(codec: Any, pieces: Sequence[np.ndarray], batch_seconds: float) -> list[torch.Tensor]:
    """Return each stretch's codes, int16 ``[frames, 16]``, in the order given, with the codec on its device."""
    order = sorted(range(len(pieces)), key=lambda index: len(pieces[index]))
    codes: list[torch.Tensor] = [torch.empty(0)] * len(pieces)
    batch: list[int] = []
    for index in order:
        if batch and (len(batch) + 1) * len(pieces[index]) > batch_seconds * SAMPLE_RATE:
            _encode_batch(codec, batch, pieces, codes)
            batch = []
        batch.append(index)
    _encode_batch(codec, batch, pieces, codes)
    return codes


@torch.inference_mode()
def _encode_batch(
    codec: Any, batch: Sequence[int], pieces: Sequence[np.ndarray], codes: list[torch.Tensor]
) -> None:
    device = next(codec.parameters()).device
    longest = max(len(pieces[index]) for index in batch)
    wave = torch.zeros(len(batch), longest)
    for row, index in enumerate(batch):
        wave[row, : len(pieces[index])] = torch.from_numpy(pieces[index].astype(np.float32) / 32768)
    wave = wave.to(device)
    found = codec.encode(wave, torch.ones_like(wave, dtype=torch.long), return_dict=True).audio_codes
    for one, index in zip(found, batch, strict=True):
        # The encoder is causal: what the padding says comes after the stretch.
        codes[index] = one[: len(pieces[index]) // SAMPLES_PER_FRAME].short().cpu()


def make_stretches(lines: Iterable[Spoken], codec: Any, options: JoinOptions) -> Stretches:
    """Join and encode lines."""
    pieces = join(lines, options)
    codes = encode(codec, pieces, options.batch_seconds)
    return Stretches(
        torch.from_numpy(np.concatenate(pieces)),
        torch.cat(codes),
        torch.tensor([0, *np.cumsum([len(one) for one in codes])]),
    )


def save(path: Path, made: Stretches) -> None:
    """Write stretches, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    save_file({"audio": made.audio, "codes": made.codes.contiguous(), "starts": made.starts}, unfinished)
    unfinished.replace(path)


def load(path: Path) -> Stretches:
    """Read what ``save`` wrote; raises ValueError if the file does not exist."""
    if not path.is_file():
        raise ValueError(f"no {path}: make it with `python -m lab.training.decoder.stretches`")
    return Stretches(**load_file(path))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.training.decoder.stretches", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--corpus", type=Path, required=True, help="folder of SPLIT-*.safetensors")
    parser.add_argument("--codec", type=Path, required=True, help="the shipped speech_tokenizer folder")
    parser.add_argument("--split", default="train")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch-seconds", type=float, default=JoinOptions.batch_seconds)
    given = parser.parse_args()
    start_log(given.out.parent / "stretches.log")
    torch.backends.cudnn.allow_tf32 = False  # ten bits of a convolution's inputs would change codes
    started = time.monotonic()
    corpus = Corpus(given.corpus, given.split)
    made = make_stretches(
        (corpus[index] for index in range(len(corpus))),
        load_codec(given.codec).to(given.device),
        JoinOptions(batch_seconds=given.batch_seconds),
    )
    save(given.out, made)
    hours = len(made.audio) / SAMPLE_RATE / 3600
    seconds = time.monotonic() - started
    log.info("%s: %.2f h in %d stretches, %.0f s", given.out, hours, len(made.starts) - 1, seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
