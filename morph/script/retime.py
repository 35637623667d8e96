"""Speed and pitch of lines that were spoken: their samples, the times of their pieces, and their length."""

from collections.abc import Iterable
from dataclasses import replace

from ...postprocess.stretch import Stretch, check_installed, stretch
from ..speech.lines import PieceSpan, Spoken
from ..text.scripts.script import ScriptLine


def retiming_of(line: ScriptLine) -> Stretch:
    """Return the speed and the pitch that a script asks for."""
    return Stretch(1.0 if line.speed is None else line.speed, 0.0 if line.pitch is None else line.pitch)


def check_retiming(lines: Iterable[ScriptLine]) -> None:
    """Raise ValueError for a line with speed or pitch where their library is not installed."""
    if not all(retiming_of(line).changes_nothing for line in lines):
        check_installed()


def retime(spoken: Spoken, by: Stretch) -> Spoken:
    """Return a line at another speed and pitch; the same line if nothing changes.

    The times of its pieces are exact to within a hop (15 ms); its frames stay those that were decoded.
    """
    if by.changes_nothing or not len(spoken.waveform):
        return spoken
    waveform = stretch(spoken.waveform, spoken.sample_rate, by)
    spans = tuple(_move(span, by.speed, len(waveform)) for span in spoken.spans)
    report = replace(spoken.report, seconds=len(waveform) / spoken.sample_rate)
    speed = spoken.speed * by.speed
    return replace(spoken, waveform=waveform, spans=spans, report=report, speed=speed)


def _move(span: PieceSpan, speed: float, length: int) -> PieceSpan:
    """Return a piece at its place in a waveform of ``length`` samples; ``speed`` made it that long."""
    start, end = (min(length, round(place / speed)) for place in (span.start, span.end))
    return replace(span, start=start, end=end, trimmed=round(span.trimmed / speed), speed=span.speed * speed)
