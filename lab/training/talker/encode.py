"""Encode the spoken corpus to code shards with a finished codec, through upstream's own classes.

    python -m lab.training.talker.encode --corpus work/corpus --codec work/codec --out work/codes [--processes 0]

Every line starts with some silence: a clone's text arrives one token per frame, so speech must not start before the
first word has been read. Training lines are encoded ``--takes`` times with different silences and levels: frame
boundaries shift, so the same words get different codes, which are harder to memorise. ``--rough`` encodes each of them
once more as people record themselves (``rough.py``), as a split of its own: only references are taken from it.
``--bundle`` records the voices' styles, which the speaker encoder then learns to tell.
``--processes 0`` encodes on all GPUs, each a share of the lines. ``--workers`` are processes that make the recordings
(Linux): a flawed one takes a core about 19 ms.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from qwen3_tts_morph.morph.checkpoint.qwen_tts import default_rope_registered, import_qwen_tts
from torch.utils.data import DataLoader, Dataset

from ..corpus import shards
from ..corpus.bundle import read_bundle
from ..corpus.voices import mean_styles
from ..parallel import ALONE, World, launch
from .batches import as_it_is, cut_by_length
from .codes import FIRST_LEAD, MEL_BINS, ROUGH, UNKNOWN_PHONE, CodeWriter, Utterance, pack_mel, write_styles
from .config import GROUPS
from .pitch import voice_pitches, with_pitch
from .rough import RoughOptions, roughen
from .speaker import MEL_HOP, SAMPLE_RATE, speaker_mels

log = logging.getLogger(__name__)

FRAME = 1920  # samples, 80 ms
POOL = 1024  # lines sorted by length together
PIECE = 64  # lines that a worker process makes at once
ROUGH_SEED = 1000  # other than any take's number
LABELS_AT = (
    0.25,
    0.75,
)  # positions in a frame: with one label per frame (12.5 Hz) short phones would be missed


@dataclass(frozen=True)
class EncodeOptions:
    """What to encode, and where to write it.

    Args:
        corpus, codec, out: folders.
        splits: of the corpus; lines of splits other than "train" are encoded once.
        takes: encodings of each training line.
        lead_ms: minimum and maximum silence before later takes; a first take has ``FIRST_LEAD`` frames.
        gain_db: maximum change of level of later takes, up or down.
        batch_seconds: padded audio per batch.
        rough: how to encode training lines once more as references; None: not at all.
        workers: processes that make the takes' audio, per GPU; 0: this one.
        bundle: the unpacked bundle that was spoken, for the voices' styles; None: they stay unknown.
    """

    corpus: Path
    codec: Path
    out: Path
    splits: tuple[str, ...] = ("train", "dev")
    takes: int = 1
    lead_ms: tuple[float, float] = (120.0, 200.0)
    gain_db: float = 3.0
    batch_seconds: float = 320.0
    device: str = "cuda"
    rough: RoughOptions | None = None
    bundle: Path | None = None
    workers: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.lead_ms[0] <= self.lead_ms[1] <= 1000 or self.batch_seconds < 1 or self.takes < 1:
            raise ValueError("lead_ms must be 0 to 1000, minimum first; batch_seconds and takes at least 1")


def load_codec(path: Path, device: torch.device) -> Any:
    """Load upstream's 12 Hz tokenizer model in float32, with its encoder."""
    qwen_tts = import_qwen_tts()
    with default_rope_registered():
        codec = qwen_tts.Qwen3TTSTokenizer.from_pretrained(str(path), dtype=torch.float32).model
    return codec.to(device).eval()


def phone_numbers(corpora: Iterable[shards.Corpus]) -> dict[str, int]:
    """Return a label, from 1 upwards, for each phone symbol that occurs."""
    symbols = {symbol for corpus in corpora for shard in corpus.shards for symbol in shard.symbols}
    return {symbol: number for number, symbol in enumerate(sorted(symbols), 1)}


def phone_labels(line: shards.Utterance, symbols: Mapping[str, int], lead: int, frames: int) -> torch.Tensor:
    """Return the phones at a quarter and at three quarters of each frame, int16 ``[frames, 2]``.

    Edges and the leading silence are label 0; after the end of the line labels are unknown.
    """
    labels = np.array([0, *(symbols[symbol] for symbol in line.phonemes), 0])
    ends = np.cumsum(line.durations) + lead
    positions = (np.arange(frames)[:, None] + np.array(LABELS_AT)) * FRAME
    tokens = np.searchsorted(ends, positions, side="right")
    known = tokens < len(labels)
    found = np.where(known, labels[tokens.clip(max=len(labels) - 1)], UNKNOWN_PHONE)
    return torch.from_numpy(found.astype(np.int16))


@dataclass(frozen=True)
class Take:
    """One encoding of a line: its ``audio`` float32 after ``lead`` samples of silence.

    ``split`` is where it goes; in ``ROUGH`` its phones are unknown, because the audio no longer fits the durations.
    """

    line: shards.Utterance
    lead: int
    audio: np.ndarray
    split: str

    @property
    def samples(self) -> int:
        return self.lead + len(self.audio)

    def phones(self, symbols: Mapping[str, int], frames: int) -> torch.Tensor:
        """Return the phone labels of its frames, int16 ``[frames, 2]``."""
        if self.split == ROUGH:
            return torch.full((frames, 2), UNKNOWN_PHONE, dtype=torch.int16)
        return phone_labels(self.line, symbols, self.lead, frames)


def clean_audio(line: shards.Utterance) -> np.ndarray:
    """Return a line's audio, float32 ``[T]``."""
    return line.audio.astype(np.float32) / 32768


def sample_take(
    line: shards.Utterance, number: int, rng: np.random.Generator, options: EncodeOptions
) -> Take:
    """Return a line's ``number``-th take without its split's name; the first does not depend on the seed."""
    if not number:
        return Take(line, FIRST_LEAD * FRAME, clean_audio(line), "")
    lead_ms = rng.uniform(*options.lead_ms)
    gain_db = rng.uniform(-options.gain_db, options.gain_db)
    lead = round(lead_ms * SAMPLE_RATE / 1000)
    return Take(line, lead, np.float32(10 ** (gain_db / 20)) * clean_audio(line), "")


def rough_take(line: shards.Utterance, rng: np.random.Generator, options: RoughOptions) -> Take:
    """Return a line as people record themselves."""
    return Take(line, 0, roughen(clean_audio(line), rng, SAMPLE_RATE, options), ROUGH)


@torch.inference_mode()
def encode_batch(
    codec: Any, takes: Sequence[Take], device: torch.device, with_mels: bool
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return each take's codes ``[F, 16]`` and the packed mel of its line ``[M, 128]`` (or no mel), on the CPU."""
    padded = -(-max(take.samples for take in takes) // FRAME) * FRAME
    waveforms = torch.zeros(len(takes), padded, device=device)
    alone = torch.zeros(len(takes), max(len(take.audio) for take in takes), device=device)
    mask = torch.zeros(len(takes), padded, dtype=torch.long, device=device)
    for row, take in enumerate(takes):
        audio = torch.from_numpy(take.audio).to(device)
        alone[row, : len(audio)] = audio
        waveforms[row, take.lead : take.samples] = audio
        mask[row, : take.samples] = 1
    codes = [one.short().cpu() for one in codec.encode(waveforms, mask, return_dict=True).audio_codes]
    if not with_mels:
        return codes, [torch.zeros(0, MEL_BINS, dtype=torch.uint8) for _ in takes]
    mels = pack_mel(speaker_mels(alone)).cpu()
    return codes, [mel[: len(take.audio) // MEL_HOP].clone() for mel, take in zip(mels, takes, strict=True)]


Maker: TypeAlias = "Callable[[shards.Utterance, np.random.Generator], Take]"


@dataclass(frozen=True)
class Pieces(Dataset[list[Take]]):
    """The takes of a corpus's lines ``indices``, ``PIECE`` at a time; ``seed`` and line decide what is drawn."""

    corpus: shards.Corpus
    indices: Sequence[int]
    seed: int
    make: Maker

    def __len__(self) -> int:
        return -(-len(self.indices) // PIECE)

    def __getitem__(self, piece: int) -> list[Take]:
        chosen = self.indices[piece * PIECE : (piece + 1) * PIECE]
        return [self.make(self.corpus[index], np.random.default_rng([self.seed, index])) for index in chosen]


def in_pools(pieces: Pieces, workers: int) -> Iterator[list[Take]]:
    """Yield all takes in pools of at least ``POOL``; the last pool may be smaller."""
    waiting: list[Take] = []
    how = "fork" if workers else None  # a shard's open file can only be inherited
    loader = DataLoader(
        pieces, batch_size=None, num_workers=workers, collate_fn=as_it_is, multiprocessing_context=how
    )
    for piece in loader:
        waiting += piece
        if len(waiting) >= POOL:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


class Encoder:
    """Encodes every ``size``-th line of a split, in one of the processes of a ``World``."""

    def __init__(self, options: EncodeOptions, world: World):
        self.options, self.world = options, world
        self.device = world.device if world.size > 1 else torch.device(options.device)
        self.codec = load_codec(options.codec, self.device)
        groups = int(self.codec.encoder_valid_num_quantizers)
        if groups != GROUPS:
            raise ValueError(f"codec {options.codec} has {groups} groups: the talker needs {GROUPS}")
        self.corpora = {split: shards.Corpus(options.corpus, split) for split in options.splits}
        self.symbols = phone_numbers(self.corpora.values())
        self.writer = CodeWriter(options.out, int(self.codec.config.decoder_config.codebook_size), world)

    def encode_split(self, split: str, number: int) -> None:
        """Encode a split's ``number``-th takes."""

        def take(line: shards.Utterance, rng: np.random.Generator) -> Take:
            return replace(sample_take(line, number, rng, self.options), split=split)

        self._encode(split, number, take, with_mels=number == 0)

    def encode_rough(self, rough: RoughOptions) -> None:
        """Encode the training lines as references, with mels."""
        self._encode("train", ROUGH_SEED, lambda line, rng: rough_take(line, rng, rough), with_mels=True)

    def _encode(self, split: str, seed: int, make: Maker, with_mels: bool) -> None:
        corpus, world = self.corpora[split], self.world
        frames, began = 0, time.monotonic()
        pieces = Pieces(corpus, range(world.rank, len(corpus), world.size), seed, make)
        for takes in in_pools(pieces, self.options.workers):
            lengths = [take.samples for take in takes]
            for batch in cut_by_length(lengths, self.options.batch_seconds * SAMPLE_RATE):
                frames += self._encode_batch([takes[index] for index in batch], with_mels)
        seconds = time.monotonic() - began
        log.info("%s, take %d: %.2f h in %.0f s", split, seed, frames / 12.5 / 3600, seconds)

    def _encode_batch(self, takes: Sequence[Take], with_mels: bool) -> int:
        frames = 0
        for take, codes, mel in zip(
            takes, *encode_batch(self.codec, takes, self.device, with_mels), strict=True
        ):
            phones = take.phones(self.symbols, len(codes))
            self.writer.add(Utterance(take.line.text, take.line.speaker, take.split, codes, mel, phones))
            frames += len(codes)
        return frames


def encode(options: EncodeOptions, world: World = ALONE) -> None:
    """Encode this process's share of all splits into ``options.out``, which must not contain codes yet."""
    held = bool(list(options.out.glob("codes-*")))
    world.meet()  # before any process writes
    if held:
        raise ValueError(f"{options.out} already contains codes: choose another folder, or remove them")
    encoder = Encoder(options, world)
    if options.bundle is not None and world.first:
        spoken = read_bundle(options.bundle)
        pitches = voice_pitches(encoder.corpora.values(), encoder.device)
        write_styles(options.out, with_pitch(mean_styles(spoken.cast, spoken.styles), pitches))
    for number in range(options.takes):
        for split in options.splits if number == 0 else ("train",):
            encoder.encode_split(split, number)
    if options.rough is not None:
        encoder.encode_rough(options.rough)
    encoder.writer.flush()


def work(world: World, options: EncodeOptions) -> None:
    """Run one process's share of the command."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    if world.device.type == "cuda":
        # Each line's mel is copied on the CPU. Copies by as many threads as there are cores wait for the slowest one:
        # on a busy machine of 32 cores two such processes took 125 s for 15 hours of speech each, 50 s without mels.
        torch.set_num_threads(1)
    encode(options, world)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--corpus", type=Path, required=True, help="folder of the spoken shards")
    parser.add_argument("--codec", type=Path, required=True, help="a speech_tokenizer folder")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--splits", default="train,dev")
    parser.add_argument("--takes", type=int, default=1, help="encodings of each training line")
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--processes", type=int, default=1, help="number of processes, one per GPU (0: all GPUs)"
    )
    parser.add_argument("--rough", action="store_true", help="also encode flawed recordings, as references")
    parser.add_argument("--workers", type=int, default=0, help="processes that make recordings, per GPU")
    parser.add_argument("--bundle", type=Path, help="the unpacked bundle, to record the voices' styles")
    given = parser.parse_args()
    options = EncodeOptions(
        corpus=given.corpus,
        codec=given.codec,
        out=given.out,
        splits=tuple(given.splits.split(",")),
        takes=given.takes,
        device=given.device,
        rough=RoughOptions() if given.rough else None,
        bundle=given.bundle,
        workers=given.workers,
    )
    launch(work, given.processes, given.device, options)


if __name__ == "__main__":
    main()
