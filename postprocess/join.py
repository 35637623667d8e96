"""Put waveforms one after another, with gaps or crossfades, and say where each one lies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .checks import Waveform, check_range, check_sample_rate, check_waveform

MAX_GAP_S = 3600.0
MAX_CROSSFADE_MS = 5000.0
MAX_SILENCE = 2**30  # samples over all channels: 4 GiB of float32, 12 hours of mono at 24 kHz

Span = tuple[int, int]


def join(
    waveforms: Sequence[Waveform],
    sample_rate: int,
    gap_s: float | Sequence[float] = 0.0,
    crossfade_ms: float = 0.0,
    lead_s: float = 0.0,
    tail_s: float = 0.0,
) -> tuple[Waveform, list[Span]]:
    """Join ``waveforms`` ([T] or [C, T], all of ``sample_rate``) into one; also give each one's place in it.

    gap_s: seconds of silence at every joint, or one number a joint (``len(waveforms) - 1`` of them).
    crossfade_ms: length of the overlap at the joints *without* a gap; a joint with a gap is never faded. A
    fade takes at most half of each of its two pieces, so pieces shorter than it are faded over less.
    lead_s, tail_s: seconds of silence before the first and after the last piece.

    The fade is a raised cosine whose two gains add up to one, so that a constant stays constant.
    Mono pieces are copied to every channel of the widest; the result is [T] when all are [T], else [C, T].
    Gives ``(joined, spans)``, a span being ``(start, end)`` in samples, end excluded; in a crossfade two
    spans overlap. Raises ValueError for no waveforms, a wrong number of gaps, channel counts that do not
    fit, or more silence than MAX_SILENCE.
    """
    _check_pieces(waveforms)
    check_sample_rate(sample_rate)
    check_range("crossfade_ms", crossfade_ms, 0.0, MAX_CROSSFADE_MS, "ms")
    gaps = [_samples(name, gap, sample_rate) for name, gap in _named_gaps(gap_s, len(waveforms) - 1)]
    lead = _samples("lead_s", lead_s, sample_rate)
    tail = _samples("tail_s", tail_s, sample_rate)
    _check_silence(sum(gaps) + lead + tail, max(map(_channels, waveforms)), sample_rate)
    lengths = [waveform.shape[-1] for waveform in waveforms]
    fades = _fade_lengths(lengths, gaps, round(crossfade_ms / 1000 * sample_rate))
    spans = _place(lengths, gaps, fades, lead)
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


def _named_gaps(gap_s: float | Sequence[float], joints: int) -> list[tuple[str, float]]:
    """One (name for errors, seconds) a joint."""
    if not isinstance(gap_s, Sequence):
        check_range("gap_s", gap_s, 0.0, MAX_GAP_S, "s")
        return [("gap_s", gap_s)] * joints
    if len(gap_s) != joints:
        raise ValueError(f"gap_s has {len(gap_s)} gaps for {joints} joints: give one number, or one a joint")
    return [(f"gap_s[{index}]", gap) for index, gap in enumerate(gap_s)]


def _samples(name: str, seconds: float, sample_rate: int) -> int:
    check_range(name, seconds, 0.0, MAX_GAP_S, "s")
    return round(seconds * sample_rate)


def _check_silence(samples: int, channels: int, sample_rate: int) -> None:
    most = MAX_SILENCE // channels
    if samples > most:
        raise ValueError(
            f"gap_s, lead_s and tail_s add up to {samples / sample_rate:.0f} s of silence: "
            f"choose at most {most / sample_rate:.0f} s in all, for {channels}-channel audio at {sample_rate} Hz"
        )


def _fade_lengths(lengths: list[int], gaps: list[int], fade: int) -> list[int]:
    """Samples of overlap at each joint. Half a piece at most, so a piece's two fades never meet."""
    pairs = zip(lengths[:-1], lengths[1:], gaps, strict=True)
    return [0 if gap else min(fade, before // 2, after // 2) for before, after, gap in pairs]


def _place(lengths: list[int], gaps: list[int], fades: list[int], lead: int) -> list[Span]:
    spans = [(lead, lead + lengths[0])]
    for length, gap, fade in zip(lengths[1:], gaps, fades, strict=True):
        start = spans[-1][1] + gap - fade
        spans.append((start, start + length))
    return spans


def _mix(waveforms: Sequence[Waveform], spans: list[Span], fades: list[int], total: int) -> Waveform:
    flat = all(waveform.ndim == 1 for waveform in waveforms)
    widest = max(_channels(waveform) for waveform in waveforms)
    joined = np.zeros((widest, total), dtype=np.result_type(*waveforms))
    for waveform, (start, end), fade_in, fade_out in zip(
        waveforms, spans, [0, *fades], [*fades, 0], strict=True
    ):
        piece = np.atleast_2d(waveform).copy()
        piece[:, :fade_in] *= _ramp(fade_in)
        piece[:, piece.shape[1] - fade_out :] *= 1.0 - _ramp(fade_out)
        joined[:, start:end] += piece
    return joined[0] if flat else joined


def _ramp(length: int) -> Waveform:
    """A raised cosine from 0 up to 1; with its mirror image it adds up to one."""
    return 0.5 - 0.5 * np.cos(np.pi * (np.arange(length) + 0.5) / max(length, 1))
