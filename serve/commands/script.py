"""``script``: a script, or a list of lines, to a file per line, a track and subtitles.

An interrupted run goes on where it stopped, and an edited script speaks only what is new.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...morph.runtime.whole_file import name_beside
from ..scripts.cast import find_name, make_cast, part, server_cast
from ..scripts.makers import PUBLISHED_LANGUAGES, LocalMaker, Maker, ServerMaker, ask
from ..scripts.saved_lines import MANIFEST, NEW_LINES, Plan, SavedLines, make_key
from ..terminal import arguments
from ..terminal.config import CheckpointConfig, read_config
from ..terminal.console import Console
from ..terminal.engine import (
    find_checkpoint,
    folders_of,
    load_at,
    make_sampling,
    make_settings,
    read_reference,
)
from ..terminal.parser import examples
from ..terminal.sound import to_s16, write_whole
from .clone import read_words

if TYPE_CHECKING:
    import numpy as np

    from ...morph.model.model import Model
    from ...morph.speech.lines import Line, Spoken
    from ...morph.speech.progress import OnFrame
    from ...morph.synthesizer import Synthesizer
    from ...morph.text.scripts.script import Script, ScriptLine
    from ...morph.text.scripts.subtitles import Caption
    from ...morph.voice.cast import Cast
    from ..scripts.line_list import LineList

EPILOG = examples(
    "scene.txt --cast ANNA=heart --cast BEN=michael",
    "lines.jsonl --format mp3 --out chapter-1",
    "lines.jsonl --server http://192.168.1.20:8765 --batch-size 32",
)
JSON_LINES = (".jsonl", ".ndjson")
TRACKS = ("wav", "flac", "mp3", "opus", "ogg")
PORTION_S = 1  # of sound written at once
MOST_NAMED = 10  # lines in an error
ROOM = 1 << 20  # bytes: a disk that has less is full


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``script``."""
    parser.add_argument(
        "file",
        type=arguments.existing_file,
        help='\'NAME: text\' lines, or .jsonl with objects such as {"text": "Hello.", "voice": "heart"}',
    )
    parser.add_argument("--gap", type=arguments.number(0, 60), default=0.3, help="seconds between lines")
    parser.add_argument(
        "--server",
        type=arguments.filled,
        metavar="NAME",
        help="let a speech server speak: its name in MORPH_TTS_SERVERS, or http://HOST:PORT; its key is in the "
        "environment (MORPH_TTS_KEY_NAME, MORPH_TTS_KEY_SERVER for an address); --batch-size lines are in flight; "
        "none: the checkpoint on this computer",
    )
    parser.add_argument(
        "--consent",
        action="store_true",
        help="those whose cloned voices are sent to the server have agreed to that",
    )
    parser.add_argument(
        "--sentence-subtitles", action="store_true", help="a subtitle for each sentence instead of each line"
    )
    add_shared(parser)


def add_shared(parser: argparse.ArgumentParser) -> None:
    """Add the options that ``dub`` has too."""
    parser.add_argument(
        "--out",
        type=arguments.folder,
        metavar="FOLDER",
        help="where everything is written; default: the file's name without its ending",
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
        help="lines spoken at once",
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
    written = (*outputs(options), options.out / MANIFEST, options.out / NEW_LINES)
    arguments.check_sources(parser, (options.file, options.reference), written)
    if not (options.out / MANIFEST).exists():  # what is there is not of an earlier run
        for path in filter(Path.exists, outputs(options)):
            parser.error(f"{path} is no earlier run's: choose another folder with --out, or move it away")
    here = ("checkpoint", "reference")
    if given := [name for name in here if getattr(options, name) and getattr(options, "server", None)]:
        parser.error(f"--{given[0]} needs a model on this computer: leave it out with --server")


def outputs(options: argparse.Namespace) -> tuple[Path, Path, Path]:
    """Return the paths of the track, of its SRT and of its WebVTT."""
    track, srt, vtt = (options.out / f"{options.file.stem}.{kind}" for kind in (options.format, "srt", "vtt"))
    return track, srt, vtt


@dataclass(frozen=True)
class Job:
    """A script that is ready to be spoken: parallel lists of lines and of their places on the disk."""

    maker: Maker
    script: Script
    lines: list[Line]
    plans: list[Plan]
    saved: SavedLines
    options: argparse.Namespace

    @property
    def how_to_go_on(self) -> str:
        """What a run that is ended leaves to be done."""
        if self.options.again:
            return "the same command without --again goes on; it keeps what earlier runs spoke of the rest"
        return "the same command goes on"

    def read(self, plan: Plan) -> Spoken:
        """Return a line that is spoken, under its name in the script."""
        line = self.saved.read(plan.key, self.maker.rate)
        return replace(line, report=replace(line.report, name=plan.name))

    def write_manifest(self, complete: bool) -> None:
        """Write what is spoken so far."""
        track = {"track": outputs(self.options)[0].name} if complete else {}
        self.saved.write_manifest(self.options.file.name, self.plans, {"complete": complete, **track})


def run(options: argparse.Namespace, console: Console) -> int:
    """Speak what is not spoken yet, then write the track; the paths of track and subtitles go to stdout."""
    text, recording = read_words(options.file), read_reference(options)
    check_file(options.file, text)
    with SavedLines.open(options.out, options.format) as saved:
        return speak_into(saved, text, recording, options, console)


def speak_into(
    saved: SavedLines,
    text: str,
    recording: tuple[np.ndarray, int] | None,
    options: argparse.Namespace,
    console: Console,
) -> int:
    """Speak the lines that are not saved, and write the track; see ``run``."""
    if options.server:
        maker, script, lines = open_server(text, options)
    else:
        maker, script, lines = open_checkpoint(text, recording, options, console)
    plans = make_plans(script, lines, maker.facts())
    saved.place(plans)
    job = Job(maker, script, lines, plans, saved, options)
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


def open_checkpoint(
    text: str, recording: tuple[np.ndarray, int] | None, options: argparse.Namespace, console: Console
) -> tuple[Maker, Script, list[Line]]:
    """Load the checkpoint; return it with the script and its lines."""
    path = find_checkpoint(options, console)
    if (config := read_config(path)) is not None:
        check_named_lines(text, make_cast(config.speakers, options, recording, not_loaded), config, options)
    synthesizer = load_at(path, options)
    model = synthesizer.model
    script, lines = read_lines(
        synthesizer, text, make_cast(model.speakers, options, recording, lambda: model), options
    )
    settings = make_settings(synthesizer.model, options, batch_size=options.batch_size)
    return LocalMaker(synthesizer, path, settings), script, lines


def open_server(text: str, options: argparse.Namespace) -> tuple[Maker, Script, list[Line]]:
    """Ask the server what it is; return it with the script and its lines, which it can speak."""
    from ...morph.options import GenerateOptions, Sampling

    server = ask(options.server)
    keys = ("seq_groups", "tail", "decoding", "retries", "trim_ends", "batch_size")
    chosen = {key: getattr(options, key) for key in keys}
    settings = GenerateOptions(sampling=make_sampling(Sampling(), options), **chosen)
    cast = server_cast(server, folders_of(options), options)
    script, lines = read_named_lines(text, cast, server.languages or PUBLISHED_LANGUAGES, options)
    maker = ServerMaker(server, settings, options.consent)
    maker.check(lines)
    return maker, script, lines


def not_loaded() -> Model:
    """Stand for the model while only names are needed."""
    raise AssertionError("the checkpoint is not loaded yet")


def check_file(file: Path, text: str) -> None:
    """Raise ValueError for a file that cannot be read whatever the cast is."""
    from ...morph.text.scripts.script import check_script
    from ..scripts.line_list import parse_lines

    if file.suffix.lower() in JSON_LINES:
        parse_lines(text)
    else:
        check_script(text)


def check_named_lines(text: str, cast: Cast, config: CheckpointConfig, options: argparse.Namespace) -> None:
    """Raise ValueError for a name that is nobody, or a language that the checkpoint does not speak."""
    from ...morph.voice.prompt import known_language

    for line in parse_named_lines(text, cast, config.languages, options).script.lines:
        if line.language:
            known_language(line.language, config.languages, f"the checkpoint (line {line.number})")


def read_lines(
    synthesizer: Synthesizer, text: str, cast: Cast, options: argparse.Namespace
) -> tuple[Script, list[Line]]:
    """Return the script and its lines; ValueError for anything that cannot be spoken."""
    from ...morph.speech.lines import check_line

    script, lines = read_named_lines(text, cast, synthesizer.model.languages, options)
    for line in lines:
        check_line(synthesizer.model, line)
    return script, lines


def read_named_lines(
    text: str, cast: Cast, languages: Sequence[str], options: argparse.Namespace
) -> tuple[Script, list[Line]]:
    """Return the script and its lines; ValueError for what cannot be read, or a name that is nobody."""
    from ...morph.script.dialogue import ScriptRequest, lines_of
    from ...morph.script.retime import check_retiming

    listed = parse_named_lines(text, cast, languages, options)
    voices = {name: cast[voice] for name, voice in listed.voices.items()}
    request = ScriptRequest(text, voices, options.language, options.seed, options.gap)
    check_retiming(listed.script.lines)
    lines = [
        replace(line, instruct=line.instruct or options.instruct) for line in lines_of(listed.script, request)
    ]
    return listed.script, lines


def parse_named_lines(
    text: str, cast: Cast, languages: Sequence[str], options: argparse.Namespace
) -> LineList:
    """Return the script, and each of its names as the cast has it; errors as ``read_named_lines``."""
    from ...morph.text.scripts.script import parse_script
    from ..scripts.line_list import LineList, parse_lines

    if options.file.suffix.lower() in JSON_LINES:
        listed = parse_lines(text)
        return replace(listed, voices={name: find_name(cast, voice) for name, voice in listed.voices.items()})
    script = parse_script(text, list(cast), languages)
    return LineList(script, {line.name: line.name for line in script.lines})


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
    """Speak the lines that are not there, and save each when it is made; return them without their sound.

    Raises:
        ValueError: if some could not be spoken, or the server is gone.
    """
    first = {one.key: index for index, one in reversed(list(enumerate(job.plans)))}
    missing = sorted(index for key, index in first.items() if job.options.again or not job.saved.has(key))
    made = Made(job)
    if len(missing) < len(job.plans):
        console.note(f"{len(job.plans) - len(missing)} of {len(job.plans)} lines are spoken already")
    try:
        with console.progress("lines") as show:
            for group in groups(missing, job.maker.together):
                lines = [job.lines[index] for index in group]
                done = len(made.spoken)
                on_frame = None if show is None else in_lines(show, done, len(group), len(missing))
                job.maker.speak(lines, on_frame, partial(made.add, group))
                job.write_manifest(complete=False)
    except KeyboardInterrupt:
        console.note(f"interrupted with {len(made.spoken)} of {len(missing)} lines: {job.how_to_go_on}")
        raise
    except ConnectionError as error:
        raise ValueError(f"{error}; {job.how_to_go_on}") from error
    made.check()
    return [made.spoken[index] for index in sorted(made.spoken)]


@dataclass
class Made:
    """The lines of a job that are made by this run, without their sound, by index; and why others are not."""

    job: Job
    spoken: dict[int, Spoken] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)

    def add(self, group: Sequence[int], place: int, spoken: Spoken) -> None:
        """Save the line at this place of a group."""
        from ...morph.script.dialogue import finish_line
        from ...morph.speech.takes import ERROR

        index = group[place]
        if spoken.report.ended == ERROR:
            self.lost[index] = spoken.report.error
            return
        finished = finish_line(spoken, self.job.script.lines[index])
        self.job.saved.add(self.job.plans[index], finished)
        self.spoken[index] = without_sound(finished)

    def check(self) -> None:
        """Raise ValueError if lines could not be spoken."""
        if not self.lost:
            return
        numbers = ", ".join(str(self.job.plans[index].number) for index in sorted(self.lost)[:MOST_NAMED])
        more = f" and {len(self.lost) - MOST_NAMED} more" if len(self.lost) > MOST_NAMED else ""
        why = self.lost[min(self.lost)]
        lines = "line" if len(self.lost) == 1 else "lines"
        raise ValueError(
            f"{lines} {numbers}{more} could not be spoken ({why}): run the same command to retry; the others are saved"
        )


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
    from ...morph.text.scripts.subtitles import to_srt, to_vtt

    track, srt, vtt = outputs(job.options)
    captions = write_samples(job, track)
    write_whole(srt, to_srt(captions).encode())
    write_whole(vtt, to_vtt(captions).encode())
    return [track, srt, vtt]


def write_samples(job: Job, path: Path) -> list[Caption]:
    """Write lines and silences into a sound file, one line in memory at a time; return the captions."""
    from ...morph.script.dialogue import spacing_of
    from ...postprocess.join import silences

    rate = job.maker.rate
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
    unfinished = name_beside(path)
    try:
        unfinished.touch(exist_ok=False)  # it is new: soundfile would follow a link
        with soundfile.SoundFile(unfinished, "w", rate, 1, subtype, format=kind) as file:
            yield Track(file.write, rate, kind != "OGG" and subtype == "PCM_16", sentences)
        unfinished.replace(path)
    except (OSError, soundfile.SoundFileError) as error:
        # libsndfile calls it a system error.
        reason = "the disk is full" if shutil.disk_usage(path.parent).free < ROOM else str(error)
        raise ValueError(f"{path} cannot be written ({reason}): choose another folder with --out") from error
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
        from ...morph.script.dialogue import captions_of

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
    from ...morph.speech.takes import WRONG

    if new:
        console.note(job.maker.describe(new, elapsed))
    wrong = [one for one in job.plans if job.saved.report(one.key).ended in WRONG]
    if len(wrong) > sum(one.report.ended in WRONG for one in new):
        numbers = ", ".join(str(one.number) for one in wrong)
        console.note(f"lines that went wrong, earlier ones included: {numbers}; try [take 2] before them")
