"""The lines of a script in its folder: reuse those of earlier runs, speak the others, save each when it ends.

The folder has a sound file for each line, the store of its lines, and a manifest. Lines are in the store that graphs
use too (``morph/kept/cache.py``), as they were spoken. A line's sound file is named by its number, its name and the
first letters of its key; one that is there stays, so that it may be edited.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..terminal.console import Console
from ..terminal.folder_lock import exclusive
from ..terminal.sound import explaining, read_recording, write_atomic, write_sound

if TYPE_CHECKING:
    from ...morph.kept.cache import LineCache
    from ...morph.kept.once import OnFrame
    from ...morph.speech.lines import Line, Spoken
    from ...morph.text.scripts.script import Script
    from ...morph.words.captions import LineWords
    from .opened import Opened

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
        write_atomic(self.folder / MANIFEST, content.encode())


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


MOST_NAMED = 10  # lines in an error
TOGETHER = 512  # lines that are queued together: their sound is in memory until all of them have ended


@dataclass(frozen=True)
class Job:
    opened: Opened
    script: Script
    lines: Sequence[Line]
    saved: SavedLines
    options: argparse.Namespace
    lost: dict[int, str] = field(default_factory=dict)  # why lines failed, by their indices
    ended: set[int] = field(default_factory=set)  # indices of lines that are stored

    def words(self, spoken: Spoken, start: int) -> LineWords:
        """Return the times of a line's words in the track, where the line starts at a sample."""
        from ...morph.words.captions import LineWords

        words = LineWords(self.opened.speaks.words(spoken), spoken.report.name)
        return words.at(start / spoken.sample_rate)

    def write_manifest(self, complete: bool) -> None:
        track = {"track": outputs(self.options)[0].name} if complete else {}
        self.saved.write_manifest({"source": self.options.file.name, "complete": complete, **track})

    def add(self, index: int, spoken: Spoken, is_checked: bool = True) -> None:
        """Save a line that has ended, once its words are checked."""
        from ...morph.script.dialogue import finish_line
        from ...morph.speech.takes import ERROR, take_seed

        if spoken.report.ended == ERROR:
            self.lost[index] = spoken.report.error
            return
        self.ended.add(index)
        if is_checked:
            line, finish = self.lines[index], self.script.lines[index]
            taken = replace(line, seed=take_seed(line.seed, spoken.take))
            key = self.opened.speaks.key(taken, self.opened.settings)
            facts = [taken.text, taken.seed, spoken.report.takes, finish.gain_db, finish.speed, finish.pitch]
            file_key = hashlib.sha256(json.dumps([key, *facts]).encode()).hexdigest()
            self.saved.save(index + 1, file_key, finish_line(spoken, finish), self.options.again)

    def check_lost(self) -> None:
        if not self.lost:
            return
        numbers = ", ".join(str(index + 1) for index in sorted(self.lost)[:MOST_NAMED])
        more = f" and {len(self.lost) - MOST_NAMED} more" if len(self.lost) > MOST_NAMED else ""
        why = self.lost[min(self.lost)]
        lines = "line" if len(self.lost) == 1 else "lines"
        raise ValueError(
            f"{lines} {numbers}{more} could not be spoken ({why}): run the same command to retry; the others are saved"
        )


def outputs(options: argparse.Namespace) -> tuple[Path, Path, Path]:
    track, srt, vtt = (options.out / f"{options.file.stem}.{kind}" for kind in (options.format, "srt", "vtt"))
    return track, srt, vtt


def speak_into(
    saved: SavedLines,
    opened: Opened,
    read: tuple[Script, Sequence[Line]],
    options: argparse.Namespace,
    console: Console,
) -> Job:
    """Speak the lines that are not saved, and report them; ValueError for one that cannot be spoken."""
    script, lines = read[0], [replace(line, instruct=line.instruct or options.instruct) for line in read[1]]
    if found := opened.cast.describe_found():
        console.note(found)
    if options.words is not None:
        opened.speaks.check_words()
    for line in lines:
        opened.speaks.check(line, opened.settings)
    job = Job(opened, script, lines, saved, options)
    if replaced := ", ".join(path.name for path in outputs(options) if path.exists()):
        console.note(f"replacing what an earlier run wrote into {options.out}: {replaced}")
    job.write_manifest(complete=False)  # a folder that cannot be written is found now
    started = time.perf_counter()
    speak_all(job, console)
    tell(job, time.perf_counter() - started, console)
    return job


def speak_all(job: Job, console: Console) -> None:
    """Speak or reuse all lines and save each when it ends. Raise ValueError that names failed lines."""
    from ...morph.batch.speech import OutOfService

    go_on = "the same command goes on"
    if job.options.again:
        go_on = "the same command without --again goes on; it keeps what earlier runs spoke of the rest"
    try:
        with console.progress("lines") as show:
            for begin in range(0, len(job.lines), TOGETHER):
                speak_group(job, range(begin, min(begin + TOGETHER, len(job.lines))), show)
                job.write_manifest(complete=False)
    except KeyboardInterrupt:
        console.note(f"interrupted with {len(job.ended)} of {len(job.lines)} lines: {go_on}")
        raise
    except OutOfService as error:
        raise ValueError(f"{error}; {go_on}") from error
    job.check_lost()


def speak_group(job: Job, group: range, show: OnFrame) -> None:
    from ...morph.kept.once import Listener, Once, speak_lines

    check = job.opened.check
    once = Once(job.saved.cache, check, again=job.options.again)
    listener = Listener(
        lambda done, expected: show(group.start + len(group) * done // expected, len(job.lines)),
        on_line=lambda place, spoken: job.add(group[place], spoken, is_checked=check is None),
    )
    try:
        spoken = speak_lines(
            job.opened.speaks, [job.lines[index] for index in group], job.opened.settings, once, listener
        )
    except Exception:
        if not job.lost.keys() >= set(group):  # no line of the group could be spoken
            raise
        return
    if check is not None:
        for index, one in zip(group, spoken, strict=True):
            job.add(index, one)


def tell(job: Job, elapsed: float, console: Console) -> None:
    from ...morph.speech.takes import WRONG

    lines = dict(sorted(job.saved.lines.items()))  # they ended in another order
    new = [one for one in lines.values() if not one.report.from_before]
    if len(new) < len(lines):
        console.note(f"{len(lines) - len(new)} of {len(lines)} lines are spoken already")
    if new:
        console.note(job.opened.speaks.describe(new, job.opened.settings, elapsed))
    wrong = [number for number, one in lines.items() if one.report.ended in WRONG]
    if len(wrong) > sum(one.report.ended in WRONG for one in new):
        numbers = ", ".join(map(str, wrong))
        console.note(f"lines that went wrong, earlier ones included: {numbers}; try [take 2] before them")
