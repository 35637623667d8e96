"""``dub``: speak captions into a track, each at its time.

Lines are saved as they were spoken: with other times or limits nothing is spoken again.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ...morph.options import FitLimits
from ...morph.setting import settings_of
from ...morph.text.files import read_text_file
from ..scripts.job import SavedLines, outputs, speak_into
from ..terminal import arguments
from ..terminal.console import Console
from ..terminal.engine import CheckpointConfig, read_lists
from . import script

if TYPE_CHECKING:
    from ...morph.voice.cast import Cast

FILES = (".srt", ".vtt")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    captions = arguments.ending_in(FILES, arguments.existing_file, "give captions")
    parser.add_argument("file", type=captions)
    for one in settings_of(FitLimits).values():
        arguments.add_setting(parser, one)
    arguments.add_switch(parser, "--read-sounds")
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
        from ...morph.script.dub import DubRequest, assemble_dub, read_request

        limits = FitLimits(options.max_speed, options.overrun, options.speak_over)
        request = DubRequest(
            text, ready.cast, options.language, options.seed, limits, options.read_sounds, lists
        )
        dubbed, silent, lines = read_request(ready.speaks, request, ready.settings)
        # Speed, pitch and level are set when lines are fitted.
        plain = (replace(one.line, speed=None, pitch=None, gain_db=None) for one in dubbed)
        job = speak_into(saved, ready, (Script(tuple(plain)), lines), options, console)
        dub = assemble_dub(dubbed, silent, [saved.read(index + 1) for index in range(len(lines))], limits)
        console.note(dub.summary)
        with script.open_track(outputs(options)[0], dub.sample_rate) as file:
            file.add(dub.track)
        words = [job.words(one.spoken, one.start) for one in dub.placed] if options.words else []
        script.finish(job, dub.cues, words, console)


def check_names(text: str, options: argparse.Namespace, cast: Cast, config: CheckpointConfig) -> None:
    from ...morph.text.scripts.captions import read_captions, read_dub

    read_dub(read_captions(text), list(cast), config.languages, options.read_sounds)
