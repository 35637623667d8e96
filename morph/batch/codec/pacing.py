"""Decide when a line's next chunk is decoded: at the requested size, or earlier if its reader would run dry."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from ...runtime.sizes import power_above
from .claims import Pace

SMOOTHING = 0.8  # weight of earlier measurements in a mean time
MARGIN = 1.25  # on the expected time of the next frame and its codec step
# With many lines: how long a chunk may have to wait, in frames and in steps of all lines; and the share of the spare
# time (audio minus frame time) that the codec may use.
FRAMES_BEHIND = 4
STEPS_BEHIND = 2
CODEC_SHARE = 0.5
LARGEST = 1 << 30  # frames; no limit


class Speed:
    """The measured speed of a stream: seconds per frame without the codec, and seconds of the codec."""

    def __init__(self, frame_s: float):
        self.audio_s = frame_s
        self.frame_s = 0.0
        self.turn_s = 0.0  # from one frame to the next, including codec steps
        self._codec = 1, 0.0  # frames of the last chunk, and its seconds
        self._steps: dict[int, float] = {}  # seconds of the codec's steps, by their sizes in lines
        self._came: float | None = None  # time of the last frame
        self._excluded = 0.0  # seconds after it that the codec took

    def end_frame(self) -> None:
        now = time.perf_counter()
        if self._came is not None:
            between = now - self._came
            self.frame_s = _mean(self.frame_s, max(0.0, between - self._excluded))
            self.turn_s = _mean(self.turn_s, between)
        self._came, self._excluded = now, 0.0

    def exclude(self, seconds: float) -> None:
        """Do not count these seconds since the last frame: the codec used them."""
        self._excluded += seconds

    def rest(self) -> None:
        self._came = None

    def add_codec(self, frames: int, seconds: float) -> None:
        """Note the seconds of decoding the chunks of all lines, the longest of which has ``frames``."""
        self._codec = frames, seconds

    def add_step(self, size: int, seconds: float) -> None:
        """Note the seconds of a codec step with room for ``size`` lines."""
        self._steps[size] = seconds

    def knows(self, size: int) -> bool:
        return size in self._steps

    def step_s(self, lines: int) -> float:
        """Return an upper bound for the seconds of a step of ``lines``, from the nearest measured size, or 0."""
        if not self._steps or not lines:
            return 0.0
        size = power_above(lines)
        if size in self._steps:
            return self._steps[size]
        near = min(self._steps, key=lambda other: abs(math.log2(other / size)))
        return self._steps[near] * max(1.0, size / near)

    def pace(self, new: int, lines: int) -> Pace:
        """Return the limits for chunks when ``lines`` share the codec and ``new`` of them wait for their first."""
        behind, step_s = FRAMES_BEHIND * self.turn_s, self.step_s(lines)
        first = max(self._least_frames(new), math.ceil(behind / self.audio_s))
        return Pace(first, self._least_frames(lines), self.urgent_s(lines), behind + step_s)

    def urgent_s(self, lines: int) -> float:
        """Return the seconds of buffered audio with which a reader can wait, when ``lines`` share the codec."""
        return FRAMES_BEHIND * self.turn_s + STEPS_BEHIND * self.step_s(lines)

    def _least_frames(self, lines: int) -> int:
        """Return the fewest frames that chunks of ``lines`` should have, if they are decoded together.

        Chunks must play until the codec has served all other lines. If frames alone take longer than they
        play, the largest chunks cost least.
        """
        spare = CODEC_SHARE * (self.audio_s - self.frame_s)
        return max(1, math.ceil(self.step_s(lines) / spare)) if spare > 0 else LARGEST

    def codec_s(self, frames: int) -> float:
        """Return an upper bound for the seconds of a chunk: a shorter chunk has the same fixed costs."""
        measured, seconds = self._codec
        return seconds * max(1.0, frames / measured)

    def late_s(self, waiting: int) -> float:
        """Return the seconds of audio below which a reader runs dry before one more frame than these is decoded."""
        return MARGIN * (self.frame_s + self.codec_s(waiting + 1))

    def keeps_up(self, frames: int) -> bool:
        """Return whether chunks of this many frames take less time than they play."""
        return self.frame_s + self.codec_s(frames) / frames < self.audio_s


def _mean(before: float, seconds: float) -> float:
    return SMOOTHING * before + (1 - SMOOTHING) * seconds if before else seconds


class ChunkSizes:
    """The sizes of one line's chunks: ``sizes`` in frames, of which the last repeats.

    A reader is assumed to play from the first chunk on. If it would run dry before the full size is there, although
    the device is fast enough, waiting frames are decoded at once. Chunks grow again as audio builds up.
    """

    def __init__(self, sizes: Sequence[int], speed: Speed, held_s: float = 0.0):
        self._sizes, self._speed, self._held_s = sizes, speed, held_s
        self.largest, self._smallest = max(sizes), min(sizes)
        self._step = 0
        self.full = sizes[0]  # frames of the next chunk, if there is time for it
        self.has_begun = False
        self.empty_at = 0.0  # when a reader has played everything; 0 before the first audio

    def patient(self, waiting: int, now: float, pace: Pace) -> tuple[int, bool]:
        """Return how many waiting frames could be decoded now, and whether they are urgent.

        For many lines: after the first chunk, only chunks of the largest size, or urgent smaller ones.
        """
        if not self.has_begun:
            first = max(self.full, min(pace.first, self.largest))
            return (first if waiting >= first else 0), True
        left = self.empty_at - now
        if left >= pace.urgent_s:
            return (self.largest if waiting >= self.largest else 0), False
        least = min(pace.least, self.largest) if left >= pace.dry_s else 1
        return (min(waiting, self.largest) if waiting >= max(self._smallest, least) else 0), True

    def due(self, waiting: int, now: float) -> int:
        """Return how many waiting frames to decode now, 0 to wait for more."""
        if waiting >= self.full:
            return self.full
        return waiting if waiting >= self._smallest and self._is_late(waiting, now) else 0

    def _is_late(self, waiting: int, now: float) -> bool:
        if not self.has_begun or not self._speed.keeps_up(self.full):
            return False
        return self.empty_at - now < self._speed.late_s(waiting)

    def deliver(self, frames: int, seconds: float, now: float) -> None:
        """Note a chunk of ``seconds`` of audio that a reader can play from now on."""
        if frames >= self.full:
            self._step += 1
            self.full = self._sizes[min(self._step, len(self._sizes) - 1)]
        if seconds:
            begun = max(now, self.empty_at) if self.has_begun else now - self._held_s
            self.has_begun, self.empty_at = True, begun + seconds
