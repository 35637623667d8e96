"""``script``: a script, or a list of lines, to a file per line, a track and subtitles.

An interrupted run goes on where it stopped, and an edited script speaks only what is new.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import arguments
from .cast import Cast, make_cast, part
from .clone import read_words
from .console import Console
from .engine import (
    facts_of_model,
    find_checkpoint,
    folders_of,
    load_at,
    make_settings,
    read_reference,
)
from .saved_lines import Plan, SavedLines, make_key
from .sound import to_s16, write_whole

if TYPE_CHECKING:
    import numpy as np

    from ...morph.options import GenerateOptions
    from ...morph.render.lines import Line, Spoken
    from ...morph.render.progress import OnFrame
    from ...morph.synthesizer import Synthesizer
    from ...morph.text.script import Script, ScriptLine
    from ...morph.text.subtitles import Caption

JSON_LINES = (".jsonl", ".ndjson")
TRACKS = ("wav", "flac", "mp3", "opus", "ogg")
PORTION_S = 1  # of sound written at once
ON_GPU = 4  # batches that are saved together: rows of lines that ended are used again at once


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``script``."""
    parser.add_argument(
        "file",
        type=arguments.existing_file,
        help='\'NAME: text\' lines, or .jsonl with objects such as {"text": "Hello.", "voice": "heart"}',
    )
    parser.add_argument(
        "--gap", type=arguments.number(0, 60), default=0.3, help="seconds between lines, default: 0.3"
    )
    parser.add_argument(
        "--sentence-subtitles", action="store_true", help="a subtitle for each sentence instead of each line"
    )
    add_shared(parser)


def add_shared(parser: argparse.ArgumentParser) -> None:
    """Add the options that ``dub`` has too."""
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="default: the file's name without its ending"
    )
    parser.add_argument(
        "--cast",
        type=part,
        action="append",
        default=[],
        metavar="NAME=VOICE",
        help="who speaks: a saved voice, its file, or a speaker; other names are those themselves. May be repeated",
    )
    parser.add_argument(
        "--format",
        choices=TRACKS,
        default="wav",
        help="of the track; new lines are wav for wav, otherwise flac",
    )
    parser.add_argument(
        "--batch-size",
        type=arguments.whole_number(1, arguments.MOST_BATCH),
        default=8,
        help="lines spoken at once, default: 8",
    )
    parser.add_argument(
        "--again", action="store_true", help="speak all lines again, also those already spoken"
    )
    arguments.add_voice(parser)
    arguments.add_settings(parser)
    arguments.add_model(parser)


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with an error for options that do not fit together."""
    arguments.check_voice(parser, options)
    if options.out is None:
        options.out = Path(options.file.stem)


@dataclass(frozen=True)
class Job:
    """A script that is ready to be spoken: parallel lists of lines and of their places on the disk."""

    synthesizer: Synthesizer
    settings: GenerateOptions
    script: Script
    lines: list[Line]
    plans: list[Plan]
    saved: SavedLines
    options: argparse.Namespace

    def read(self, plan: Plan) -> Spoken:
        """Return a line that is spoken, under its name in the script."""
        line = self.saved.read(plan.key, self.synthesizer.model.sample_rate)
        return replace(line, report=replace(line.report, name=plan.name))

    def write_manifest(self, complete: bool) -> None:
        """Write what is spoken so far."""
        track = {"track": f"{self.options.file.stem}.{self.options.format}"} if complete else {}
        self.saved.write_manifest(self.options.file.name, self.plans, {"complete": complete, **track})


def run(options: argparse.Namespace, console: Console) -> int:
    """Speak what is not spoken yet, then write the track; the paths of track and subtitles go to stdout."""
    text, recording = read_words(options.file), read_reference(options)
    check_file(options.file, text)
    saved = SavedLines.open(options.out, ".wav" if options.format == "wav" else ".flac")
    path = find_checkpoint(options, console)
    synthesizer = load_at(path, options)
    cast = make_cast(synthesizer.model, folders_of(options), options, recording)
    script, lines = read_lines(synthesizer, text, cast, options)
    settings = make_settings(synthesizer.model, options, batch_size=options.batch_size)
    plans = make_plans(script, lines, facts_of_model(synthesizer, path, settings))
    if options.again:
        saved = replace(saved, entries={})
    saved.place(plans)
    job = Job(synthesizer, settings, script, lines, plans, saved, options)
    job.write_manifest(complete=False)  # a folder that cannot be written is found now
    started = time.perf_counter()
    new = speak_missing(job, console)
    elapsed = time.perf_counter() - started
    paths = write_track(job)
    job.write_manifest(complete=True)
    tell(job, new, elapsed, console)
    for written in paths:
        console.result(written.absolute())
    return 0


def check_file(file: Path, text: str) -> None:
    """Raise ValueError for a file that cannot be read whatever the cast is, before a model is loaded."""
    from ...morph.text.script import check_script
    from .line_list import parse_lines

    (parse_lines if file.suffix.lower() in JSON_LINES else check_script)(text)


def read_lines(
    synthesizer: Synthesizer, text: str, cast: Cast, options: argparse.Namespace
) -> tuple[Script, list[Line]]:
    """Return the script and its lines; ValueError for anything that cannot be spoken."""
    from ...morph.render.dialogue import ScriptRequest, lines_of, read_script
    from ...morph.render.lines import check_line
    from ...morph.render.retime import check_retiming
    from .line_list import parse_lines

    if not cast:
        raise ValueError("nobody can speak: say who with --cast NAME=VOICE, --voice or --reference")
    request = ScriptRequest(text, cast, options.language, options.seed, options.gap)
    if options.file.suffix.lower() in JSON_LINES:
        listed = parse_lines(text)
        named = {name: cast.find(voice) for name, voice in listed.voices.items()}
        script, lines = listed.script, lines_of(listed.script, replace(request, cast=named))
    else:
        script, lines = read_script(synthesizer, request)
    check_retiming(script.lines)
    lines = [replace(line, instruct=line.instruct or options.instruct) for line in lines]
    for line in lines:
        check_line(synthesizer.model, line)
    return script, lines


def make_plans(script: Script, lines: Sequence[Line], about: dict[str, Any]) -> list[Plan]:
    """Return each line's place and key; ``about`` is what decides the sound of all of them."""
    return [
        Plan(number, line.name, make_key(about | facts_of_line(line) | facts_of_finish(spoken)))
        for number, (line, spoken) in enumerate(zip(lines, script.lines, strict=True), start=1)
    ]


def facts_of_line(line: Line) -> dict[str, Any]:
    """Return what decides the sound of a line beside the model and the settings."""
    from ...morph.voice.file import voice_digest

    facts = {key: getattr(line, key) for key in ("text", "language", "seed", "instruct")}
    return facts | {"voice": voice_digest(line.voice)}


def facts_of_finish(line: ScriptLine) -> dict[str, Any]:
    """Return what is done to a line after it was spoken; what no line had before is only there if it is asked for."""
    later = {"speed": line.speed, "pitch": line.pitch}
    return {"gain_db": line.gain_db} | {key: value for key, value in later.items() if value is not None}


def speak_missing(job: Job, console: Console) -> list[Spoken]:
    """Speak the lines that are not there, and save them a few batches at a time; return them without their sound."""
    from ...morph.render.dialogue import finish_line
    from ...morph.render.lines import render_lines

    first = {one.key: index for index, one in reversed(list(enumerate(job.plans)))}
    missing = sorted(index for key, index in first.items() if not job.saved.has(key))
    size = job.settings.batch_size * (ON_GPU if job.synthesizer.model.device.type == "cuda" else 1)
    spoken: list[Spoken] = []
    if len(missing) < len(job.plans):
        console.note(f"{len(job.plans) - len(missing)} of {len(job.plans)} lines are spoken already")
    try:
        with console.progress("lines") as show:
            for group in groups(missing, size):
                lines = [job.lines[index] for index in group]
                on_frame = None if show is None else in_lines(show, len(spoken), len(group), len(missing))
                made = render_lines(job.synthesizer, lines, job.settings, on_frame)
                for index, one in zip(group, made, strict=True):
                    one = finish_line(one, job.script.lines[index])
                    job.saved.add(job.plans[index], one)
                    spoken.append(without_sound(one))
                job.write_manifest(complete=False)
    except KeyboardInterrupt:
        console.note(f"interrupted with {len(spoken)} of {len(missing)} lines: the same command goes on")
        raise
    return spoken


def in_lines(show: Callable[[int, int], None], before: int, group: int, count: int) -> OnFrame:
    """Return a callback for the frames of a group of lines that shows lines, of ``count``, ``before`` of them done."""

    def on_frame(done: int, expected: int) -> None:
        show(before + group * done // expected, count)

    return on_frame


def groups(indices: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Yield the indices, at most ``size`` at a time."""
    for begin in range(0, len(indices), size):
        yield indices[begin : begin + size]


def without_sound(spoken: Spoken) -> Spoken:
    """Return a line without its samples, for reports."""
    return replace(spoken, waveform=spoken.waveform[:0])


def write_track(job: Job) -> list[Path]:
    """Write the track from the lines' files, and its subtitles; return their paths."""
    from ...morph.text.subtitles import to_srt, to_vtt

    kinds = (job.options.format, "srt", "vtt")
    track, srt, vtt = (job.options.out / f"{job.options.file.stem}.{kind}" for kind in kinds)
    captions = write_samples(job, track)
    write_whole(srt, to_srt(captions).encode())
    write_whole(vtt, to_vtt(captions).encode())
    return [track, srt, vtt]


def write_samples(job: Job, path: Path) -> list[Caption]:
    """Write lines and silences into a sound file, one line in memory at a time; return the captions."""
    from ...morph.render.dialogue import spacing_of
    from ...postprocess.join import silences

    rate = job.synthesizer.model.sample_rate
    lead, gaps, tail = silences(spacing_of(job.script, job.options.gap), len(job.lines) - 1, rate)
    with open_track(path, rate, job.options.sentence_subtitles) as track:
        for one, silence in zip(job.plans, [lead, *gaps], strict=True):
            track.add_silence(silence)
            track.add(job.read(one))
        track.add_silence(tail)
    return track.captions


@contextlib.contextmanager
def open_track(path: Path, rate: int, sentences: bool = False) -> Iterator[Track]:
    """Yield a track that becomes the file when the ``with`` ends; ValueError if it cannot be written."""
    import soundfile

    kind, subtype = arguments.FORMATS[path.suffix]
    unfinished = arguments.unfinished(path)
    try:
        with soundfile.SoundFile(unfinished, "w", rate, 1, subtype, format=kind) as file:
            yield Track(file.write, rate, kind != "OGG" and subtype == "PCM_16", sentences)
        unfinished.replace(path)
    except (OSError, soundfile.SoundFileError) as error:
        raise ValueError(f"{path} cannot be written ({error}): choose another folder with --out") from error
    finally:
        unfinished.unlink(missing_ok=True)


@dataclass
class Track:
    """A sound file that grows.

    Args:
        write: adds samples to it.
        rate: of it, in Hz.
        whole: its samples are whole numbers of 16 bits.
        sentences: whether each sentence has a caption, rather than each line.
    """

    write: Callable[[np.ndarray], None]
    rate: int
    whole: bool
    sentences: bool = False
    samples: int = 0
    captions: list[Caption] = field(default_factory=list)

    def add(self, spoken: Spoken) -> None:
        """Add a line, and its captions."""
        from ...morph.render.dialogue import captions_of

        self.captions += captions_of(self.samples, spoken, self.sentences)
        self.add_samples(spoken.waveform)

    def add_silence(self, samples: int) -> None:
        """Add zeros."""
        import numpy as np

        self.add_samples(np.zeros(samples, dtype=np.float32))

    def add_samples(self, waveform: np.ndarray) -> None:
        """Add samples, float ``[T]``."""
        portion = PORTION_S * self.rate  # libsndfile fails with long arrays in some formats
        for begin in range(0, len(waveform), portion):
            part = waveform[begin : begin + portion]
            self.write(to_s16(part) if self.whole else part)
        self.samples += len(waveform)


def tell(job: Job, new: Sequence[Spoken], elapsed: float, console: Console) -> None:
    """Say how the lines went."""
    from ...morph.render.report import describe
    from ...morph.render.takes import WRONG

    if new:
        console.note(describe(job.synthesizer.model, new, job.settings, elapsed))
    wrong = [one for one in job.plans if job.saved.report(one.key).ended in WRONG]
    if len(wrong) > sum(one.report.ended in WRONG for one in new):
        numbers = ", ".join(str(one.number) for one in wrong)
        console.note(f"lines that went wrong, earlier ones included: {numbers}; try [take 2] before them")
