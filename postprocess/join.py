"""Join waveforms with gaps or crossfades: complete ones, or the pieces of a stream."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .checks import Span, Waveform, check_range, check_sample_rate, check_waveform
from .ends import EndTrim

MAX_GAP_S = 3600.0
MAX_CROSSFADE_MS = 5000.0
MAX_SILENCE = 2**30  # samples over all channels: 4 GiB of float32, 12 hours of mono at 24 kHz

CROSSFADE_MS = 60.0  # between the pieces of a split text
NO_SAMPLES = np.zeros(0, dtype=np.float32)


@dataclass(frozen=True)
class Spacing:
    """How ``join`` spaces waveforms."""

    gap_s: float | Sequence[float] = 0.0  # silence at every joint, 0..3600 s, or one number per joint
    crossfade_ms: float = 0.0  # overlap at joints without a gap, 0..5000 ms, at most half a piece
    lead_s: float = 0.0  # silence before the first piece, 0..3600 s
    tail_s: float = 0.0  # silence after the last one

    def __post_init__(self) -> None:
        if isinstance(self.gap_s, Sequence):
            named = {f"gap_s[{index}]": gap for index, gap in enumerate(self.gap_s)}
        else:
            named = {"gap_s": self.gap_s}
        for name, seconds in (named | {"lead_s": self.lead_s, "tail_s": self.tail_s}).items():
            check_range(name, seconds, 0.0, MAX_GAP_S, "s")
        check_range("crossfade_ms", self.crossfade_ms, 0.0, MAX_CROSSFADE_MS, "ms")


def silences(spacing: Spacing, joints: int, sample_rate: int, channels: int = 1) -> tuple[int, list[int], int]:
    """Return the samples of silence before the first waveform, at each joint, and after the last."""
    seconds = spacing.gap_s if isinstance(spacing.gap_s, Sequence) else [spacing.gap_s] * joints
    if len(seconds) != joints:
        raise ValueError(f"gap_s has {len(seconds)} gaps for {joints} joints: give one number, or one per joint")
    gaps = [round(gap * sample_rate) for gap in seconds]
    lead, tail = round(spacing.lead_s * sample_rate), round(spacing.tail_s * sample_rate)
    samples, most = sum(gaps) + lead + tail, MAX_SILENCE // channels
    if samples > most:
        raise ValueError(
            f"gap_s, lead_s and tail_s add up to {samples / sample_rate:.0f} s of silence: "
            f"choose at most {most / sample_rate:.0f} s in all, for {channels}-channel audio at {sample_rate} Hz"
        )
    return lead, gaps, tail


def join(
    waveforms: Sequence[Waveform], sample_rate: int, spacing: Spacing | None = None
) -> tuple[Waveform, list[Span]]:
    """Join ``waveforms`` ([T] or [C, T], all of ``sample_rate``); also return each ``(start, end)`` in samples.

    The fade is a raised cosine whose two gains add up to one, so that a constant stays constant. Spans overlap in a
    crossfade. Mono pieces are copied to every channel of the widest; the result is [T] if all are [T]. Raise
    ValueError for no waveforms, other numbers of gaps or channels, or silence over MAX_SILENCE.
    """
    spacing = spacing or Spacing()
    _check_pieces(waveforms)
    check_sample_rate(sample_rate)
    widest = max(map(_channels, waveforms))
    lead, gaps, tail = silences(spacing, len(waveforms) - 1, sample_rate, widest)
    lengths = [waveform.shape[-1] for waveform in waveforms]
    # At most half a piece, so that a piece's two fades never meet.
    most, pairs = round(spacing.crossfade_ms / 1000 * sample_rate), pairwise(lengths)
    fades = [0 if gap else min(most, *(one // 2 for one in pair)) for pair, gap in zip(pairs, gaps, strict=True)]
    spans = [(lead, lead + lengths[0])]
    for length, gap, fade in zip(lengths[1:], gaps, fades, strict=True):
        start = spans[-1][1] + gap - fade
        spans.append((start, start + length))
    return _mix(waveforms, spans, fades, spans[-1][1] + tail), spans


def _check_pieces(waveforms: Sequence[Waveform]) -> None:
    if len(waveforms) == 0:
        raise ValueError("waveforms is empty: give at least one to join")
    for index, waveform in enumerate(waveforms):
        check_waveform(waveform, f"waveforms[{index}]")
    widths = {_channels(waveform) for waveform in waveforms} - {1}
    if len(widths) > 1:
        raise ValueError(
            f"waveforms have {' and '.join(map(str, sorted(widths)))} channels: "
            "mix them to one number of channels first (mono ones fit any)"
        )


def _channels(waveform: Waveform) -> int:
    return 1 if waveform.ndim == 1 else waveform.shape[0]


def _mix(waveforms: Sequence[Waveform], spans: list[Span], fades: list[int], total: int) -> Waveform:
    flat = all(waveform.ndim == 1 for waveform in waveforms)
    joined = np.zeros((max(map(_channels, waveforms)), total), dtype=np.result_type(*waveforms))
    for waveform, (start, end), fade_in, fade_out in zip(waveforms, spans, [0, *fades], [*fades, 0], strict=True):
        piece = np.atleast_2d(waveform).copy()
        piece[:, :fade_in] *= ramp(fade_in)
        piece[:, piece.shape[1] - fade_out :] *= 1.0 - ramp(fade_out)
        joined[:, start:end] += piece
    return joined[0] if flat else joined


def ramp(length: int) -> Waveform:
    """Return a raised cosine from 0 to 1; it and its mirror image add up to one."""
    return 0.5 - 0.5 * np.cos(np.pi * (np.arange(length) + 0.5) / max(length, 1))


class StreamJoin:
    """Crossfades mono float32 pieces in order, each added in parts.

    The result equals ``join(pieces, rate, Spacing(crossfade_ms=...))[0]`` to the bit, with ``gap_s`` where ``gap`` is
    called. A fade (at most ``fade`` samples) takes at most half of each piece, so its samples are held back until the
    next piece is twice as long or has ended, or until ``limit`` says that there is none.
    """

    def __init__(self, fade: int):
        self._left = math.inf  # pieces
        self._fade = fade
        self._length = 0  # of the current piece so far
        self._pending = np.zeros(0, dtype=np.float32)  # its samples that were not returned yet
        self._tail: Waveform = self._pending  # of the piece before, which may fade into the current one

    def add(self, samples: Waveform) -> Waveform:
        """Add samples of the current piece; return the samples of the result that are final now."""
        self._length += len(samples)
        self._pending = np.concatenate((self._pending, samples)) if len(self._pending) else samples
        return self._advance(ended=False)

    def end(self) -> Waveform:
        """End the current piece; return the samples that are final now."""
        self._left -= 1
        final = self._advance(ended=True)
        self._tail = self._pending if self._left else self._pending[:0]
        self._pending, self._length = self._pending[:0], 0
        return final

    def gap(self, samples: int) -> Waveform:
        """Put silence before the current piece, without a fade; return final samples. It must not have begun."""
        return np.concatenate((self._end_tail(), np.zeros(samples, dtype=np.float32)))

    def limit(self, pieces: int) -> Waveform:
        """Set how many pieces have not ended, the current one included; return samples that this makes final."""
        self._left = pieces
        return self._pending[:0] if pieces else self._end_tail()

    def _end_tail(self) -> Waveform:
        """Return the tail, which fades into no piece."""
        tail, self._tail = self._tail, self._tail[:0]
        return tail + np.float32(0)

    def _advance(self, ended: bool) -> Waveform:
        """Fade the last piece into this one if the fade's length is known; return final samples."""
        if len(self._tail):
            if not ended and self._length < 2 * self._fade:
                return self._pending[:0]
            self._pending, self._tail = self._crossfade(self._tail), self._tail[:0]
        count = max(0, len(self._pending) - self._held(ended))
        final, self._pending = self._pending[:count], self._pending[count:]
        return final + np.float32(0)  # as join, which adds pieces to zeros: no -0.0

    def _held(self, ended: bool) -> int:
        """Return how many of the current piece's last samples may fade into the next piece."""
        if ended:
            return min(self._fade, self._length // 2) if self._left else 0
        return self._fade if self._left > 1 else 0

    def _crossfade(self, tail: Waveform) -> Waveform:
        length = min(len(tail), self._length // 2)
        before, after = tail[len(tail) - length :].copy(), self._pending[:length].copy()
        before *= 1.0 - ramp(length)  # in place, as join: computed in float64, rounded to float32
        after *= ramp(length)
        return np.concatenate((tail[: len(tail) - length], before + after, self._pending[length:]))


class LineJoin(StreamJoin):
    """Joins the pieces of a line with pauses or crossfades, and cuts the silence at its ends.

    ``lead`` samples and ``after_s`` seconds of silence at the ends are not cut. ``places`` is where the pieces begin
    between them before silence is cut; ``taken`` counts the samples of ``take``.
    """

    def __init__(self, sample_rate: int, trims_ends: bool):
        super().__init__(round(CROSSFADE_MS / 1000 * sample_rate))
        self._rate, self._trim = sample_rate, EndTrim(sample_rate) if trims_ends else None
        self._joined = self.lead = self.taken = 0
        self.after_s = 0.0
        self.places: list[int] = []

    @property
    def offset(self) -> int:
        """The shift from a place to the line's waveform."""
        return self.lead - (0 if self._trim is None else self._trim.start)

    def begin_piece(self, pause_s: float, length: float = math.inf) -> Waveform:
        """Begin a piece after a pause, or with a crossfade, which takes at most half of its ``length``."""
        pause, tail = round(pause_s * self._rate), len(self._tail)
        if not self.places:
            self.lead, pause = pause, 0
        self.places.append(self._joined + tail + (pause or -int(min(tail, length // 2))))
        return self.gap(pause) if pause else NO_SAMPLES

    def take(self, parts: Sequence[Waveform], is_last: bool = False) -> Waveform:
        """Return the samples of the line that are final, after those of the joined pieces in ``parts``."""
        samples = concatenate(parts)
        self._joined += len(samples)
        parts = [samples]
        if self._trim is not None:
            parts = [self._trim.add(samples), *([self._trim.end()] if is_last else [])]
        if self.lead and not self.taken:
            parts.insert(0, np.zeros(self.lead, dtype=np.float32))
        if is_last and self.after_s:
            parts.append(np.zeros(round(self.after_s * self._rate), dtype=np.float32))
        samples = concatenate(parts) if len(parts) > 1 else parts[0]
        self.taken += len(samples)
        return samples


def concatenate(waves: Sequence[np.ndarray]) -> np.ndarray:
    """Return the waves joined, float32 ``[T]``; T may be 0. A single one is not copied."""
    parts = list(filter(len, waves))
    return parts[0] if len(parts) == 1 else np.concatenate([NO_SAMPLES, *parts])
