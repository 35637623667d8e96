"""The lines of a script: reuse those of earlier runs, speak the others, and save each when it ends."""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..terminal.console import Console
from .saved_lines import SavedLines

if TYPE_CHECKING:
    from ...morph.speech.lines import Line, Spoken
    from ...morph.speech.progress import OnFrame
    from ...morph.text.scripts.script import Script
    from ...morph.words.captions import LineWords
    from .opened import Opened

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
        from ...morph.speech.retries import take_seed
        from ...morph.speech.takes import ERROR

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
        partial(show_lines, show, group, len(job.lines)),
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


def show_lines(show: OnFrame, group: range, count: int, done: int, expected: int) -> None:
    """Show a group's frames as lines, of ``count``; those before it are done."""
    show(group.start + len(group) * done // expected, count)


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
