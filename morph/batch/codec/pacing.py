"""Decide when a line's next chunk is decoded: at the requested size, or earlier if its reader would run dry.

A codec step costs as much as its size, a power of two of lines, with 12 frames per line or one. So many lines wait
for full chunks, unless their readers would run dry, and steps are filled.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from ...runtime.capture import next_power_of_2, previous_power_of_2

SMOOTHING = 0.8  # weight of earlier measurements in a mean time
MARGIN = 1.25  # on the expected time of the next frame and its codec step
# With many lines: how long a chunk may have to wait, in frames and in steps of all lines; and the share of the spare
# time (audio minus frame time) that the codec may use.
FRAMES_BEHIND = 4
STEPS_BEHIND = 2
CODEC_SHARE = 0.5
LARGEST = 1 << 30  # frames; no limit
# Chunks without urgency in a step, at least: fewer cost more than their share.
FEWEST = 4
# Lines without urgency in a step, at most: a new line waits for the step.
MOST = 16
# Or an eighth of all lines, if that is more: each is then served within the twelve frames of its chunk.
SHARE = 8


@dataclass(frozen=True)
class ChunkLimits:
    """Limits for a line's next chunk when many lines share the codec."""

    first: int  # frames of a line's first chunk
    least: int  # fewest frames that play longer than they take, if all lines have such chunks
    urgent_s: float  # a reader with less buffered audio is urgent
    dry_s: float  # a reader with less gets a chunk of any size


class Speed:
    """The measured speed of a stream: seconds per frame without the codec, and seconds of the codec."""

    def __init__(self, frame_s: float):
        self.audio_s = frame_s
        self.frame_s = 0.0
        self.turn_s = 0.0  # from one frame to the next, including codec steps
        self._codec = 1, 0.0  # frames of the last chunk, and its seconds
        self.steps: dict[int, float] = {}  # seconds of the codec's steps, by their sizes in lines
        self._came: float | None = None  # time of the last frame
        self._excluded = 0.0  # seconds after it that the codec took

    def end_frame(self) -> None:
        now = time.perf_counter()
        if self._came is not None:
            turn_s = now - self._came
            weight = 1 - SMOOTHING if self.frame_s else 1.0
            self.frame_s += weight * (max(0.0, turn_s - self._excluded) - self.frame_s)
            self.turn_s += weight * (turn_s - self.turn_s)
        self._came, self._excluded = now, 0.0

    def exclude(self, seconds: float) -> None:
        """Do not count these seconds since the last frame: the codec used them."""
        self._excluded += seconds

    def rest(self) -> None:
        self._came = None

    def end_step(self, lines: int, frames: int, took: float, seconds: float) -> None:
        """Note a codec step: its longest chunk, its seconds by the host's clock, and those of the device."""
        self._codec = frames, took
        self.steps[next_power_of_2(lines)] = seconds
        self._excluded += seconds

    def step_s(self, lines: int) -> float:
        """Return an upper bound for the seconds of a step of ``lines``, from the nearest measured size, or 0."""
        if not self.steps or not lines:
            return 0.0
        size = next_power_of_2(lines)
        near = min(self.steps, key=lambda other: abs(math.log2(other / size)))
        return self.steps[near] * max(1.0, size / near)

    def limits(self, new: int, lines: int) -> ChunkLimits:
        """Return the limits for chunks when ``lines`` share the codec and ``new`` of them wait for their first."""
        behind, step_s = FRAMES_BEHIND * self.turn_s, self.step_s(lines)
        first = max(self._least_frames(self.step_s(new)), math.ceil(behind / self.audio_s))
        least = self._least_frames(step_s)
        return ChunkLimits(first, least, behind + STEPS_BEHIND * step_s, behind + step_s)

    def urgent_s(self, lines: int) -> float:
        """Return the seconds of buffered audio with which a reader can wait, when ``lines`` share the codec."""
        return FRAMES_BEHIND * self.turn_s + STEPS_BEHIND * self.step_s(lines)

    def _least_frames(self, step_s: float) -> int:
        """Return the fewest frames that chunks should have, if a step of all their lines takes so long.

        Chunks must play until the codec has served all other lines. If frames alone take longer than they
        play, the largest chunks cost least.
        """
        spare = CODEC_SHARE * (self.audio_s - self.frame_s)
        return max(1, math.ceil(step_s / spare)) if spare > 0 else LARGEST

    def late_s(self, waiting: int, full: int) -> float:
        """Return the seconds of audio below which a reader runs dry before one more frame than these is decoded.

        -inf if smaller chunks would not help: chunks of ``full`` frames take longer than they play.
        """
        measured, seconds = self._codec  # a shorter chunk has the same fixed costs
        if self.frame_s + seconds * max(1.0, full / measured) / full >= self.audio_s:
            return -math.inf
        return MARGIN * (self.frame_s + seconds * max(1.0, (waiting + 1) / measured))


class ChunkSizes:
    """The sizes of one line's chunks: ``sizes`` in frames, of which the last repeats.

    A reader is assumed to play from the first chunk on. If it would run dry before the full size is there, although
    the device is fast enough, waiting frames are decoded now. Chunks grow again as audio builds up.
    """

    def __init__(self, sizes: Sequence[int], speed: Speed, held_s: float = 0.0):
        self._sizes, self._speed, self._held_s = sizes, speed, held_s
        self.largest, self._smallest = max(sizes), min(sizes)
        self._step = 0
        self.full = sizes[0]  # frames of the next chunk, if there is time for it
        self.has_begun = False
        self.empty_at = 0.0  # when a reader has played everything; 0 before the first audio

    def due(self, waiting: int, now: float, limits: ChunkLimits | None = None) -> tuple[int, bool]:
        """Return how many waiting frames could be decoded now, 0 to wait for more, and whether they are urgent.

        ``limits``: if many lines share the codec. After the first chunk, they get only chunks of the largest size, or
        urgent smaller ones.
        """
        least = most = self.full
        is_urgent, left = True, self.empty_at - now
        if limits is None:
            if self.has_begun and waiting < least and left < self._speed.late_s(waiting, most):
                least = self._smallest
        elif not self.has_begun:
            least = most = max(self.full, min(limits.first, self.largest))
        elif left >= limits.urgent_s:
            least, most, is_urgent = self.largest, self.largest, False
        else:
            least = max(self._smallest, min(limits.least, self.largest) if left >= limits.dry_s else 1)
            most = self.largest
        return (min(waiting, most) if waiting >= least else 0), is_urgent

    def deliver(self, frames: int, seconds: float, now: float) -> None:
        """Note a chunk of ``seconds`` of audio that a reader can play from now on."""
        if frames >= self.full:
            self._step += 1
            self.full = self._sizes[min(self._step, len(self._sizes) - 1)]
        if seconds:
            begun = max(now, self.empty_at) if self.has_begun else now - self._held_s
            self.has_begun, self.empty_at = True, begun + seconds


@dataclass(slots=True)
class Claim:
    """The frames of one line that could be decoded now."""

    line: Any
    frames: int
    is_urgent: bool = False  # its player would run dry, or the line has finished decoding
    empty_at: float = 0.0  # when its reader has played everything; 0 before the first audio
    steps: int = 1  # of the codec; see ``LineCodec.steps``


def choose(claims: Sequence[Claim], lines: int) -> list[Claim]:
    """Return the claims for the next step: all urgent claims, then the most pressing claims of started lines."""
    chosen = [claim for claim in claims if claim.is_urgent]
    if len(chosen) == len(claims) or (not chosen and len(claims) < FEWEST):
        return chosen
    most = max(MOST, next_power_of_2(-(-lines // SHARE)))
    room = max(next_power_of_2(len(chosen)), min(previous_power_of_2(len(claims)), most))
    work = sum([claim.steps for claim in chosen])
    for claim in sorted([claim for claim in claims if not claim.is_urgent], key=attrgetter("empty_at")):
        work += claim.steps
        # The next frame waits for all steps, so lines that need several are spread over turns.
        if len(chosen) == room or work > max(most, room):
            break
        chosen.append(claim)
    return chosen
