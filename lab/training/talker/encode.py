"""Turn the spoken corpus into code shards with a finished codec, through upstream's own classes.

    python -m lab.training.talker.encode --corpus work/corpus --codec work/codec --out work/codes [--processes 0]

Every line gets some silence in front: a clone's text comes one token a frame, and the first sound must not be due
before the first word has been read. Training lines are encoded ``--takes`` times, each with another silence and level:
frames then cut the line elsewhere, so that the same words become other codes, which are harder to learn by heart.
``--processes 0`` encodes on all GPUs, each its share of the lines.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from qwen3_tts_morph.morph.checkpoint.qwen_tts import default_rope_registered, import_qwen_tts

from ..corpus import shards
from ..parallel import ALONE, World, launch
from .batches import cut_by_length
from .codes import FIRST_LEAD, MEL_BINS, UNKNOWN_PHONE, CodeWriter, Utterance, pack_mel
from .config import GROUPS
from .speaker import MEL_HOP, SAMPLE_RATE, speaker_mels

log = logging.getLogger(__name__)

FRAME = 1920  # samples, 80 ms
POOL = 1024  # lines that are sorted by length at once
LABELS_AT = (0.25, 0.75)  # of a frame: at 12.5 Hz one label a frame would miss short phones


@dataclass(frozen=True)
class EncodeOptions:
    """What to encode and where to.

    Args:
        corpus, codec, out: folders.
        splits: of the corpus; every line of the others than "train" is encoded once.
        takes: of each training line.
        lead_ms: least and most silence before a later take; a first one has ``FIRST_LEAD`` frames.
        gain_db: the most that a later take is louder or softer.
        batch_seconds: of padded audio at once.
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

    def __post_init__(self) -> None:
        if not 0 <= self.lead_ms[0] <= self.lead_ms[1] <= 1000 or self.batch_seconds < 1 or self.takes < 1:
            raise ValueError("lead_ms: 0 to 1000, the least first; batch_seconds and takes: at least 1")


def load_codec(path: Path, device: torch.device) -> Any:
    """Upstream's 12 Hz tokenizer model in float32, with its encoder."""
    qwen_tts = import_qwen_tts()
    with default_rope_registered():
        codec = qwen_tts.Qwen3TTSTokenizer.from_pretrained(str(path), dtype=torch.float32).model
    return codec.to(device).eval()


def phone_places(corpora: Iterable[shards.Corpus]) -> dict[str, int]:
    """A label from 1 on for each phone symbol that occurs."""
    symbols = {symbol for corpus in corpora for shard in corpus.shards for symbol in shard.symbols}
    return {symbol: place for place, symbol in enumerate(sorted(symbols), 1)}


def phone_labels(line: shards.Utterance, symbols: Mapping[str, int], lead: int, frames: int) -> torch.Tensor:
    """The phones that sound at a quarter and three quarters of each frame: int16 ``[frames, 2]``.

    Edges and the lead are label 0; what lies behind the line is unknown.
    """
    labels = np.array([0, *(symbols[symbol] for symbol in line.phonemes), 0])
    ends = np.cumsum(line.durations) + lead
    places = (np.arange(frames)[:, None] + np.array(LABELS_AT)) * FRAME
    tokens = np.searchsorted(ends, places, side="right")
    known = tokens < len(labels)
    found = np.where(known, labels[tokens.clip(max=len(labels) - 1)], UNKNOWN_PHONE)
    return torch.from_numpy(found.astype(np.int16))


@dataclass(frozen=True)
class Take:
    """A line as it is encoded: with ``lead`` samples of silence in front, ``gain`` times as loud."""

    line: shards.Utterance
    lead: int
    gain: float

    @property
    def samples(self) -> int:
        return self.lead + len(self.line.audio)


def draw_take(line: shards.Utterance, number: int, rng: np.random.Generator, options: EncodeOptions) -> Take:
    """A line's ``number``-th take; the first is the same whatever the seed."""
    if not number:
        return Take(line, FIRST_LEAD * FRAME, 1.0)
    lead_ms = rng.uniform(*options.lead_ms)
    gain_db = rng.uniform(-options.gain_db, options.gain_db)
    return Take(line, round(lead_ms * SAMPLE_RATE / 1000), float(10 ** (gain_db / 20)))


@torch.inference_mode()
def encode_batch(
    codec: Any, takes: Sequence[Take], device: torch.device, with_mels: bool
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Codes ``[F, 16]`` and packed mels of the line alone ``[M, 128]`` (or none) of each take, on the CPU."""
    padded = -(-max(take.samples for take in takes) // FRAME) * FRAME
    waveforms = torch.zeros(len(takes), padded, device=device)
    alone = torch.zeros(len(takes), max(len(take.line.audio) for take in takes), device=device)
    mask = torch.zeros(len(takes), padded, dtype=torch.long, device=device)
    for row, take in enumerate(takes):
        audio = torch.from_numpy(take.line.audio.astype(np.float32) / 32768).to(device)
        alone[row, : len(audio)] = audio
        waveforms[row, take.lead : take.samples] = take.gain * audio
        mask[row, : take.samples] = 1
    codes = [one.short().cpu() for one in codec.encode(waveforms, mask, return_dict=True).audio_codes]
    if not with_mels:
        return codes, [torch.zeros(0, MEL_BINS, dtype=torch.uint8) for _ in takes]
    mels = pack_mel(speaker_mels(alone)).cpu()
    return codes, [
        mel[: len(take.line.audio) // MEL_HOP].clone() for mel, take in zip(mels, takes, strict=True)
    ]


class Encoder:
    """Encodes its share of the lines: every ``size``-th of a split, in one of the processes of a ``World``."""

    def __init__(self, options: EncodeOptions, world: World):
        self.options, self.world = options, world
        self.device = world.device if world.size > 1 else torch.device(options.device)
        self.codec = load_codec(options.codec, self.device)
        groups = int(self.codec.encoder_valid_num_quantizers)
        if groups != GROUPS:
            raise ValueError(f"codec {options.codec} gives {groups} groups, the talker takes {GROUPS}")
        self.corpora = {split: shards.Corpus(options.corpus, split) for split in options.splits}
        self.symbols = phone_places(self.corpora.values())
        self.writer = CodeWriter(options.out, int(self.codec.config.decoder_config.codebook_size), world)

    def encode_split(self, split: str, number: int) -> None:
        """Encode a split's ``number``-th takes."""
        corpus, world = self.corpora[split], self.world
        rng = np.random.default_rng([number, world.rank])
        frames, began = 0, time.monotonic()
        places = range(world.rank, len(corpus), world.size)
        for start in range(0, len(places), POOL):
            pool = [corpus[place] for place in places[start : start + POOL]]
            lengths = [len(line.audio) for line in pool]
            for batch in cut_by_length(lengths, self.options.batch_seconds * SAMPLE_RATE):
                takes = [draw_take(pool[place], number, rng, self.options) for place in batch]
                frames += self._encode_batch(takes, split, with_mels=number == 0)
        seconds = time.monotonic() - began
        log.info("%s, take %d: %.2f h in %.0f s", split, number, frames / 12.5 / 3600, seconds)

    def _encode_batch(self, takes: Sequence[Take], split: str, with_mels: bool) -> int:
        frames = 0
        for take, codes, mel in zip(
            takes, *encode_batch(self.codec, takes, self.device, with_mels), strict=True
        ):
            phones = phone_labels(take.line, self.symbols, take.lead, len(codes))
            self.writer.add(Utterance(take.line.text, take.line.speaker, split, codes, mel, phones))
            frames += len(codes)
        return frames


def encode(options: EncodeOptions, world: World = ALONE) -> None:
    """Encode this process's share of all splits into ``options.out``, which must hold no codes yet."""
    held = bool(list(options.out.glob("codes-*")))
    world.meet()  # before any process writes
    if held:
        raise ValueError(f"{options.out} holds codes already: take another folder, or remove them")
    encoder = Encoder(options, world)
    for number in range(options.takes):
        for split in options.splits if number == 0 else ("train",):
            encoder.encode_split(split, number)
    encoder.writer.flush()


def work(world: World, options: EncodeOptions) -> None:
    """One process's part of the command."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    encode(options, world)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--corpus", type=Path, required=True, help="folder of the spoken shards")
    parser.add_argument("--codec", type=Path, required=True, help="a speech_tokenizer folder")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--splits", default="train,dev")
    parser.add_argument("--takes", type=int, default=1, help="of each training line")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--processes", type=int, default=1, help="one a GPU (0: on all GPUs)")
    given = parser.parse_args()
    options = EncodeOptions(
        corpus=given.corpus,
        codec=given.codec,
        out=given.out,
        splits=tuple(given.splits.split(",")),
        takes=given.takes,
        device=given.device,
    )
    launch(work, given.processes, given.device, options)


if __name__ == "__main__":
    main()
