"""``bench``: the speed of a checkpoint on this device, as a short table."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

from ..terminal import arguments
from ..terminal.console import Console
from ..terminal.engine import load_synthesizer, make_settings, read_reference
from ..terminal.parser import examples
from .speed import TEXT, as_json, make_line, measure, memory, quietly, table

EPILOG = examples("--groups 5,15", "--repeats 5 --json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", nargs="?", default=TEXT, help="default: a sentence of 100 characters")
    parser.add_argument("--groups", default="1, 3, 5, 7, 15", help="the SEQ_GROUPS to measure")
    parser.add_argument(
        "--repeats",
        type=arguments.whole_number(1, 1000),
        default=3,
        help="how many runs the medians are of",
    )
    arguments.add_switch(parser, "--json", "print JSON, for other programs")
    arguments.add_voice(parser)
    arguments.add_settings(parser, seq_groups=False)
    arguments.add_model(parser)


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    arguments.check_line(parser, options)
    if options.decoding != "crossbar":
        parser.error("bench compares settings of the crossbar: leave --decoding out")


def run(options: argparse.Namespace, console: Console) -> None:
    """Measure; the table goes to stdout."""
    from ...morph.options import parse_groups

    groups, recording = parse_groups(options.groups), read_reference(options)
    synthesizer = load_synthesizer(options, console)
    model = synthesizer.model
    line = make_line(model, options, recording, options.seed)
    settings = make_settings(model, options, retries=0)
    speeds = []
    with quietly(), console.progress("settings") as show:
        for count in groups:
            speeds.append(measure(synthesizer, line, replace(settings, seq_groups=count), options.repeats))
            if show is not None:
                show(len(speeds), len(groups))
    used = memory(str(model.device))
    if options.json:
        console.result(json.dumps({"speed": [as_json(one) for one in speeds], "memory": used}, indent=2))
        return
    console.result(table(speeds))
    console.note(synthesizer.engine.describe(model, synthesizer.engine.choose(model)))
    console.note(f"{model.summary()}; most memory: {', '.join(f'{k} {v}' for k, v in used.items())}")
