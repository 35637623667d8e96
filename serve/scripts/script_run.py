"""The lines of a script in its folder: reuse those of earlier runs, speak the others, save each when it ends.

The folder has a sound file for each line, the cache of its lines, and a manifest. The cache has lines as they were
spoken, as graphs do (``morph/kept/cache.py``). A line's sound file is named by its number, its name and the first
letters of its key; one that is there stays, so that it may be edited.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..terminal.console import Console
from ..terminal.folder_lock import exclusive
from ..terminal.sound import explaining, read_recording, write_atomic, write_sound

if TYPE_CHECKING:
    from ...morph.kept.render import OnFrame
    from ...morph.speech.lines import Line, Spoken
    from ...morph.text.scripts.script import ScriptLine
    from .backend import ScriptBackend

MANIFEST, LINES = "manifest.json", "lines"
FORMAT, VERSION = "qwen3-tts-morph script", 3
MOST_BYTES = 1 << 50  # no line goes while its script is there
SHOWN_KEY = 8  # letters of the key in a file's name
OWN_NAME = re.compile(rf"\d{{4,}}_.+_([0-9a-f]{{{SHOWN_KEY}}})\.(wav|flac)")
MOST_NAMED = 10  # lines in an error
TOGETHER = 512  # lines that are queued together: their sound is in memory until all of them have ended


@dataclass
class ScriptFolder:
    """The folder of one script, ``options.out``, and the lines of this run, numbered from 1."""

    options: argparse.Namespace
    console: Console
    found: dict[str, Path]  # sound files by the letters of the key that they show
    files: dict[str, Path] = field(default_factory=dict)  # of this run's lines, by their keys
    # By their numbers, with their keys, and without their sound, which is in the file.
    lines: dict[int, tuple[str, Spoken]] = field(default_factory=dict)

    def save(self, number: int, key: str, spoken: Spoken) -> None:
        """Give a line its file: one that is there gets its new place, and is kept if it is readable, but ``again``."""
        if key not in self.files:  # lines of one sound share a file
            self.files[key] = self._place(number, key[:SHOWN_KEY], spoken)
        self.lines[number] = key, replace(spoken, waveform=spoken.waveform[:0].copy())

    def _place(self, number: int, shown: str, spoken: Spoken) -> Path:
        there, name = self.found.get(shown), re.sub(r"[^\w]+", "-", spoken.report.name).strip("-")[:40]
        # New files are exact, and lines are found in either format.
        ending = there.suffix if there else ".wav" if self.options.format == "wav" else ".flac"
        file: Path = self.options.out / f"{number:04d}_{name or 'line'}_{shown}{ending}"
        if there is not None:
            with explaining(there, "renamed", "choose another folder with --out"):
                os.replace(there, file)
        if self.options.again or not is_readable(file):
            write_sound(file, spoken.waveform, spoken.sample_rate)
        return file

    def read(self, number: int) -> Spoken:
        """Return a line with the sound of its file, which may have been edited; ValueError if unreadable."""
        key, spoken = self.lines[number]
        file = self.files[key]
        channels, rate = read_recording(file)
        if rate != spoken.sample_rate:
            raise ValueError(f"{file} has {rate} Hz and the track {spoken.sample_rate}: delete it, or convert it")
        waveform = channels.mean(axis=0)
        if len(waveform) == round(spoken.report.seconds * rate):
            return replace(spoken, waveform=waveform)
        # It was edited: its pieces are elsewhere.
        report = replace(spoken.report, seconds=len(waveform) / rate)
        return replace(spoken, waveform=waveform, report=report, spans=(), words=())

    def write_manifest(self, complete: bool = False) -> None:
        """Write the manifest: the script's lines by key in their order, with their files and reports."""
        lines = [self.lines[number] for number in sorted(self.lines)]
        known = {
            "format": FORMAT,
            "version": VERSION,
            "source": self.options.file.name,
            "complete": complete,
            **({"track": outputs(self.options)[0].name} if complete else {}),
            "lines": [key for key, _ in lines],
            "saved": {key: {"file": self.files[key].name, "report": asdict(one.report)} for key, one in lines},
        }
        content = json.dumps(known, indent=1, ensure_ascii=False) + "\n"
        write_atomic(self.options.out / MANIFEST, content.encode())


@contextmanager
def open_folder(options: argparse.Namespace, console: Console) -> Iterator[ScriptFolder]:
    """Hold the folder of a script; ValueError for a folder of others."""
    folder, manifest = options.out, options.out / MANIFEST
    with explaining(f"folder {folder}", "made"):
        folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder):
        if manifest.exists() and read_version(manifest) != VERSION:
            console.note(
                "an earlier version of the program spoke these lines: they are spoken again, and its files stay"
            )
        found = {name[1]: path for path in folder.iterdir() if (name := OWN_NAME.fullmatch(path.name))}
        yield ScriptFolder(options, console, found)


def outputs(options: argparse.Namespace) -> tuple[Path, Path, Path]:
    track, srt, vtt = (options.out / f"{options.file.stem}.{kind}" for kind in (options.format, "srt", "vtt"))
    return track, srt, vtt


def is_readable(path: Path) -> bool:
    try:
        read_recording(path)
    except ValueError:
        return False
    return True


def read_version(path: Path) -> Any:
    """Return the version of a manifest; ValueError for a file that is none."""
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        manifest = json.loads(path.read_bytes())
        if manifest["format"] == FORMAT:
            return manifest["version"]
    raise ValueError(f"{path} is not a manifest of this program: choose another folder with --out, or delete it")


@dataclass
class ScriptRun:
    """The lines of a script while they are spoken into its folder."""

    folder: ScriptFolder
    backend: ScriptBackend
    script: Sequence[ScriptLine]
    lines: Sequence[Line]
    lost: dict[int, str] = field(default_factory=dict)  # why lines failed, by their indices
    cached: int = 0  # lines that have ended

    def speak(self) -> None:
        """Speak the lines that are not saved, and report them; ValueError for one that cannot be spoken."""
        options, console, speaks = self.folder.options, self.folder.console, self.backend.speaks
        self.lines = [replace(line, instruct=line.instruct or options.instruct) for line in self.lines]
        if found := self.backend.cast.describe_found():
            console.note(found)
        if options.words is not None:
            speaks.check_words()
        for line in self.lines:
            speaks.check(line, self.backend.settings)
        if replaced := ", ".join(path.name for path in outputs(options) if path.exists()):
            console.note(f"replacing what an earlier run wrote into {options.out}: {replaced}")
        self.folder.write_manifest()  # a folder that cannot be written is found now
        started = time.perf_counter()
        self._speak_all()
        self._report(time.perf_counter() - started)

    def _speak_all(self) -> None:
        from ...morph.batch.speech import OutOfService

        console, go_on = self.folder.console, "the same command goes on"
        if self.folder.options.again:
            go_on = "the same command without --again goes on; it keeps what earlier runs spoke of the rest"
        try:
            with console.progress("lines") as show:
                for begin in range(0, len(self.lines), TOGETHER):
                    self._speak_group(range(begin, min(begin + TOGETHER, len(self.lines))), show)
                    self.folder.write_manifest()
        except KeyboardInterrupt:
            console.note(f"interrupted with {self.cached} of {len(self.lines)} lines: {go_on}")
            raise
        except OutOfService as error:
            raise ValueError(f"{error}; {go_on}") from error
        if self.lost:
            first, *others = lost = sorted(self.lost)
            numbers = ", ".join(str(index + 1) for index in lost[:MOST_NAMED])
            more = f" and {len(lost) - MOST_NAMED} more" if len(lost) > MOST_NAMED else ""
            raise ValueError(
                f"{'lines' if others else 'line'} {numbers}{more} could not be spoken ({self.lost[first]}): run the "
                "same command to retry; the others are saved"
            )

    def _speak_group(self, group: range, show: OnFrame) -> None:
        from ...morph.kept.cache import LineCache
        from ...morph.kept.render import Listener, RenderOptions, speak_lines
        from ...morph.speech.lines import ERROR

        backend, options = self.backend, self.folder.options
        cache = LineCache(options.out / LINES, MOST_BYTES)

        def end(place: int, spoken: Spoken) -> None:
            if spoken.report.ended == ERROR:
                self.lost[group[place]] = spoken.report.error
                return
            self.cached += 1
            if backend.check is None:
                self._save(group[place], spoken)

        listener = Listener(
            lambda done, expected: show(group.start + len(group) * done // expected, len(self.lines)),
            on_line=end,
        )
        how = RenderOptions(cache, backend.check, options.again)
        try:
            lines = [self.lines[index] for index in group]
            spoken = speak_lines(backend.speaks, lines, backend.settings, how, listener)
        except Exception:
            if not self.lost.keys() >= set(group):  # no line of the group could be spoken
                raise
            return
        for index, one in zip(group, spoken, strict=True):
            if backend.check is not None and index not in self.lost:
                self._save(index, one)

    def _save(self, index: int, spoken: Spoken) -> None:
        from ...morph.script.dialogue import finish_line
        from ...morph.speech.takes import take_seed

        line, finish = self.lines[index], self.script[index]
        taken = replace(line, seed=take_seed(line.seed, spoken.take))
        key = self.backend.speaks.key(taken, self.backend.settings)
        facts = [taken.text, taken.seed, spoken.report.takes, finish.gain_db, finish.speed, finish.pitch]
        file_key = hashlib.sha256(json.dumps([key, *facts]).encode()).hexdigest()
        self.folder.save(index + 1, file_key, finish_line(spoken, finish))

    def _report(self, elapsed: float) -> None:
        from ...morph.speech.lines import WRONG

        # They ended in another order.
        lines = {number: self.folder.lines[number][1] for number in sorted(self.folder.lines)}
        new = [one for one in lines.values() if not one.report.from_before]
        console = self.folder.console
        if len(new) < len(lines):
            console.note(f"{len(lines) - len(new)} of {len(lines)} lines are spoken already")
        if new:
            console.note(self.backend.speaks.describe(new, self.backend.settings, elapsed))
        wrong = [number for number, one in lines.items() if one.report.ended in WRONG]
        if len(wrong) > sum(one.report.ended in WRONG for one in new):
            numbers = ", ".join(map(str, wrong))
            console.note(f"lines that went wrong, earlier ones included: {numbers}; try [take 2] before them")
