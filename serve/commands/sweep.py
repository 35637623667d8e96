"""``sweep``: speak one line at several SEQ_GROUPS; print a table, write recordings and a plot if requested."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ...morph.options import parse_groups
from ..terminal import arguments
from ..terminal.console import Console
from ..terminal.engine import load_voice, make_settings, read_lists
from ..terminal.sound import write_sound

if TYPE_CHECKING:
    from ...morph.study.sweep import Sweep

PLOT = "sweep.png"
RECORDINGS = "groups_*.wav"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text")
    parser.add_argument("--groups", default="1, 3, 5, 7, 15")
    parser.add_argument("--out", type=arguments.folder, metavar="FOLDER")
    arguments.add_switch(parser, "--overwrite")
    arguments.add_voice(parser)
    arguments.add_settings(parser, seq_groups=False)
    arguments.add_pronunciation(parser)
    arguments.add_model(parser)


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    arguments.check_line(parser, options)
    if options.out is not None:
        try:
            options.out.mkdir(parents=True, exist_ok=True)
            arguments.writable_file(str(options.out / PLOT))  # before minutes of rendering
            written = (options.out / PLOT, *sorted(options.out.glob(RECORDINGS)))
            arguments.check_new(parser, written, options.overwrite)
        except OSError as error:
            parser.error(f"folder {options.out} cannot be made ({error.strerror}): choose another with --out")
        except argparse.ArgumentTypeError as error:
            parser.error(str(error))


def run(options: argparse.Namespace, console: Console) -> None:
    groups, lists = parse_groups(options.groups), read_lists(options)
    synthesizer, voice = load_voice(options, console)
    from ...morph.speech.lines import Line
    from ...morph.study.sweep import sweep, table

    line = Line(options.text, voice, options.language, options.seed, options.instruct, pronunciation=lists)
    with console.progress() as show:
        result = sweep(synthesizer, line, groups, make_settings(synthesizer.model, options), show)
    if options.out is not None:
        write(result, options.out)
    console.result(table(result))


def write(result: Sweep, folder: Path) -> None:
    from matplotlib.image import imsave

    from ...morph.study.plot import plot_sweep

    for row, spoken in zip(result.rows, result.spoken, strict=True):
        write_sound(folder / f"groups_{row.seq_groups:02d}.wav", spoken.waveform, spoken.sample_rate)
    imsave(folder / PLOT, plot_sweep(result))
