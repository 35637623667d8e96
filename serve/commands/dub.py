"""``dub``: captions with times to a track, in which each is spoken when its caption says.

Lines are saved as they were spoken: with other times or limits nothing is spoken again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..scripts.cast import make_cast
from ..scripts.makers import LocalMaker
from ..scripts.saved_lines import SavedLines
from ..terminal import arguments
from ..terminal.config import read_config
from ..terminal.console import Console
from ..terminal.engine import find_checkpoint, load_at, make_settings, read_reference
from ..terminal.parser import examples
from ..terminal.sound import write_whole
from . import script
from .clone import read_words

if TYPE_CHECKING:
    import numpy as np

    from ...morph.script.dub import Dub, FitLimits
    from ...morph.speech.lines import Line
    from ...morph.synthesizer import Synthesizer
    from ...morph.text.scripts.captions import DubLine, TimedText
    from ...morph.voice.cast import Cast

FILES = (".srt", ".vtt")
EPILOG = examples("film.srt --speaker michael", "film.srt --cast ANNA=heart --max-speed 1.4 --overrun 0.3")
HIGHEST_SPEED = 2.0  # that of the engine, here because it is checked before there is one


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``dub``."""
    parser.add_argument("file", type=caption_file, help="an SRT or WebVTT file; 'NAME: text' says who speaks")
    parser.add_argument(
        "--max-speed",
        type=arguments.number(1, HIGHEST_SPEED),
        default=1.25,
        help="the highest speed of speech that is too long for its caption",
    )
    parser.add_argument(
        "--overrun",
        type=arguments.number(0, 60),
        default=0.5,
        help="seconds that speech may go on behind its caption, before the next one",
    )
    parser.add_argument(
        "--speak-over",
        action="store_true",
        help="start every caption at its time, over one that is too long; default: when that one has ended",
    )
    parser.add_argument(
        "--read-sounds",
        action="store_true",
        help="read [door slams], (laughs) and what is between notes aloud; default: they are left out",
    )
    script.add_shared(parser)


def caption_file(word: str) -> Path:
    """Read the path of a file of captions, for argparse."""
    path = arguments.existing_file(word)
    if path.suffix.lower() not in FILES:
        raise argparse.ArgumentTypeError(f"{word} does not end in {' or '.join(FILES)}: give captions")
    return path


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with an error for options that do not fit together."""
    script.check(parser, options)
    options.trim_ends = True  # a caption starts when its speech does


def run(options: argparse.Namespace, console: Console) -> int:
    """Speak what is not spoken yet, fit it, and write the track; the paths go to stdout."""
    from ...morph.text.scripts.captions import read_captions

    text, recording = read_words(options.file), read_reference(options)
    read_captions(text)  # faults are found before a model is loaded
    with SavedLines.open(options.out, options.format) as saved:
        return dub_into(saved, text, recording, options, console)


def dub_into(
    saved: SavedLines,
    text: str,
    recording: tuple[np.ndarray, int] | None,
    options: argparse.Namespace,
    console: Console,
) -> int:
    """Speak the captions that are not saved, and write the track; see ``run``."""
    from ...morph.script.dub import assemble_dub
    from ...morph.text.scripts.captions import read_captions, read_dub

    path = find_checkpoint(options, console)
    if (config := read_config(path)) is not None:
        names = list(make_cast(config.speakers, options, recording, script.not_loaded))
        read_dub(read_captions(text), names, config.languages, options.read_sounds)
    synthesizer = load_at(path, options)
    model = synthesizer.model
    cast = make_cast(model.speakers, options, recording, lambda: model)
    dubbed, silent, lines = read_lines(synthesizer, text, cast, options)
    settings = make_settings(model, options, batch_size=options.batch_size)
    job = make_job(LocalMaker(synthesizer, path, settings), dubbed, lines, saved, options)
    started = time.perf_counter()
    new = script.speak_missing(job, console)
    elapsed = time.perf_counter() - started
    dub = assemble_dub(dubbed, silent, [job.read(plan) for plan in job.plans], make_limits(options))
    paths = write_dub(dub, options)
    job.write_manifest(complete=True)
    script.tell(job, new, elapsed, console)
    console.note(dub.summary)
    for written in paths:
        console.result(written.absolute())
    return 0


def make_limits(options: argparse.Namespace) -> FitLimits:
    """Return how speech is fitted."""
    from ...morph.script.dub import FitLimits

    return FitLimits(options.max_speed, options.overrun, options.speak_over)


def read_lines(
    synthesizer: Synthesizer, text: str, cast: Cast, options: argparse.Namespace
) -> tuple[list[DubLine], list[TimedText], list[Line]]:
    """Return what ``read_request`` does; ValueError for anything that cannot be spoken."""
    from ...morph.script.dub import DubRequest, read_request
    from ...morph.speech.lines import check_line

    limits = make_limits(options)
    request = DubRequest(text, cast, options.language, options.seed, limits, options.read_sounds)
    dubbed, silent, lines = read_request(synthesizer, request)
    lines = [replace(line, instruct=line.instruct or options.instruct) for line in lines]
    for line in lines:
        check_line(synthesizer.model, line)
    return dubbed, silent, lines


def make_job(
    maker: LocalMaker,
    dubbed: Sequence[DubLine],
    lines: list[Line],
    saved: SavedLines,
    options: argparse.Namespace,
) -> script.Job:
    """Return the job of speaking the lines without speed, pitch and level: these are set when they are fitted."""
    from ...morph.text.scripts.script import Script

    plain = Script(tuple(replace(one.line, speed=None, pitch=None, gain_db=None) for one in dubbed))
    plans = script.make_plans(plain, lines, maker.facts())
    saved.place(plans)
    job = script.Job(maker, plain, lines, plans, saved, options)
    job.write_manifest(complete=False)  # a folder that cannot be written is found now
    return job


def write_dub(dub: Dub, options: argparse.Namespace) -> list[Path]:
    """Write the track, and subtitles at the times at which they are heard; return their paths."""
    from ...morph.text.scripts.subtitles import srt_to_vtt

    track, srt, vtt = script.outputs(options)
    with script.open_track(track, dub.sample_rate) as file:
        file.add_samples(dub.track)
    write_whole(srt, dub.srt.encode())
    write_whole(vtt, srt_to_vtt(dub.srt).encode())
    return [track, srt, vtt]
