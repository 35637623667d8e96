"""``dub``: speak captions into a track, each at its time.

Lines are saved as they were spoken: with other times or limits nothing is spoken again.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ...morph.text.files import read_text_file
from ..scripts.job import outputs, speak_into
from ..scripts.saved_lines import SavedLines
from ..terminal import arguments
from ..terminal.config import CheckpointConfig
from ..terminal.console import Console
from ..terminal.engine import read_lists
from ..terminal.parser import examples
from . import script

if TYPE_CHECKING:
    from ...morph.voice.cast import Cast

FILES = (".srt", ".vtt")
EPILOG = examples("film.srt --speaker michael", "film.srt --cast ANNA=heart --max-speed 1.4 --overrun 0.3")
HIGHEST_SPEED = 2.0  # that of the engine, here because it is checked before there is one


def add_arguments(parser: argparse.ArgumentParser) -> None:
    captions = arguments.ending_in(FILES, arguments.existing_file, "give captions")
    parser.add_argument("file", type=captions, help="an SRT or WebVTT file; 'NAME: text' says who speaks")
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
    over = "start every caption at its time, over one that is too long; default: when that one has ended"
    arguments.add_switch(parser, "--speak-over", over)
    aloud = "read [door slams], (laughs) and what is between notes aloud; default: they are left out"
    arguments.add_switch(parser, "--read-sounds", aloud)
    script.add_shared(parser)


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    script.check(parser, options)
    options.trim_ends = True  # a caption starts when its speech does


def run(options: argparse.Namespace, console: Console) -> None:
    from ...morph.text.scripts.captions import read_captions
    from ...morph.text.scripts.script import Script
    from ..scripts.opened import opened

    text, lists = read_text_file(options.file), read_lists(options)
    read_captions(text)  # faults are found before a model is loaded
    names = partial(check_names, text, options)
    with (
        SavedLines.open(options.out, options.format, console) as saved,
        opened(options, console, names) as ready,
    ):
        from ...morph.script.dub import DubRequest, FitLimits, assemble_dub, read_request

        limits = FitLimits(options.max_speed, options.overrun, options.speak_over)
        said = (options.language, options.seed, limits, options.read_sounds, lists)
        request = DubRequest(text, ready.cast, *said)
        dubbed, silent, lines = read_request(ready.speaks, request, ready.settings)
        # Speed, pitch and level are set when lines are fitted.
        plain = (replace(one.line, speed=None, pitch=None, gain_db=None) for one in dubbed)
        job = speak_into(saved, ready, (Script(tuple(plain)), lines), options, console)
        dub = assemble_dub(dubbed, silent, [job.read(index) for index in range(len(lines))], limits)
        console.note(dub.summary)
        with script.open_track(outputs(options)[0], dub.sample_rate) as file:
            file.add(dub.track)
        words = [job.words(one.spoken, one.start) for one in dub.placed] if options.words else []
        script.finish(job, dub.cues, words, console)


def check_names(text: str, options: argparse.Namespace, cast: Cast, config: CheckpointConfig) -> None:
    from ...morph.text.scripts.captions import read_captions, read_dub

    read_dub(read_captions(text), list(cast), config.languages, options.read_sounds)
