"""The teacher, the voices and the phonemised sentences in one file, for a machine without network access.

A ``.tar.xz`` of ``teacher.safetensors`` (8-bit weights as published, NAME with NAME::zero and NAME::scale; large float
weights as float16), ``styles.safetensors`` (float16 ``[lengths, 256]`` per voice), ``lines.jsonl`` and
``bundle.json`` (vocabulary, cast, options). Besides it, speaking needs only the wheels that speak.py names.
"""

from __future__ import annotations

import json
import lzma
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as load_tensors

from .plan import Line
from .voices import FOREIGN, ORIGINALS, TIMBRE, Voice

TEACHER, STYLES, LINES, ABOUT = "teacher.safetensors", "styles.safetensors", "lines.jsonl", "bundle.json"
STYLE_LENGTHS = 510
STYLE_SIZE = 256
_LARGE = 65536  # float tensors with more values than this are stored as float16
_ZERO, _SCALE = "::zero", "::scale"


@dataclass(frozen=True)
class Packed:
    """An 8-bit tensor: ``(values - zero) * scale``; ``zero`` and ``scale`` broadcast against ``values``."""

    values: np.ndarray
    zero: np.ndarray
    scale: np.ndarray

    def unpack(self) -> np.ndarray:
        return (self.values.astype(np.float32) - self.zero.astype(np.float32)) * self.scale


Weight = Packed | np.ndarray


@dataclass(frozen=True)
class Bundle:
    """An unpacked bundle."""

    folder: Path
    vocabulary: Mapping[str, int]
    cast: Sequence[Voice]
    lines: Sequence[Line]
    styles: Mapping[str, np.ndarray]

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the teacher's float32 weights by name."""
        stored = load_tensors(self.folder / TEACHER)
        names = [name for name in stored if not name.endswith((_ZERO, _SCALE))]
        return {name: _unpacked(name, stored) for name in names}


def _unpacked(name: str, stored: Mapping[str, torch.Tensor]) -> torch.Tensor:
    if name + _SCALE not in stored:
        return stored[name].float()
    return (stored[name].float() - stored[name + _ZERO].float()) * stored[name + _SCALE]


def read_styles(folder: Path) -> dict[str, np.ndarray]:
    """Read kokoro-js's style tables (``voices``), float32 ``[510, 256]``; row p-1 is for p phonemes.

    Those of other languages only have a timbre, the same for all lengths (it differs by a seventh of what voices differ
    by): their pitch and rhythm are of no use here, and the bundle stays small.
    """
    styles = {name: _read_table(folder, name) for name in ORIGINALS}
    for name in FOREIGN:
        table = np.zeros((STYLE_LENGTHS, STYLE_SIZE), np.float32)
        table[:, :TIMBRE] = _read_table(folder, name)[:, :TIMBRE].mean(axis=0)
        styles[name] = table
    return styles


def _read_table(folder: Path, name: str) -> np.ndarray:
    path = folder / f"{name}.bin"
    if not path.is_file():
        raise ValueError(
            f"no {path.name} in {folder}: choose the voices folder of the npm package kokoro-js 1.2.1"
        )
    return np.fromfile(path, np.float32).reshape(STYLE_LENGTHS, STYLE_SIZE)


def pack_weights(weights: Mapping[str, Weight], wanted: set[str]) -> dict[str, np.ndarray]:
    """Return the tensors to store for the ``wanted`` ones of the published weights (``onnx_weights.read_weights``)."""
    tensors: dict[str, np.ndarray] = {}
    for name in sorted(wanted & set(weights)):
        weight = weights[name]
        if isinstance(weight, np.ndarray):
            tensors[name] = weight.astype(np.float16) if weight.size > _LARGE else weight
        else:
            tensors |= {name: weight.values, name + _ZERO: weight.zero, name + _SCALE: weight.scale}
    return {name: np.ascontiguousarray(values) for name, values in tensors.items()}


def write_bundle(
    path: Path,
    teacher: Mapping[str, np.ndarray],
    styles: Mapping[str, np.ndarray],
    lines: Sequence[Line],
    about: Mapping[str, Any],
) -> None:
    """Write the file; style tables are cut to the longest line."""
    longest = max(len(line.phonemes) for line in lines)
    cut = {name: np.ascontiguousarray(table[:longest].astype(np.float16)) for name, table in styles.items()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        save_file(dict(teacher), folder / TEACHER)
        save_file(cut, folder / STYLES)
        (folder / LINES).write_text(
            "".join(f"{_as_json(asdict(line))}\n" for line in lines), encoding="utf-8"
        )
        (folder / ABOUT).write_text(_as_json(about), encoding="utf-8")
        with (
            lzma.open(path, "wb", preset=9 | lzma.PRESET_EXTREME) as packed,
            tarfile.open(fileobj=packed, mode="w") as tar,
        ):
            for name in (TEACHER, STYLES, LINES, ABOUT):
                tar.add(folder / name, name, filter=_without_owner)


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove owner and time, so that the archive's bytes are reproducible."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def unpack_bundle(path: Path, folder: Path) -> None:
    """Unpack a bundle into a new folder, atomically, even if two processes do it at the same time."""
    if not path.is_file():
        raise ValueError(
            f"no bundle {path}: make it with `python -m lab.training.corpus bundle`, or copy it here"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as temporary:
        unfinished = Path(temporary) / folder.name
        with tarfile.open(path, "r:xz") as tar:
            tar.extractall(unfinished, filter="data")
        try:
            unfinished.rename(folder)
        except OSError:
            if not folder.is_dir():  # if it exists, another process was faster
                raise


def read_bundle(folder: Path) -> Bundle:
    """Read an unpacked bundle; the teacher's weights are only read on demand."""
    if not (folder / ABOUT).is_file():
        raise ValueError(f"no {ABOUT} in {folder}: unpack a bundle there first")
    about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    lines = [Line(**json.loads(row)) for row in (folder / LINES).read_text(encoding="utf-8").splitlines()]
    cast = [Voice(**voice) for voice in about["cast"]]
    return Bundle(folder, about["vocabulary"], cast, lines, load_file(folder / STYLES))
