"""The folder of a script: a sound file for each line, what is reused of earlier runs, and a manifest.

Lines are in the store that graphs use too (``morph/kept/cache.py``), as they were spoken. A line's sound file is named
by its number, its name and the first letters of its key; one that is there stays, so that it may be edited.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..terminal.console import Console
from ..terminal.folder_lock import exclusive
from ..terminal.sound import explaining, read_recording, write_sound, write_whole

if TYPE_CHECKING:
    from ...morph.kept.cache import LineCache
    from ...morph.speech.lines import Spoken

MANIFEST, LINES = "manifest.json", "lines"
FORMAT, VERSION = "qwen3-tts-morph script", 3
MOST_BYTES = 1 << 50  # no line goes while its script is there
SHOWN_KEY = 8  # letters of the key in a file's name
OWN_NAME = re.compile(rf"\d{{4,}}_.+_([0-9a-f]{{{SHOWN_KEY}}})\.(wav|flac)")


@dataclass(frozen=True)
class SavedLine:
    """A line of a script, numbered from 1; ``spoken`` is without its sound, which is in the file."""

    number: int
    key: str
    file: Path
    spoken: Spoken

    def read(self) -> Spoken:
        """Return the line with the sound of its file, which may have been edited; ValueError if unreadable."""
        channels, rate = read_recording(self.file)
        report = self.spoken.report
        if rate != self.spoken.sample_rate:
            raise ValueError(
                f"{self.file} has {rate} Hz and the track {self.spoken.sample_rate}: delete it, or convert it"
            )
        waveform = channels.mean(axis=0)
        if len(waveform) == round(report.seconds * rate):
            return replace(self.spoken, waveform=waveform)
        # It was edited: its pieces are elsewhere.
        report = replace(report, seconds=len(waveform) / rate)
        return replace(self.spoken, waveform=waveform, report=report, spans=(), words=())


@dataclass
class SavedLines:
    """The folder of one script. ``ending`` is for new files: all are exact, and lines are found in either."""

    folder: Path
    ending: str
    lines: dict[int, SavedLine] = field(default_factory=dict)  # of this run, by their numbers
    files: dict[str, Path] = field(default_factory=dict)  # by the letters of the key

    @classmethod
    @contextmanager
    def open(cls, folder: Path, audio: str, console: Console) -> Iterator[SavedLines]:
        """Hold the folder of a script; ``audio``: the format of the track. ValueError for a folder of others."""
        with explaining(f"folder {folder}", "made"):
            folder.mkdir(parents=True, exist_ok=True)
        with exclusive(folder):
            if (folder / MANIFEST).exists() and read_version(folder / MANIFEST) != VERSION:
                console.note(
                    "an earlier version of the program spoke these lines: they are spoken again, and its files stay"
                )
            found = {name[1]: path for path in folder.iterdir() if (name := OWN_NAME.fullmatch(path.name))}
            yield cls(folder, ".wav" if audio == "wav" else ".flac", files=found)

    @property
    def cache(self) -> LineCache:
        from ...morph.kept.cache import LineCache

        return LineCache(self.folder / LINES, MOST_BYTES)

    def save(self, number: int, key: str, spoken: Spoken, again: bool) -> None:
        """Give a line its file: a readable one that is there is renamed to its place, unless ``again``."""
        shown, name = key[:SHOWN_KEY], re.sub(r"[^\w]+", "-", spoken.report.name).strip("-")[:40] or "line"
        if all(one.key != key for one in self.lines.values()):  # lines of one sound share a file
            there = self.files.get(shown)
            wanted = self.folder / f"{number:04d}_{name}_{shown}{there.suffix if there else self.ending}"
            if there is None or again or not is_readable(there):
                write_sound(wanted, spoken.waveform, spoken.sample_rate)
            else:
                with explaining(there, "renamed", "choose another folder with --out"):
                    os.replace(there, wanted)
            self.files[shown] = wanted
        silent = replace(spoken, waveform=spoken.waveform[:0])
        self.lines[number] = SavedLine(number, key, self.files[shown], silent)

    def write_manifest(self, source: str, more: Mapping[str, Any]) -> None:
        """Write the manifest: the script's lines by key in their order, with their files and reports."""
        lines = [self.lines[number] for number in sorted(self.lines)]
        known = {
            "format": FORMAT,
            "version": VERSION,
            "source": source,
            **more,
            "lines": [one.key for one in lines],
            "saved": {one.key: {"file": one.file.name, "report": asdict(one.spoken.report)} for one in lines},
        }
        content = json.dumps(known, indent=1, ensure_ascii=False) + "\n"
        write_whole(self.folder / MANIFEST, content.encode())


def is_readable(path: Path) -> bool:
    try:
        read_recording(path)
    except ValueError:
        return False
    return True


def file_key(facts: Sequence[Any]) -> str:
    """Return the key of a line's file: of what was spoken, and how it was changed since."""
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def read_version(path: Path) -> Any:
    """Return the version of a manifest; ValueError for a file that is none."""
    try:
        manifest = json.loads(path.read_bytes())
        if manifest["format"] == FORMAT:
            return manifest["version"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    raise ValueError(
        f"{path} is not a manifest of this program: choose another folder with --out, or delete it"
    )
