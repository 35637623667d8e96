"""``dub``: speak captions into a track, each at its time.

Lines are saved before they are fitted: other times or limits reuse them.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial

from ...morph.options import FitLimits
from ...morph.setting import settings_of
from ...morph.text.encoding import read_text_file
from ..terminal import arguments
from ..terminal.console import Console
from ..terminal.engine import read_lists
from . import script
from .script import ScriptRun, open_folder, outputs

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
    from ...morph.text.scripts.captions import read_captions, read_dub
    from ..script_backend import open_backend

    text, lists = read_text_file(options.file), read_lists(options)
    read = partial(read_dub, read_captions(text), read_sounds=options.read_sounds)
    with open_folder(options, console) as folder, open_backend(options, console, read) as ready:
        from ...morph.script.dialogue import ScriptRequest
        from ...morph.script.dub import assemble_dub, make_dub_lines

        limits = FitLimits(options.max_speed, options.overrun, options.speak_over)
        request = ScriptRequest(text, ready.cast, options.language, options.seed, lists)
        dubbed, silent = ready.script
        lines = make_dub_lines(ready.speaks, dubbed, request, ready.settings, limits)
        # Fitting sets speed, pitch and level.
        plain = [replace(one.line, speed=None, pitch=None, gain_db=None) for one in dubbed]
        ScriptRun(folder, ready, plain, lines).speak()
        dub = assemble_dub(dubbed, silent, [folder.read(index + 1) for index in range(len(lines))], limits)
        console.note(dub.summary)
        with script.open_track(outputs(options)[0], dub.sample_rate) as write:
            write(dub.track)
        timed = dub.placed if options.words else ()
        words = [script.words_of(ready.speaks, one.spoken, one.start) for one in timed]
        script.finish(folder, dub.cues, words)
