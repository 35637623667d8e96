"""The folder of a script: a sound file for each line, the store of its lines, and a manifest.

Lines are in the store that graphs use too (``morph/kept/cache.py``), as they were spoken. A line's sound file is named
by its number, its name and the first letters of its key; one that is there stays, so that it may be edited.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
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


@dataclass
class SavedLines:
    """The folder of one script, whose lines are numbered from 1.

    ``ending`` is for new files: all are exact, and lines are found in either.
    """

    folder: Path
    ending: str
    files: dict[str, Path]  # by the letters of the key that they show
    keys: dict[int, str] = field(default_factory=dict)  # of this run's lines, by their numbers
    placed: set[str] = field(default_factory=set)  # all of these keys
    lines: dict[int, Spoken] = field(default_factory=dict)  # without their sound, which is in the file

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
            yield cls(folder, ".wav" if audio == "wav" else ".flac", found)

    @property
    def cache(self) -> LineCache:
        from ...morph.kept.cache import LineCache

        return LineCache(self.folder / LINES, MOST_BYTES)

    def file(self, number: int) -> Path:
        return self.files[self.keys[number][:SHOWN_KEY]]

    def save(self, number: int, key: str, spoken: Spoken, again: bool) -> None:
        """Give a line its file: one that is there gets its new place, and is kept if it is readable, but ``again``."""
        if key not in self.placed:  # lines of one sound share a file
            self.placed.add(key)
            shown, name = (
                key[:SHOWN_KEY],
                re.sub(r"[^\w]+", "-", spoken.report.name).strip("-")[:40] or "line",
            )
            there = self.files.get(shown)
            wanted = self.folder / f"{number:04d}_{name}_{shown}{there.suffix if there else self.ending}"
            if there is not None:
                with explaining(there, "renamed", "choose another folder with --out"):
                    os.replace(there, wanted)
            if again or not is_readable(wanted):
                write_sound(wanted, spoken.waveform, spoken.sample_rate)
            self.files[shown] = wanted
        self.keys[number], self.lines[number] = key, replace(spoken, waveform=spoken.waveform[:0])

    def read(self, number: int) -> Spoken:
        """Return a line with the sound of its file, which may have been edited; ValueError if unreadable."""
        file, spoken = self.file(number), self.lines[number]
        channels, rate = read_recording(file)
        if rate != spoken.sample_rate:
            raise ValueError(
                f"{file} has {rate} Hz and the track {spoken.sample_rate}: delete it, or convert it"
            )
        waveform = channels.mean(axis=0)
        if len(waveform) == round(spoken.report.seconds * rate):
            return replace(spoken, waveform=waveform)
        # It was edited: its pieces are elsewhere.
        report = replace(spoken.report, seconds=len(waveform) / rate)
        return replace(spoken, waveform=waveform, report=report, spans=(), words=())

    def write_manifest(self, about: Mapping[str, Any]) -> None:
        """Write the manifest: the script's lines by key in their order, with their files and reports."""
        numbers = sorted(self.keys)
        known = {
            "format": FORMAT,
            "version": VERSION,
            **about,
            "lines": [self.keys[number] for number in numbers],
            "saved": {
                self.keys[number]: {
                    "file": self.file(number).name,
                    "report": asdict(self.lines[number].report),
                }
                for number in numbers
            },
        }
        content = json.dumps(known, indent=1, ensure_ascii=False) + "\n"
        write_whole(self.folder / MANIFEST, content.encode())


def is_readable(path: Path) -> bool:
    try:
        read_recording(path)
    except ValueError:
        return False
    return True


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
