"""Test a checkpoint on this device, and write a report for an issue.

    python -m lab.check --checkpoint FOLDER

It compares our codes at 15 groups with upstream's, on a GPU the kernels with torch operations, and a stream with the
offline line. The report names the checkpoint's folder, packages and devices, and nothing else of the machine. The exit
code is 1 if a test failed. ``--alignment`` searches the attention head that follows the text instead; the exit code is
1 if there is none.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from qwen3_tts_morph.morph.options import FRAME_RATE, PREDICTED_GROUPS, GenerateOptions
from qwen3_tts_morph.morph.runtime.errors import first_line
from qwen3_tts_morph.morph.setting import Setting
from qwen3_tts_morph.morph.speech.lines import Line, check_line
from qwen3_tts_morph.morph.synthesizer import Engine, Synthesizer
from qwen3_tts_morph.morph.tested import installed
from qwen3_tts_morph.postprocess.ends import is_silent
from qwen3_tts_morph.serve.cli import finish
from qwen3_tts_morph.serve.terminal import arguments
from qwen3_tts_morph.serve.terminal.arguments import Parser
from qwen3_tts_morph.serve.terminal.console import Console
from qwen3_tts_morph.serve.terminal.engine import load_synthesizer, read_reference
from qwen3_tts_morph.serve.terminal.folders import pack_version
from qwen3_tts_morph.serve.terminal.sound import write_atomic

from ..processor import processor_name
from ..streams import render_lines
from . import parity
from .alignment import score_heads
from .parity import CodeComparison, greedy, line_codes, without_tf32
from .speed import TEXT, Speed, as_json, make_line, measure, memory, quietly, table

log = logging.getLogger(__name__)

# A test's outcome, a sentence about it, and its figures.
Found = tuple[str, str, dict[str, Any]]
Test = Callable[[Any, Any, int], Found]

SPEED_GROUPS = (15, 5)
SHOWN_HEADS = 4
PACKAGES = ("torch", "transformers", "qwen-tts", "qwen-tts-hf", "triton", "flash-attn", "numpy", "soundfile")
# Two ways to compute samples differ by rounding: in float32 the difference is 80 dB below them or more. In bf16 the
# difference of upstream's own samples to its float32 ones is only 15 to 18 dB below (docs/log/codec.md).
LEAST_DB = {"float32": 80.0}
LEAST_DB_OTHERWISE = 10.0
FRAMES = 50
PROGRAM = "python -m lab.check"
REPORT = "qwen3-tts-morph-check"
OK, FAILED, NOT_RUN, DIFFERS = "ok", "FAILED", "not run", "differs"


@dataclass(frozen=True)
class Finding:
    """One comparison: its title, its outcome (one of the constants above), a sentence, and its figures."""

    what: str
    outcome: str
    detail: str
    figures: dict[str, Any] = field(default_factory=dict)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        type=arguments.writable_file,
        metavar="FILE",
        help="the report, .md; another with .json lies beside it; default: qwen3-tts-morph-check.md, or with a number",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace files of these names")
    parser.add_argument(
        "--frames",
        type=arguments.reader(Setting(FRAMES, low=2, high=2000)),
        default=FRAMES,
        help="how many frames of 80 ms are compared",
    )
    parser.add_argument(
        "--alignment",
        action="store_true",
        help="test nothing: find the attention head that follows the text, and print its line for morph.json",
    )
    parser.add_argument("--text", default=TEXT, help="what is spoken; default: an English sentence")
    parser.add_argument("--language", default="auto", help="of the text, one of the checkpoint's")
    arguments.add_voice(parser)
    arguments.add_model(parser)


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    arguments.check_line(parser, options)
    if options.alignment:
        return
    if options.out is None:
        options.out = free_report(parser)
    if options.out.suffix != ".md":
        parser.error(f"{options.out} does not end in .md: rename it")
    arguments.check_new(parser, (options.out, options.out.with_suffix(".json")), options.overwrite)


def free_report(parser: argparse.ArgumentParser) -> Path:
    """Return a new report's path, numbered from the second on; end with an error if it cannot be written."""
    numbered = (Path(f"{REPORT}-{number}.md") for number in itertools.count(2))
    every = itertools.chain([Path(f"{REPORT}.md")], numbered)
    free = next(one for one in every if not (one.exists() or one.with_suffix(".json").exists()))
    try:
        return arguments.writable_file(str(free))
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))


def run(options: argparse.Namespace, console: Console) -> int:
    """Test, and write the report; its path goes to stdout."""
    recording = read_reference(options)
    synthesizer = load_synthesizer(options, console)
    line = make_line(synthesizer.model, options, recording, seed=0)
    check_line(synthesizer.model, line)  # first: otherwise every test would fail
    if options.alignment:
        return find_alignment(synthesizer, line, console)
    findings = []
    with quietly(), console.progress("tests") as show:
        for what, test in TESTS.items():
            findings.append(run_test(what, test, synthesizer, line, options.frames))
            show(len(findings), len(TESTS) + 1)
        speeds, found = try_speeds(synthesizer, line, options.frames)
        findings += found
    used = memory(str(synthesizer.model.device))
    report = Report(describe_machine(), describe_checkpoint(synthesizer), findings, speeds, used)
    write_atomic(options.out.absolute(), report.as_markdown().encode())
    write_atomic(options.out.absolute().with_suffix(".json"), report.as_json().encode())
    console.note(report.as_markdown())
    console.result(options.out.absolute())
    return 1 if any(one.outcome == FAILED for one in findings) else 0


def find_alignment(synthesizer: Synthesizer, line: Line, console: Console) -> int:
    """Report the head that follows the text; its line for morph.json goes to stdout."""
    with quietly():
        best, *others = score_heads(synthesizer, line, GenerateOptions())
    for one in (best, *others[: SHOWN_HEADS - 1]):
        console.note(one.describe())
    if not best.is_sure:
        console.note("No head follows the text: words get no times with this checkpoint.")
        return 1
    console.result(json.dumps({"alignment": {"layer": best.layer, "head": best.head}})[1:-1])
    return 0


def run_test(what: str, test: Test, synthesizer: Synthesizer, line: Line, frames: int) -> Finding:
    """Run a test; an exception is a failure, and goes to the log and the report."""
    try:
        return Finding(what, *test(synthesizer, line, frames))
    except Exception as error:
        log.exception("%s", what)
        return Finding(what, FAILED, first_line(error), {})


def compare_codes(synthesizer: Synthesizer, line: Line, frames: int) -> Found:
    """Compare the eager engine at 15 groups with upstream, both over the loaded weights: they are equal."""
    found = parity.compare_with_upstream(synthesizer, line, frames)
    return OK if found.same else FAILED, _equal(found), asdict(found)


def compare_graph(synthesizer: Synthesizer, line: Line, frames: int) -> Found:
    """Compare the graph engine with the eager one: it rounds differently, so codes may diverge after some frames."""
    model = synthesizer.model
    options = GenerateOptions(PREDICTED_GROUPS, greedy(model, frames))
    if synthesizer.engine.choose(model).engine != "graph":
        return NOT_RUN, "the eager engine is in use", {}
    graph = Engine("graph")
    try:
        found = parity.compare_engines(model, line, options, (graph, Engine("eager")))
    finally:
        graph.free()
    return OK if found.same else DIFFERS, _equal(found), asdict(found)


def compare_kernels(synthesizer: Synthesizer, line: Line, frames: int) -> Found:
    """Compare the Triton kernels with the torch operations that they replace; it fails if they cannot run."""
    model = synthesizer.model
    if model.device.type != "cuda":
        return NOT_RUN, "needs a GPU", {}
    options = GenerateOptions(sampling=greedy(model, frames))
    kernels, plain = Engine("graph"), Engine("graph", kernels=False)
    try:
        found = parity.compare_engines(model, line, options, (kernels, plain))
        fallbacks = [one.describe() for one in kernels.fallbacks(model, kernels.choose(model))]
    finally:
        kernels.free()
        plain.free()
    if fallbacks:
        return FAILED, "; ".join(fallbacks), asdict(found) | {"fallbacks": fallbacks}
    return OK if found.same else DIFFERS, _equal(found), asdict(found)


def compare_codec(synthesizer: Synthesizer, line: Line, frames: int) -> Found:
    """Compare the waveforms of the codec's kernels with upstream's codec, on the same codes."""
    model = synthesizer.model
    if model.device.type != "cuda":
        return NOT_RUN, "needs a GPU", {}
    engine, options = Engine("graph"), GenerateOptions(sampling=greedy(model, frames))
    try:
        with without_tf32():
            decibels = parity.compare_codecs(model, line_codes(model, line, options, engine), engine)
        fallbacks = [one.describe() for one in engine.fallbacks(model, engine.choose(model))]
    finally:
        engine.free()
    good, detail = _judge(synthesizer, decibels)
    figures = {"decibels": _finite(decibels), "fallbacks": fallbacks}
    return OK if good and not fallbacks else FAILED, "; ".join([detail, *fallbacks]), figures


def compare_streams(synthesizer: Synthesizer, line: Line, frames: int) -> Found:
    """Compare a stream with the complete line."""
    try:
        with without_tf32():
            found = parity.compare_stream(synthesizer, line, _settings(synthesizer, frames, 5))
    finally:
        synthesizer.free()  # graphs captured without TF32 are slower
    good, detail = _judge(synthesizer, found.decibels)
    if not found.same_length:
        detail = "they differ in length"
    good = good and found.joined
    figures = {"same_length": found.same_length, "joined": found.joined, "decibels": _finite(found.decibels)}
    return OK if good else FAILED, detail, figures


def check_sound(synthesizer: Synthesizer, line: Line, frames: int) -> Found:
    """Check that a line has sound: the comparisons above hold for silence, too."""
    [spoken] = render_lines(synthesizer, [line], _settings(synthesizer, frames, PREDICTED_GROUPS))
    silent = is_silent(spoken.waveform, spoken.sample_rate)
    figures = {"seconds": round(spoken.report.seconds, 2), "ended": spoken.report.ended}
    return FAILED if silent else OK, f"{'silence' if silent else 'sound'}, {figures['seconds']} s", figures


def _judge(synthesizer: Synthesizer, decibels: float) -> tuple[bool, str]:
    """Return whether two ways to compute samples are close enough, and a description."""
    least = LEAST_DB.get(str(synthesizer.model.dtype).removeprefix("torch."), LEAST_DB_OTHERWISE)
    return decibels >= least, f"difference {decibels:.0f} dB below the speech (at least {least:.0f})"


TESTS: dict[str, Test] = {
    "eager engine, SEQ_GROUPS 15, greedy: codes equal upstream's": compare_codes,
    "graph engine, SEQ_GROUPS 15, greedy: codes equal the eager engine's up to rounding": compare_graph,
    "Triton kernels: codes equal those of torch operations up to rounding": compare_kernels,
    "codec: samples equal those of upstream's codec up to rounding": compare_codec,
    "a stream equals the complete line up to rounding": compare_streams,
    "a line has sound, at SEQ_GROUPS 15": check_sound,
}


def _equal(found: CodeComparison) -> str:
    after = "" if found.same else ", then another line"
    return f"{found.equal} of {found.frames} frames equal{after}"


def _finite(value: float) -> float | None:
    """Return a rounded number, or None for infinity, which JSON lacks."""
    return round(value, 1) if abs(value) < 1e6 else None


def _settings(synthesizer: Synthesizer, frames: int, seq_groups: int) -> Any:
    limited = replace(synthesizer.model.sampling, max_seconds=frames / FRAME_RATE)
    return GenerateOptions(seq_groups, limited, retries=0)


def try_speeds(synthesizer: Synthesizer, line: Line, frames: int) -> tuple[list[Speed], list[Finding]]:
    """Return the speed at some settings, or the error: a broken checkpoint gets a report, too."""
    try:
        return [measure(synthesizer, line, _settings(synthesizer, frames, groups), 3) for groups in SPEED_GROUPS], []
    except Exception as error:
        log.exception("the speed could not be measured")
        return [], [Finding("speed", FAILED, first_line(error), {})]


def describe_machine() -> dict[str, str]:
    """Return system, processor, GPU and packages."""
    found = {
        "pack": pack_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": f"{processor_name()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "threads": str(torch.get_num_threads()),
    }
    if torch.cuda.is_available():
        capability = ".".join(map(str, torch.cuda.get_device_capability()))
        found["gpu"] = f"{torch.cuda.get_device_name()} (compute capability {capability})"
        found["cuda"] = str(torch.version.cuda)
    return found | {name: version for name in PACKAGES if (version := installed(name)) is not None}


def describe_checkpoint(synthesizer: Synthesizer) -> dict[str, str]:
    """Return the checkpoint in a few words, and how it runs."""
    model, engine = synthesizer.model, synthesizer.engine
    tails = ", ".join(str(groups) for groups in sorted(model.tails())) or "none"
    return {
        "checkpoint": model.summary(),
        "trained tails": tails,
        "engine": engine.describe(model, engine.choose(model)).removeprefix("engine: "),
    }


@dataclass(frozen=True)
class Report:
    """The results of a run of ``check``."""

    machine: dict[str, str]
    checkpoint: dict[str, str]
    findings: Sequence[Finding]
    speed: Sequence[Speed]
    memory: dict[str, float]

    def as_json(self) -> str:
        found = asdict(self) | {"speed": [as_json(one) for one in self.speed]}
        return json.dumps(found, indent=2, ensure_ascii=False) + "\n"

    def as_markdown(self) -> str:
        tests = [f"- **{one.outcome}**: {one.what}. {one.detail}." for one in self.findings]
        about = [f"- {key}: {value}" for key, value in (*self.checkpoint.items(), *self.machine.items())]
        used = [f"- {key.replace('_gb', '')}: {value} GB at most" for key, value in self.memory.items()]
        blocks = [
            "# Qwen3-TTS Morph: check",
            "\n".join(tests),
            "## Speed",
            table(self.speed),
            "\n".join(used),
            "## Machine",
            "\n".join(about),
        ]
        return "\n\n".join(block for block in blocks if block) + "\n"


def main(words: Sequence[str] | None = None) -> int:
    console = Console(PROGRAM, sys.stdout, sys.stderr)

    def read_and_run() -> int:
        parser = Parser(prog=PROGRAM, description=__doc__, conflict_handler="resolve")
        add_arguments(parser)
        options = parser.parse_args(words)
        check(parser, options)
        return run(options, console)

    return finish(console, read_and_run)


if __name__ == "__main__":
    sys.exit(main())
