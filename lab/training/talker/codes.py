"""The talker's training data: codes, mels of speaker references and phone labels, in shards of at most 16 MiB.

A folder contains ``codes-000.safetensors`` (codes, lengths, phones; texts and speakers as JSON in its metadata) and
``mels-000.safetensors``, one pair per shard. Codes can be used alone: without mels only the speaker encoder cannot be
trained. ``styles.safetensors``, if there is one, has each voice's style and pitch, which the speaker encoder learns to
tell.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from ..parallel import ALONE, World
from .config import GROUPS

MEL_BINS = 128
MEL_FLOOR = -11.52  # just below log(1e-5), the minimum of upstream's mel
MEL_STEP = 0.06  # of the 8-bit mels; the maximum is 3.78
SHARD_BYTES = 15 << 20
UNKNOWN_PHONE = -1
FIRST_LEAD = 2  # frames of silence before a line's first take
STYLES = "styles.safetensors"
ROUGH = "rough"  # split of flawed recordings of the training lines


@dataclass(frozen=True)
class Utterance:
    """One sentence of one voice.

    Args:
        text: as the talker gets it.
        speaker: the voice's name.
        split: "train", ``ROUGH``, or the name of a held-out split.
        codes: int16 ``[F, 16]``.
        mel: uint8 ``[M, 128]`` (``pack_mel``), or ``[0, 128]`` if it is never used as a reference.
        phones: int16 ``[F, 2]``: the teacher's phone at a quarter and at three quarters of each frame; -1 unknown.
    """

    text: str
    speaker: str
    split: str
    codes: torch.Tensor
    mel: torch.Tensor
    phones: torch.Tensor


@dataclass(frozen=True)
class Codes:
    """All utterances of a folder, concatenated, on the CPU.

    ``codes`` ``[frames, 16]``, ``phones`` ``[frames, 2]`` and ``mels`` ``[mel frames, 128]``; utterance i has rows
    ``starts[i]:starts[i + 1]`` and ``mel_starts[i]:mel_starts[i + 1]``. ``speakers[i]`` indexes ``names`` and
    ``styles``, float32 ``[voices, numbers]`` with no numbers if the styles are unknown.
    """

    codes: torch.Tensor
    phones: torch.Tensor
    mels: torch.Tensor
    starts: np.ndarray
    mel_starts: np.ndarray
    texts: list[str]
    speakers: np.ndarray
    splits: list[str]
    names: list[str]
    styles: torch.Tensor
    codebook: int

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def phone_count(self) -> int:
        """Number of phone labels; they are 0 .. phone_count - 1."""
        return int(self.phones.max()) + 1 if len(self.phones) else 0

    def frames(self) -> np.ndarray:
        """Return the number of frames of each utterance."""
        return np.diff(self.starts)

    def rows(self, split: str) -> np.ndarray:
        """Return the indices of a split's utterances."""
        return np.array([row for row, name in enumerate(self.splits) if name == split], dtype=np.int64)

    def first_takes(self, split: str) -> np.ndarray:
        """Return the indices of a split's utterances that have mels: the first takes of its lines."""
        rows = self.rows(split)
        return rows[np.diff(self.mel_starts)[rows] > 0]

    def utterance_codes(self, row: int) -> np.ndarray:
        """Return an utterance's codes, int16 ``[F, 16]``."""
        return self.codes[self.starts[row] : self.starts[row + 1]].numpy()

    def utterance_phones(self, row: int) -> np.ndarray:
        """Return an utterance's phone labels, int16 ``[F, 2]``."""
        return self.phones[self.starts[row] : self.starts[row + 1]].numpy()


def pack_mel(mel: torch.Tensor) -> torch.Tensor:
    """Quantize upstream's log mel to uint8, with an error of at most 0.03."""
    return ((mel - MEL_FLOOR) / MEL_STEP).round().clamp(0, 255).to(torch.uint8)


def unpack_mel(mel: torch.Tensor) -> torch.Tensor:
    """Return the log mel that ``pack_mel`` quantized, float32."""
    return mel.float() * MEL_STEP + MEL_FLOOR


class CodeWriter:
    """Collects utterances and writes a pair of files whenever a shard's codes or mels are full.

    Processes that work together write separate files into one folder.
    """

    def __init__(self, folder: Path, codebook: int, world: World = ALONE):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.codebook = folder, codebook
        self.prefix = f"{world.rank:02d}-" if world.size > 1 else ""
        self.shard = 0
        self.waiting: list[Utterance] = []
        self.size = 0

    def add(self, utterance: Utterance) -> None:
        """Add an utterance; raises ValueError if its shapes are inconsistent."""
        frames = len(utterance.codes)
        if utterance.codes.shape != (frames, GROUPS) or utterance.phones.shape != (frames, 2):
            raise ValueError(
                f"{utterance.text!r}: codes {tuple(utterance.codes.shape)} and phones "
                f"{tuple(utterance.phones.shape)}: need [F, {GROUPS}] and [F, 2]"
            )
        self.waiting.append(utterance)
        self.size += utterance.codes.numel() * 2 + utterance.phones.numel() * 2 + 4 * len(utterance.text) + 64
        if self.size > SHARD_BYTES - (1 << 20):
            self.flush()

    def flush(self) -> None:
        """Write the collected utterances."""
        if not self.waiting:
            return
        name = f"{self.prefix}{self.shard:03d}.safetensors"
        texts = [[item.text, item.speaker, item.split] for item in self.waiting]
        metadata = {"codebook": str(self.codebook), "texts": json.dumps(texts, ensure_ascii=False)}
        tensors = {
            "codes": torch.cat([item.codes for item in self.waiting]).to(torch.int16),
            "phones": torch.cat([item.phones for item in self.waiting]).to(torch.int16),
            "lengths": torch.tensor([len(item.codes) for item in self.waiting]),
        }
        save_file(tensors, self.folder / f"codes-{name}", metadata=metadata)
        mels = {
            "mels": torch.cat([item.mel for item in self.waiting]),
            "lengths": torch.tensor([len(item.mel) for item in self.waiting]),
        }
        save_file(mels, self.folder / f"mels-{name}")
        self.shard, self.waiting, self.size = self.shard + 1, [], 0


def load_codes(folder: Path, seed: int = 0) -> Codes:
    """Read all shards of a folder.

    Raises:
        ValueError: there are none, or they come from codecs with different codebooks.
    """
    paths = sorted(folder.glob("codes-*.safetensors"))
    if not paths:
        raise ValueError(
            f"no codes-*.safetensors in {folder}: run `python -m lab.training.talker.encode` first"
        )
    parts, texts, codebooks = [], [], set()
    for path in paths:
        with safe_open(path, "pt") as file:
            parts.append({name: file.get_tensor(name) for name in ("codes", "phones", "lengths")})
            texts += json.loads(file.metadata()["texts"])
            codebooks.add(int(file.metadata()["codebook"]))
    if len(codebooks) > 1:
        raise ValueError(f"{folder} contains codes of codebooks {sorted(codebooks)}: encode the corpus again")
    mels, mel_lengths = _load_mels(paths, [len(part["lengths"]) for part in parts])
    names = sorted({speaker for _, speaker, _ in texts})
    index = {name: number for number, name in enumerate(names)}
    return Codes(
        codes=torch.cat([part["codes"] for part in parts]),
        phones=torch.cat([part["phones"] for part in parts]),
        mels=mels,
        starts=_starts([part["lengths"] for part in parts]),
        mel_starts=_starts(mel_lengths),
        texts=[text for text, _, _ in texts],
        speakers=np.array([index[speaker] for _, speaker, _ in texts]),
        splits=[split for _, _, split in texts],
        names=names,
        styles=_load_styles(folder, names),
        codebook=codebooks.pop(),
    )


def write_styles(folder: Path, styles: Mapping[str, np.ndarray]) -> None:
    """Write the voices' styles, float32 and of one length, into a folder of codes."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: torch.from_numpy(np.asarray(style, np.float32)) for name, style in styles.items()}
    save_file(tensors, folder / STYLES)


def _load_styles(folder: Path, names: Sequence[str]) -> torch.Tensor:
    """Return these voices' styles; raises ValueError if only some are known."""
    if not (folder / STYLES).is_file():
        return torch.zeros(len(names), 0)
    with safe_open(folder / STYLES, "pt") as file:
        if unknown := sorted(set(names) - set(file.keys())):
            raise ValueError(f"{folder / STYLES} lacks {unknown[0]}: encode with the bundle that was spoken")
        return torch.stack([file.get_tensor(name) for name in names])


def _load_mels(paths: Sequence[Path], counts: Sequence[int]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    mels, lengths = [], []
    for path, count in zip(paths, counts, strict=True):
        beside = path.with_name(path.name.replace("codes-", "mels-", 1))
        if not beside.is_file():
            mels.append(torch.zeros(0, MEL_BINS, dtype=torch.uint8))
            lengths.append(torch.zeros(count, dtype=torch.long))
            continue
        with safe_open(beside, "pt") as file:
            mels.append(file.get_tensor("mels"))
            lengths.append(file.get_tensor("lengths"))
    return torch.cat(mels), lengths


def _starts(lengths: Sequence[torch.Tensor]) -> np.ndarray:
    return np.concatenate(([0], torch.cat(list(lengths)).cumsum(0).numpy()))
