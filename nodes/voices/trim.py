"""The Trim Recording node: the part of a recording to clone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from comfy_api.latest import io

from ...morph.voice.excerpt import Excerpt, check_bounds, choose, propose, tell
from ...morph.voice.measure import Measurement, measure, shape_of
from .. import inputs
from ..page.clips import Clip, write_clips
from ..schema import schema
from ..sound.values import to_audio, to_one_waveform

if TYPE_CHECKING:
    import numpy as np

KEY = "morph_trim"  # in the ui of the node's output, read by web/js/trim.js
POINTS_PER_S = 10  # of the waveform that the page draws
LEAST_POINTS, MOST_POINTS = 600, 6000
FULL_SCALE = 1000  # of a point
MOST_MARKS = 200  # of clipping
LATEST_S = 36_000.0  # that can be typed


class TrimRecording(io.ComfyNode):
    define_schema = schema(
        "MorphTTSTrimRecording",
        inputs=lambda: [
            io.Audio.Input("audio"),
            inputs.number("start", 0.0, (0.0, LATEST_S, 0.01)),
            inputs.number("end", 0.0, (0.0, LATEST_S, 0.01)),
        ],
        outputs=[io.Audio.Output("trimmed"), io.String.Output("report")],
        is_output_node=True,
    )

    @classmethod
    def validate_inputs(cls, start: float | None = None, end: float | None = None) -> bool | str:
        if not isinstance(start, (int, float)) or not isinstance(end, (int, float)):  # wired
            return True
        return inputs.judge(start=(lambda _: check_bounds(start, end), start))

    @classmethod
    def execute(cls, audio: dict[str, Any], start: float, end: float) -> io.NodeOutput:
        waveform, rate = to_one_waveform(audio, "audio"), audio["sample_rate"]
        measured = measure(waveform, rate)
        best = propose(measured)
        part = choose(measured.seconds, start, end) if start or end else best
        report = "\n".join(tell(part, measured, waveform, rate))
        shown = {**draw(waveform, rate, measured), "best": bounds(best), "part": bounds(part)}
        trimmed = to_audio(part.cut(waveform, rate), rate)
        return io.NodeOutput(trimmed, report, ui={"text": (report,), KEY: [shown]})


def draw(waveform: np.ndarray, rate: int, measured: Measurement) -> dict[str, Any]:
    """Return what the page needs to show a recording, ``[C, T]``, and to play it."""
    import folder_paths

    mono = waveform.mean(axis=0)
    points = round(min(max(POINTS_PER_S * measured.seconds, LEAST_POINTS), MOST_POINTS))
    [file] = write_clips([Clip(mono, rate, "", "recording")], Path(folder_paths.get_temp_directory()))
    return {
        **{name: file[name] for name in ("filename", "subfolder", "type")},
        "seconds": round(measured.seconds, 3),
        "shape": [(round(FULL_SCALE * low), round(FULL_SCALE * high)) for low, high in shape_of(mono, points)],
        "clipped": measured.clipped_at(MOST_MARKS),
        "faults": list(measured.faults),
        "figures": {
            "level": round(measured.level_db),
            "peak": round(measured.peak_db, 1),
            "clipped": round(100 * measured.clipped, 2),
            "noise": None if measured.noise_db is None else round(measured.noise_db),
            "snr": None if measured.noise_db is None else round(measured.snr_db),
        },
    }


def bounds(part: Excerpt) -> tuple[float, float]:
    return round(part.start_s, 2), round(part.end_s, 2)
