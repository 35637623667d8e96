"""The folder of a run. Every result is a separate small file, so an interrupted run can resume.

    run.json                       the checkpoint, the lines, the voices, the settings
    references/VOICE/0.wav         recordings the judges compare a voice with
    codes/CONDITION/0000.json      a line's codes and how it ended
    wavs/CONDITION/0000.wav        its sound
    judged/CONDITION/0000.json     its judgements

To measure a strategy again after its code has changed, delete its folders and files. Files are written atomically.
Codes are enough to continue from: one machine can decode a run and another can render and judge its sound.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .lines import Task

CODES, WAVS, JUDGED, REFERENCES = "codes", "wavs", "judged", "references"


@dataclass(frozen=True)
class RunInfo:
    """Identity of a run, shared by all its conditions. ``checkpoint`` is a name, ``weights`` a hash of its files, which
    say how its lines end too; ``machine`` is where the run began.
    """

    checkpoint: str
    weights: str
    model: str
    sampling: str
    language: str
    voices: str
    sample_rate: int
    tasks: tuple[Task, ...]
    machine: str = ""


class RunFolder:
    """Reads and writes one run's folder."""

    def __init__(self, root: Path):
        self.root = root

    def path(self, kind: str, condition: str, line: int, suffix: str = ".json") -> Path:
        """Return the path of a line's file of this kind."""
        return self.root / kind / condition / f"{line:04}{suffix}"

    def read(self, kind: str, condition: str, line: int) -> dict[str, Any] | None:
        """Return a line's file, or None if it does not exist."""
        return read_json(self.path(kind, condition, line))

    def missing(self, kind: str, condition: str, lines: int, suffix: str = ".json") -> list[int]:
        """Return the lines that have no such file."""
        return [line for line in range(lines) if not self.path(kind, condition, line, suffix).is_file()]

    def start(self, about: RunInfo) -> None:
        """Start a run, or resume it.

        Raises:
            ValueError: the folder contains another run.
        """
        old = read_json(self.root / "run.json")
        if old is not None:
            _check_same(old, about, self.root)
            if len(old["tasks"]) >= len(about.tasks):
                return
        write_json(self.root / "run.json", asdict(about))

    def about(self) -> RunInfo:
        """Return this folder's run; raises ValueError if there is none."""
        kept = read_json(self.root / "run.json")
        if kept is None:
            raise ValueError(f"{self.root} contains no run: pass --checkpoint to start one")
        return RunInfo(**{**kept, "tasks": tuple(Task(**task) for task in kept["tasks"])})


def _check_same(old: dict[str, Any], about: RunInfo, root: Path) -> None:
    new = json.loads(json.dumps(asdict(about)))
    both = min(len(old["tasks"]), len(new["tasks"]))
    for name in ("weights", "sampling", "language", "voices"):
        if old[name] != new[name]:
            raise ValueError(f"{root} contains a run with other {name} ({old[name]}): choose another --out")
    if old["tasks"][:both] != new["tasks"][:both]:
        raise ValueError(f"{root} contains a run with other lines, voices or seeds: choose another --out")


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the content of a JSON file, or None if it does not exist."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(value, ensure_ascii=False) + "\n", encoding="utf-8")
    unfinished.replace(path)


def write_wav(path: Path, audio: np.ndarray, sample_rate: int) -> None:
    """Write 16-bit PCM, ``[T]`` or ``[C, T]``, atomically."""
    import soundfile

    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    soundfile.write(unfinished, audio.T, sample_rate, format="WAV", subtype="PCM_16")
    unfinished.replace(path)


def hash_weights(checkpoint: Path) -> str:
    """Return a hash of a checkpoint's weight files and configs, including the codec's."""
    digest = hashlib.sha256()
    for path in sorted(checkpoint.rglob("*")):
        if path.suffix in (".safetensors", ".json"):
            digest.update(path.relative_to(checkpoint).as_posix().encode())
            with path.open("rb") as file:
                while block := file.read(1 << 22):
                    digest.update(block)
    return digest.hexdigest()[:16]


def kept_lines(folder: RunFolder, kind: str, condition: str, lines: int) -> Sequence[dict[str, Any]] | None:
    """Return the files of all lines of a condition, or None if any is missing."""
    read = [folder.read(kind, condition, line) for line in range(lines)]
    return [one for one in read if one is not None] if None not in read else None
