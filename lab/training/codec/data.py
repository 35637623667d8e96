"""The corpus in GPU memory, and random crops of it.

All lines are concatenated in one int16 tensor, grouped by voice, so that a crop can cross the end of a line and stay
within its voice. A step's batch depends only on the seed, the step and the process: a resumed training gets the same
batches as an uninterrupted one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from ..corpus.shards import Corpus
from .config import GROUPS, SAMPLES_PER_FRAME, Training

CELL = 240  # samples per phone label: 10 ms
CELLS = SAMPLES_PER_FRAME // CELL
EDGE = "_"  # the silence at the start and end of a line
UNKNOWN = -1
SILENT_FRAMES = 4  # maximum at a crop's start
RANK_SEED = 1_000_000_007

log = logging.getLogger(__name__)


class Line(Protocol):
    """The fields used of a corpus line; ``durations`` are of an edge, the phonemes and another edge, in samples."""

    @property
    def speaker(self) -> str: ...
    @property
    def phonemes(self) -> str: ...
    @property
    def audio(self) -> np.ndarray: ...
    @property
    def durations(self) -> np.ndarray: ...


@dataclass(frozen=True)
class Speech:
    """``audio`` int16 ``[N]``; ``phones`` int16 ``[N / 240]``, indices in ``symbols`` or -1; ``voices`` ``[N / 240]``.

    A voice is its index among the ``voice_count`` voices that occur. ``codes`` int16 ``[N / 1920, 2, 16]``, if given:
    as recorded and as sampled by a talker (``given.py``).
    """

    audio: torch.Tensor
    phones: torch.Tensor
    voices: torch.Tensor
    symbols: tuple[str, ...]
    voice_count: int
    codes: torch.Tensor | None = None

    @property
    def seconds(self) -> float:
        return len(self.audio) / 24000

    def to(self, device: torch.device | str) -> Speech:
        audio, phones, voices = (tensor.to(device) for tensor in (self.audio, self.phones, self.voices))
        codes = None if self.codes is None else self.codes.to(device)
        return Speech(audio, phones, voices, self.symbols, self.voice_count, codes)


@dataclass(frozen=True)
class Batch:
    """Crops of equal length.

    Args:
        wave: float32 ``[B, T]``.
        phones: labels ``[B, frames, 2, 4]``.
        voices: ``[B]``, the voice in the middle of the crop.
        groups: ``[B]``, how many groups to decode with.
        segments: float32 ``[B]``, position of the discriminators' segment: 0 is the start, towards 1 the end.
        codes: ``[B, frames, 16]`` to decode instead of the wave's own codes.
    """

    wave: torch.Tensor
    phones: torch.Tensor
    voices: torch.Tensor
    groups: torch.Tensor
    segments: torch.Tensor
    codes: torch.Tensor | None = None

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Return the tensors in the order of the fields."""
        codes = () if self.codes is None else (self.codes,)
        return self.wave, self.phones, self.voices, self.groups, self.segments, *codes


def pack_lines(lines: Iterable[Line], symbols: Sequence[str] | None = None) -> Speech:
    """Concatenate lines, voices in alphabetical order; ``symbols`` None takes the symbols that occur."""
    ordered = sorted(lines, key=lambda line: line.speaker)
    if not ordered:
        raise ValueError("no lines to train on: speak the corpus first")
    if symbols is None:
        symbols = sorted({symbol for line in ordered for symbol in line.phonemes} | {EDGE})
    index = {symbol: number for number, symbol in enumerate(symbols)}
    ids = [index.get(symbol, UNKNOWN) for line in ordered for symbol in (EDGE, *line.phonemes, EDGE)]
    ends = np.cumsum(np.concatenate([line.durations for line in ordered]), dtype=np.int64)
    audio = np.concatenate([line.audio for line in ordered])
    centres = np.arange(len(audio) // CELL) * CELL + CELL // 2
    phones = np.array(ids, np.int16)[np.searchsorted(ends, centres, side="right")]
    names = {name: number for number, name in enumerate(dict.fromkeys(line.speaker for line in ordered))}
    who = np.array([names[line.speaker] for line in ordered], np.int16)
    line_ends = np.cumsum([len(line.audio) for line in ordered], dtype=np.int64)
    voices = who[np.searchsorted(line_ends, centres, side="right")]
    made = torch.from_numpy(audio), torch.from_numpy(phones), torch.from_numpy(voices)
    return Speech(*made, tuple(symbols), len(names))


def load_speech(folder: Path, split: str, symbols: Sequence[str] | None = None, limit: int = 0) -> Speech:
    """Read a split of the corpus (its first ``limit`` lines; 0: all)."""
    corpus = Corpus(folder, split)
    count = min(limit, len(corpus)) if limit else len(corpus)
    speech = pack_lines((corpus[index] for index in range(count)), symbols)
    log.info(
        "%s: %d lines, %.2f h, %d phone symbols", split, count, speech.seconds / 3600, len(speech.symbols)
    )
    return speech


def take(speech: Speech, cells: torch.Tensor, frames: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Cut crops of ``frames`` frames starting at cells ``[B]``: waves ``[B, T]``, phones as in ``Batch``, voices."""
    cells = send(cells, speech.audio.device)
    samples = torch.arange(frames * SAMPLES_PER_FRAME, device=cells.device)
    wave = speech.audio[cells[:, None] * CELL + samples].float() / 32768
    labels = speech.phones[cells[:, None] + torch.arange(frames * CELLS, device=cells.device)]
    voices = speech.voices[cells + frames * CELLS // 2].long()
    return wave, labels.long().view(len(cells), frames, 2, CELLS // 2), voices


def send(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a small CPU tensor to the device without waiting for the work queued there."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def sample_batch(speech: Speech, options: Training, dropout: float, step: int, rank: int = 0) -> Batch:
    """Return the batch of a step in a process; ``dropout`` is the share of crops to decode with fewer groups.

    All processes get crops of equal length, because they wait for each other at the end of the step.

    Raises:
        ValueError: the speech is shorter than a crop.
    """
    seed = options.seed * 1_000_003 + step
    generator = torch.Generator().manual_seed(seed)
    shares = torch.tensor([share for _, share in options.crops])
    frames = options.crops[int(torch.multinomial(shares, 1, generator=generator))][0]
    if rank:
        generator.manual_seed(seed + rank * RANK_SEED)
    count = options.batch_frames // frames
    starts = torch.randint(_starts(speech, frames), (count,), generator=generator)
    if speech.codes is not None:
        starts -= starts % CELLS
    wave, phones, voices = take(speech, starts, frames)
    low, high = options.gain_db
    gain = 10 ** ((low + (high - low) * torch.rand(count, 1, generator=generator)) / 20)
    wave = (wave * send(gain, wave.device)).clamp(-1, 1)
    silent = torch.randint(1, SILENT_FRAMES + 1, (count,), generator=generator)
    silent *= torch.rand(count, generator=generator) < options.silent_start
    _silence(wave, phones, send(silent, wave.device), speech.symbols.index(EDGE))
    some = torch.randint(1, GROUPS, (count,), generator=generator)
    dropped = torch.rand(count, generator=generator) < dropout
    groups = torch.where(dropped, some, torch.full_like(some, GROUPS))
    segments = torch.rand(count, generator=generator)
    codes = None
    if speech.codes is not None:
        drawn = torch.rand(count, generator=generator) < options.drawn
        codes = take_codes(speech.codes, starts // CELLS, drawn.long(), frames)
    return Batch(wave, phones, voices, send(groups, wave.device), send(segments, wave.device), codes)


def take_codes(codes: torch.Tensor, starts: torch.Tensor, kinds: torch.Tensor, frames: int) -> torch.Tensor:
    """Return ``[B, frames, 16]`` starting at frames ``[B]``: recorded (0) or sampled (1) codes of ``Speech.codes``."""
    starts, kinds = send(starts, codes.device), send(kinds, codes.device)
    indices = starts[:, None] + torch.arange(frames, device=codes.device)
    return codes[indices, kinds[:, None]].long()


def segments_of(wave: torch.Tensor, positions: torch.Tensor, length: int) -> torch.Tensor:
    """Cut ``length`` samples of each of ``[B, T]``; ``positions`` as in ``Batch.segments``."""
    if length >= wave.shape[1]:
        return wave
    starts = (positions * (wave.shape[1] - length + 1)).long()
    return wave.gather(1, starts[:, None] + torch.arange(length, device=wave.device))


def _starts(speech: Speech, frames: int) -> int:
    """Return the number of cells a crop can start at."""
    starts = len(speech.phones) - frames * CELLS + 1
    if starts < 1:
        raise ValueError(
            f"{speech.seconds:.1f} s of speech is less than a crop of {frames} frames: add lines"
        )
    return starts


def _silence(wave: torch.Tensor, phones: torch.Tensor, frames: torch.Tensor, edge: int) -> None:
    """Replace the first ``frames`` ``[B]`` of each crop by digital silence, in place."""
    index = torch.arange(phones.shape[1], device=wave.device)
    quiet = index < frames[:, None]
    wave.masked_fill_(quiet.repeat_interleave(SAMPLES_PER_FRAME, dim=1), 0)
    phones.masked_fill_(quiet[..., None, None], edge)


def held_out(speech: Speech, frames: int, count: int) -> Batch:
    """Return evenly spaced crops without gain, with all groups."""
    starts = torch.linspace(0, _starts(speech, frames) - 1, count).long()
    wave, phones, voices = take(speech, starts, frames)
    groups = torch.full((count,), GROUPS, device=wave.device)
    return Batch(wave, phones, voices, groups, torch.zeros(count, device=wave.device))
