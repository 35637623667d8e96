"""What a rendering tells the user: how each line ended, and how fast it went."""

from __future__ import annotations

from collections.abc import Sequence

from .model import Model
from .options import PREDICTED_GROUPS, GenerateOptions
from .render import LineReport, Spoken
from .tail import Tail

ENDINGS = {
    "eos": "ended by itself",
    "cap": "RAN INTO ITS LIMIT and was ended: try another seed, or a higher max seconds",
    "loop": "REPEATED ITSELF and was ended: try another seed",
}


def describe(model: Model, spoken: Sequence[Spoken], options: GenerateOptions, elapsed_s: float) -> str:
    """A report of some lines: the model, the knob, the engine, a row a line, and the speed.

    Args:
        model: what spoke.
        spoken: the lines.
        options: what they were spoken with.
        elapsed_s: wall-clock seconds for all of them, prompt and codec included.

    RTF is generation time over audio duration (below 1 is faster than real time); ms/frame is the same time over
    the frames (80 ms of audio each).
    """
    frames = sum(one.report.frames for one in spoken)
    audio_s = sum(one.report.seconds for one in spoken)
    rows = [f"{number}. {_row(one.report)}" for number, one in enumerate(spoken, start=1)]
    speed = (
        f"{audio_s:.2f} s of audio in {elapsed_s:.2f} s: RTF {elapsed_s / audio_s:.3f}, "
        f"{1000 * elapsed_s / frames:.1f} ms/frame"
    )
    tail = model.tails(options.tail).get(options.seq_groups)
    settings = [
        model.summary(),
        describe_groups(options, tail, model.weights),
        model.engine.describe(model, options.decoding),
    ]
    return "\n".join([*settings, *rows, speed])


def describe_groups(options: GenerateOptions, tail: Tail | None = None, weights: str = "full") -> str:
    """The knob's setting in words, what the groups above it come from, and what INT8 weights make of it."""
    int8 = weights == "int8"
    if options.seq_groups == PREDICTED_GROUPS:
        return f"SEQ_GROUPS {options.seq_groups} (exact{' but for its int8 weights' if int8 else ''})"
    if options.decoding == "lossless":
        meaning = f"lossless: distributed as {PREDICTED_GROUPS}; groups above it are drafted by the crossbar"
    else:
        meaning = "approximate: groups above it come from the crossbar"
    heads = "stock heads" if tail is None else tail.describe()
    approximate = "; int8 weights, which are approximate at 15 too" if int8 else ""
    return f"SEQ_GROUPS {options.seq_groups} ({meaning}; {heads}{approximate})"


def _row(report: LineReport) -> str:
    name = f"{report.name}: " if report.name else ""
    pieces = f" in {report.pieces} pieces" if report.pieces > 1 else ""
    text = report.text if len(report.text) <= 60 else report.text[:57] + "..."
    return f"{name}{text!r}: {report.frames} frames, {report.seconds:.2f} s{pieces}, {ENDINGS[report.ended]}"
