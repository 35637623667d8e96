"""The lines of a script that are not saved yet: speak them, and save each when it ends."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..terminal.console import Console
from .saved_lines import Plan, SavedLines, make_key

if TYPE_CHECKING:
    from ...morph.speech.lines import Line, Spoken
    from ...morph.speech.progress import OnFrame
    from ...morph.text.scripts.script import Script, ScriptLine
    from ...morph.words.captions import LineWords
    from .opened import Opened

MOST_NAMED = 10  # lines in an error
TOGETHER = 512  # lines that are queued together: their sound is in memory until all of them have ended


@dataclass(frozen=True)
class Job:
    opened: Opened
    script: Script
    lines: Sequence[Line]
    plans: Sequence[Plan]
    saved: SavedLines
    options: argparse.Namespace

    def read(self, plan: Plan) -> Spoken:
        """Return a saved line, under its name in the script."""
        line = self.saved.read(plan.key, self.opened.speaks.rate)
        return replace(line, report=replace(line.report, name=plan.name))

    def words(self, spoken: Spoken, start: int) -> LineWords:
        """Return the times of a line's words in the track, where the line starts at a sample."""
        from ...morph.words.captions import LineWords

        words = LineWords(self.opened.speaks.words(spoken), spoken.report.name)
        return words.at(start / spoken.sample_rate)

    def write_manifest(self, complete: bool) -> None:
        track = {"track": outputs(self.options)[0].name} if complete else {}
        self.saved.write_manifest(self.options.file.name, self.plans, {"complete": complete, **track})


def outputs(options: argparse.Namespace) -> tuple[Path, Path, Path]:
    track, srt, vtt = (options.out / f"{options.file.stem}.{kind}" for kind in (options.format, "srt", "vtt"))
    return track, srt, vtt


def make_plans(script: Script, lines: Sequence[Line], about: dict[str, Any]) -> list[Plan]:
    """Return each line's place and key; ``about`` is what decides the sound of all of them."""
    from ...morph.voice.file import voice_digest

    def facts(line: Line, finish: ScriptLine) -> dict[str, Any]:
        own = {key: getattr(line, key) for key in ("text", "language", "seed", "instruct")}
        own |= {key: getattr(finish, key) for key in ("gain_db", "speed", "pitch")}
        return about | own | {"voice": voice_digest(line.voice), "read": line.as_read(str(line.text))}

    pairs = zip(lines, script.lines, strict=True)
    return [Plan(number, pair[0].name, make_key(facts(*pair))) for number, pair in enumerate(pairs, start=1)]


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
    job = Job(opened, script, lines, make_plans(script, lines, opened.facts), saved, options)
    if replaced := ", ".join(path.name for path in outputs(options) if path.exists()):
        console.note(f"replacing what an earlier run wrote into {options.out}: {replaced}")
    saved.place(job.plans)
    job.write_manifest(complete=False)  # a folder that cannot be written is found now
    started = time.perf_counter()
    new = speak_missing(job, console)
    tell(job, new, time.perf_counter() - started, console)
    return job


def speak_missing(job: Job, console: Console) -> list[Spoken]:
    """Speak the lines that are not there, and save each when it ends; return them without their sound."""
    from ...morph.batch.speech import OutOfService
    from ...morph.kept.once import Listener

    first = {one.key: index for index, one in reversed(list(enumerate(job.plans)))}
    missing = sorted(index for key, index in first.items() if job.options.again or not job.saved.has(key))
    made = Made(job)
    go_on = "the same command goes on"
    if job.options.again:
        go_on = "the same command without --again goes on; it keeps what earlier runs spoke of the rest"
    if len(missing) < len(job.plans):
        console.note(f"{len(job.plans) - len(missing)} of {len(job.plans)} lines are spoken already")
    try:
        with console.progress("lines") as show:
            for begin in range(0, len(missing), TOGETHER):
                group = missing[begin : begin + TOGETHER]
                on_frame = partial(show_lines, show, range(begin, begin + len(group)), len(missing))
                listener = Listener(on_frame, on_line=partial(made.add, group))
                try:
                    job.opened.speak([job.lines[index] for index in group], listener)
                except Exception:
                    if not made.lost.keys() >= set(group):  # no line of the group could be spoken
                        raise
                job.write_manifest(complete=False)
    except KeyboardInterrupt:
        console.note(f"interrupted with {len(made.spoken)} of {len(missing)} lines: {go_on}")
        raise
    except OutOfService as error:
        raise ValueError(f"{error}; {go_on}") from error
    made.check()
    return [made.spoken[index] for index in sorted(made.spoken)]


@dataclass
class Made:
    """The lines of this run by index, without their sound; and why others failed."""

    job: Job
    spoken: dict[int, Spoken] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)

    def add(self, group: Sequence[int], place: int, spoken: Spoken) -> None:
        """Save the line at this place of a group, which has ended."""
        from ...morph.script.dialogue import finish_line
        from ...morph.speech.takes import ERROR

        index, job = group[place], self.job
        if spoken.report.ended == ERROR:
            self.lost[index] = spoken.report.error
            return
        finished = finish_line(job.opened.heard(job.lines[index], spoken), job.script.lines[index])
        job.saved.add(job.plans[index], finished)
        self.spoken[index] = replace(finished, waveform=finished.waveform[:0])

    def check(self) -> None:
        if not self.lost:
            return
        numbers = ", ".join(str(self.job.plans[index].number) for index in sorted(self.lost)[:MOST_NAMED])
        more = f" and {len(self.lost) - MOST_NAMED} more" if len(self.lost) > MOST_NAMED else ""
        why = self.lost[min(self.lost)]
        lines = "line" if len(self.lost) == 1 else "lines"
        raise ValueError(
            f"{lines} {numbers}{more} could not be spoken ({why}): run the same command to retry; the others are saved"
        )


def show_lines(show: OnFrame, group: range, count: int, done: int, expected: int) -> None:
    """Show a group's frames as lines, of ``count``; those before it are done."""
    show(group.start + len(group) * done // expected, count)


def tell(job: Job, new: Sequence[Spoken], elapsed: float, console: Console) -> None:
    from ...morph.speech.takes import WRONG

    if new:
        console.note(job.opened.speaks.describe(new, job.opened.settings, elapsed))
    wrong = [one for one in job.plans if job.saved.report(one.key).ended in WRONG]
    if len(wrong) > sum(one.report.ended in WRONG for one in new):
        numbers = ", ".join(str(one.number) for one in wrong)
        console.note(f"lines that went wrong, earlier ones included: {numbers}; try [take 2] before them")
