"""The folders of checkpoints and voices, ComfyUI's or the user's own, and locks of folders."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ...morph.checkpoint.find import ADAPTER_FOLDERS, MODEL_FOLDERS
from ...morph.tested import installed

if TYPE_CHECKING:
    from ...morph.voice.library import VoiceLibrary

log = logging.getLogger(__name__)

PACK = Path(__file__).resolve().parents[2]
VARIABLE = "COMFYUI_DIR"
EXTRA = "extra_model_paths.yaml"  # in ComfyUI's folder
OWN = ".qwen3-tts-morph"  # in the user's home
VOICE_FOLDER = "qwen3-tts-voices"  # in ComfyUI's models
LOCK = "manifest.lock"  # on Windows, where a folder itself cannot be locked


@dataclass(frozen=True)
class Folders:
    models: Path  # ComfyUI's ``models``, or a folder like it; it may not exist yet
    extra: Mapping[str, Sequence[Path]] = field(default_factory=dict)  # of ``extra_model_paths.yaml``

    @classmethod
    def choose(cls, comfyui: Path | None, environment: Mapping[str, str] = os.environ) -> Folders:
        """Return the folders of ``comfyui``, of COMFYUI_DIR, of the ComfyUI around the pack, or the user's own."""
        named = comfyui or (Path(environment[VARIABLE]) if environment.get(VARIABLE) else None)
        if named is not None:
            if not os.path.isdir(named / "models"):
                raise ValueError(f"{named} has no folder models: give ComfyUI's folder with --comfyui or {VARIABLE}")
        elif PACK.parent.name == "custom_nodes" and os.path.isdir(PACK.parents[1] / "models"):
            named = PACK.parents[1]
        return cls(Path.home() / OWN) if named is None else cls(named / "models", read_extra(named / EXTRA))

    @property
    def checkpoints(self) -> list[Path]:
        return self._named(MODEL_FOLDERS)

    @property
    def adapters(self) -> list[Path]:
        return self._named(ADAPTER_FOLDERS)

    def _named(self, names: Sequence[str]) -> list[Path]:
        own = [Path(self.models, *name.split("/")) for name in names]
        return list(dict.fromkeys([*own, *(path for name in names for path in self.extra.get(name, ()))]))

    @property
    def downloads(self) -> Path:
        return self.models / MODEL_FOLDERS[0]

    @property
    def recognisers(self) -> Path:
        return self.models / "faster-whisper"

    @property
    def library(self) -> VoiceLibrary:
        from ...morph.voice.library import VoiceLibrary

        return VoiceLibrary(self.models / VOICE_FOLDER, tuple(self.extra.get(VOICE_FOLDER, ())))


def read_extra(file: Path) -> dict[str, list[Path]]:
    """Return the folders of ComfyUI's configuration by their name under ``models``; ValueError if damaged."""
    import yaml

    if not file.is_file():
        return {}
    try:
        sections = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        found: dict[str, list[Path]] = {}
        for section in filter(None, sections.values()):
            base = Path(os.path.expandvars(os.path.expanduser(section.get("base_path") or "")))
            for name, lines in section.items():
                if name not in ("base_path", "is_default"):
                    paths = [file.parent / base / line.strip() for line in lines.splitlines() if line.strip()]
                    found.setdefault(name, []).extend(paths)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, AttributeError) as error:
        why = " ".join(str(error).split())
        raise ValueError(f"{file} cannot be read ({why}): correct it, as ComfyUI needs it") from error
    return found


def pack_version() -> str:
    project = PACK / "pyproject.toml"
    if project.is_file():
        found = re.search(r'^version = "([^"]+)"', project.read_text(encoding="utf-8"), re.M)
        return found[1] if found else "unknown"
    return installed("qwen3-tts-morph") or "unknown"


def refuse(folder: Path) -> None:
    raise ValueError(f"folder {folder} is in use by another run: wait for its end, or choose another with --out")


@contextmanager
def exclusive(folder: Path, when_taken: Callable[[Path], None] = refuse) -> Iterator[None]:
    """Lock a folder until the end, or until the program dies.

    ``when_taken`` is called in a loop while another run has it: it sleeps, or raises.
    """
    if sys.platform == "win32":
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT)
    else:
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        while not _is_locked(descriptor, folder):
            when_taken(folder)
        yield
    finally:
        os.close(descriptor)
        if sys.platform == "win32":
            with suppress(OSError):  # another run has opened it
                (folder / LOCK).unlink()


def _is_locked(descriptor: int, folder: Path) -> bool:
    """Try to lock the open folder; return False if another run has it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # the second on Windows
        return False
    except OSError as error:  # some network drives have no locks
        log.info("%s cannot be locked: %s", folder, error)
    return True
