"""When the next chunk of a line is decoded: by the sizes asked for, or earlier where its reader would run dry."""

from __future__ import annotations

from collections.abc import Sequence

SMOOTHING = 0.8  # share of what was measured before in the mean time of a frame
MARGIN = 1.25  # of the time that the next frame and its codec are expected to take


class Speed:
    """The measured speed of a stream: seconds per frame without the codec, and seconds of the codec.

    Args:
        frame_s: seconds of audio in a frame.
    """

    def __init__(self, frame_s: float):
        self.audio_s = frame_s
        self.frame_s = 0.0
        self._codec = 1, 0.0  # frames of the last chunk, and the seconds that it took

    def add_frame(self, seconds: float) -> None:
        """Note what a frame of all lines took."""
        self.frame_s = SMOOTHING * self.frame_s + (1 - SMOOTHING) * seconds if self.frame_s else seconds

    def add_codec(self, frames: int, seconds: float) -> None:
        """Note what decoding the chunks of all lines took, of which the longest has this many frames."""
        self._codec = frames, seconds

    def codec_s(self, frames: int) -> float:
        """Return the seconds that the codec takes for a chunk, at most: a shorter chunk has the same fixed costs."""
        measured, seconds = self._codec
        return seconds * max(1.0, frames / measured)

    def keeps_up(self, frames: int) -> bool:
        """Return whether chunks of this many frames are made in less time than they play."""
        return self.frame_s + self.codec_s(frames) / frames < self.audio_s


class ChunkSizes:
    """The sizes of one line's chunks.

    A reader is assumed to play from the first chunk on. If waiting for the full size would leave it without sound,
    although the device is fast enough, what has been made is decoded at once; chunks grow again as sound builds up.

    Args:
        sizes: frames of the first chunks; the last number repeats.
        speed: as measured, shared by all lines.
    """

    def __init__(self, sizes: Sequence[int], speed: Speed):
        self._sizes, self._speed = sizes, speed
        self._step = 0
        self._empty_at: float | None = None  # when a reader has played all that was made

    @property
    def full(self) -> int:
        """The frames of the next chunk, if there is time for it."""
        return self._sizes[min(self._step, len(self._sizes) - 1)]

    def due(self, waiting: int, now: float) -> int:
        """Return how many of the waiting frames to decode now, 0 to wait for more."""
        if waiting >= self.full:
            return self.full
        return waiting if waiting >= min(self._sizes) and self._is_late(waiting, now) else 0

    def _is_late(self, waiting: int, now: float) -> bool:
        """Return whether a reader would run dry while one more frame is made and decoded."""
        if self._empty_at is None or not self._speed.keeps_up(self.full):
            return False
        wait = self._speed.frame_s + self._speed.codec_s(waiting + 1)
        return self._empty_at - now < MARGIN * wait

    def deliver(self, frames: int, seconds: float, now: float) -> None:
        """Note a chunk of this many frames and seconds of audio that a reader can play from now on."""
        if frames >= self.full:
            self._step += 1
        if seconds:
            self._empty_at = max(now, self._empty_at or now) + seconds
