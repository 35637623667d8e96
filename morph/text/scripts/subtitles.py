"""Captions of a rendered script, and the text of SRT and WebVTT files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

CUE_TIMES = re.compile(r"(\d{2,}:\d\d:\d\d),(\d{3}) --> (\d{2,}:\d\d:\d\d),(\d{3})")


@dataclass(frozen=True)
class Caption:
    """One caption, from ``start_ms`` to ``end_ms`` (whole milliseconds): ``NAME: text``, or ``text``."""

    start_ms: int
    end_ms: int
    text: str
    name: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.start_ms <= self.end_ms:
            raise ValueError(
                f"caption runs from {self.start_ms} to {self.end_ms} ms: start at 0 or later, end after that"
            )
        if not self.text.strip():
            raise ValueError(f"caption at {self.start_ms} ms has no text: leave it out")

    @classmethod
    def from_samples(cls, start: int, end: int, sample_rate: int, text: str, name: str = "") -> Caption:
        """Return a caption at sample positions (as ``join`` returns them), rounded to the nearest millisecond."""
        if sample_rate <= 0:
            raise ValueError(f"sample_rate is {sample_rate}: give samples per second, e.g. 24000")
        return cls(_to_ms(start, sample_rate), _to_ms(end, sample_rate), text, name)


def to_srt(captions: Sequence[Caption]) -> str:
    """Return the text of an SRT file: captions numbered from 1, in the given order; empty without captions.

    New lines inside a caption become spaces. Captions may overlap, as lines do in a crossfade.

    Raises:
        ValueError: if a caption starts before the previous one.
    """
    _check_order(captions)
    return "\n".join(_block(number, caption) for number, caption in enumerate(captions, start=1))


def to_vtt(captions: Sequence[Caption]) -> str:
    """Return the text of a WebVTT file, in which a caption's name is its voice; otherwise as ``to_srt``.

    Raises:
        ValueError: if a caption starts before the previous one.
    """
    _check_order(captions)
    return "\n".join(["WEBVTT\n", *(_cue(caption) for caption in captions)])


def _check_order(captions: Sequence[Caption]) -> None:
    for before, after in pairwise(captions):
        if after.start_ms < before.start_ms:
            raise ValueError(
                f"caption {after.text!r} starts at {after.start_ms} ms, before the previous one "
                f"({before.start_ms} ms): sort the captions by their start"
            )


def _to_ms(sample: int, sample_rate: int) -> int:
    """Round to the nearest millisecond, halves up, in integers: floats would round some halves down."""
    return (2000 * sample + sample_rate) // (2 * sample_rate)


def _block(number: int, caption: Caption) -> str:
    spoken = " ".join(caption.text.split())
    name = " ".join(caption.name.split())
    shown = f"{name}: {spoken}" if name else spoken
    return f"{number}\n{timestamp(caption.start_ms)} --> {timestamp(caption.end_ms)}\n{shown}\n"


def _cue(caption: Caption) -> str:
    spoken, name = (escape(" ".join(text.split())) for text in (caption.text, caption.name))
    shown = f"<v {name}>{spoken}" if name else spoken
    return f"{timestamp(caption.start_ms, '.')} --> {timestamp(caption.end_ms, '.')}\n{shown}\n"


def escape(text: str) -> str:
    """Return a text as WebVTT shows it: none of it is a mark."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def timestamp(ms: int, point: str = ",") -> str:
    """Return a time of SRT; of WebVTT with ``point`` "."."""
    seconds, ms = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}{point}{ms:03d}"


def srt_to_vtt(srt: str) -> str:
    """Return the text of a WebVTT file from that of an SRT file: the same captions and times.

    Raises:
        ValueError: the text is not SRT as ``to_srt`` writes it.
    """
    cues = [_vtt_cue(block) for block in re.split(r"\n{2,}", srt.replace("\r\n", "\n").strip("\n"))]
    return "\n\n".join(["WEBVTT", *cues]) + "\n"


def _vtt_cue(block: str) -> str:
    number, *rest = block.split("\n")
    times = CUE_TIMES.fullmatch(rest[0].strip()) if rest else None
    if times is None or not number.strip().isdecimal():
        raise ValueError(
            f"srt has {block[:40]!r}, which is no caption: connect the srt output of Render Script"
        )
    begin, end = f"{times[1]}.{times[2]}", f"{times[3]}.{times[4]}"
    return "\n".join([number.strip(), f"{begin} --> {end}", *map(escape, rest[1:])])
