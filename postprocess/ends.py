"""Find the ends of speech and cut the silence around it, offline or streamed."""
# Levels are of windows of 10 ms: a codec's first samples may click.

import numpy as np

from .checks import Span, Waveform, check_sample_rate, check_waveform, from_db, peak_of

WINDOW_S = 0.01
SOUND_DB = -45.0  # dBFS: the demo voice's silence has -60, its first window -50
LOUDNESS_RANGE_DB = 30.0  # audible speech is within this range of its loudest window
MARGIN_S = 0.04  # kept before the first and after the last window with sound
SHORTEST_PAUSE_S = 0.08
# ``is_silent``: speech has 50 ms louder than this.
SILENCE_DB, SILENT_WINDOW_S = -50.0, 0.05
# ``trim_silence``: the threshold is relative to the peak, so that quiet and loud takes are cut alike.
THRESHOLD_DB, THRESHOLD_MARGIN_S = -50.0, 0.02


class EndTrim:
    """Trims the silence at the ends of a mono waveform that is added in parts of any size.

    A window is sound if its level reaches SOUND_DB: unlike ``trim_silence``, this does not need the peak, which is not
    known before the end. A waveform without any sound is not changed.
    """

    def __init__(self, sample_rate: int):
        check_sample_rate(sample_rate)
        self._window = max(1, round(WINDOW_S * sample_rate))
        self._margin = round(MARGIN_S * sample_rate)
        self._held = np.zeros(0, dtype=np.float32)  # samples that may be cut
        self._scanned = 0  # of the held samples
        self._keep = 0  # of the held samples: up to the margin after the last sound
        self._begun = False
        self.start = 0  # the first sample that is kept

    def add(self, samples: Waveform) -> Waveform:
        """Add samples; return those that are final now."""
        self._held = np.concatenate((self._held, samples))
        while self._scanned + self._window <= len(self._held):
            self._scan(self._window)
        return self._release()

    def end(self) -> Waveform:
        """Return the remaining samples."""
        if self._scanned < len(self._held):
            self._scan(len(self._held) - self._scanned)
        if not self._begun:
            self._keep = len(self._held)
        return self._release()

    def _scan(self, count: int) -> None:
        begin, self._scanned = self._scanned, self._scanned + count
        power = np.square(self._held[begin : self._scanned], dtype=np.float64).mean()
        if power < from_db(SOUND_DB) ** 2:
            return
        self._keep = self._scanned + self._margin
        if not self._begun:
            self._begun = True
            self.start = max(0, begin - self._margin)
            self._drop(self.start)

    def _release(self) -> Waveform:
        count = min(self._keep, self._scanned)
        final = self._held[:count]
        self._drop(count)
        return final

    def _drop(self, count: int) -> None:
        self._held = self._held[count:]
        self._scanned -= count
        self._keep -= count


def trim_ends(waveform: Waveform, sample_rate: int) -> tuple[Waveform, int]:
    """Return a mono waveform (float32 ``[T]``) without the silence at its ends, and the first sample's place."""
    trim = EndTrim(sample_rate)
    first = trim.add(waveform)
    return np.concatenate((first, trim.end())), trim.start


def window_powers(waveform: Waveform, window: int) -> Waveform:
    """Return the power of each complete window of a mono waveform, float64."""
    windows = waveform[: len(waveform) // window * window].reshape(-1, window)
    powers: Waveform = np.square(windows, dtype=np.float64).mean(axis=1)
    return powers


def is_silent(waveform: Waveform, sample_rate: int) -> bool:
    """Return whether no 50 ms of a mono waveform are louder than SILENCE_DB."""
    window = max(1, min(len(waveform), round(SILENT_WINDOW_S * sample_rate)))
    return bool(window_powers(waveform, window).max(initial=0) < from_db(SILENCE_DB) ** 2)


def speech_span(waveform: Waveform, sample_rate: int) -> Span:
    """Return where the speech of a mono waveform begins and ends (excluded), in samples, with the margin."""
    # From windows at most LOUDNESS_RANGE_DB below the loudest one; of an empty or all-zero waveform, everything.
    check_sample_rate(sample_rate)
    window = max(1, round(WINDOW_S * sample_rate))
    power = window_powers(np.pad(waveform, (0, -len(waveform) % window)), window)
    if not power.any():
        return 0, len(waveform)
    audible = np.flatnonzero(power >= power.max() * from_db(-LOUDNESS_RANGE_DB) ** 2)
    margin = round(MARGIN_S * sample_rate)
    first, last = int(audible[0]) * window, (int(audible[-1]) + 1) * window
    return max(0, first - margin), min(len(waveform), last + margin)


def quiet_spans(waveform: Waveform, sample_rate: int) -> list[Span]:
    """Return where a mono waveform is quiet for SHORTEST_PAUSE_S or longer, in samples, in order."""
    # Windows over LOUDNESS_RANGE_DB below the loudest one; an all-zero waveform has none.
    check_sample_rate(sample_rate)
    window = max(1, round(WINDOW_S * sample_rate))
    power = window_powers(waveform, window)
    loud = np.flatnonzero(power >= power.max(initial=0) * from_db(-LOUDNESS_RANGE_DB) ** 2)
    edges = np.concatenate(([-1], loud, [len(power)]))
    quiet = np.flatnonzero(np.diff(edges) - 1 >= SHORTEST_PAUSE_S / WINDOW_S)  # the windows between two edges
    return [
        ((before + 1) * window, after * window if after < len(power) else len(waveform))
        for before, after in zip(edges[quiet].tolist(), edges[quiet + 1].tolist(), strict=True)
    ]


def quiet_times(waveform: Waveform, sample_rate: int) -> list[tuple[float, float]]:
    """Return where no words are audible, in seconds, in order.

    Weak sounds at the edges of speech are as quiet: MARGIN_S beside it counts as speech.
    """
    quiet = []
    for start, end in quiet_spans(waveform, sample_rate):
        first = start / sample_rate + (MARGIN_S if start else 0.0)
        last = end / sample_rate - (MARGIN_S if end < len(waveform) else 0.0)
        quiet.append((first, max(first, last)))
    return quiet


def trim_silence(waveform: Waveform, sample_rate: int) -> Waveform:
    """Cut the silence before the first and after the last sound of ``waveform`` ([T] or [C, T])."""
    # Digital silence is returned uncut: an empty result could not be saved.
    check_waveform(waveform)
    check_sample_rate(sample_rate)
    peak = peak_of(waveform)
    if peak == 0.0:
        return waveform.copy()
    level = np.abs(np.atleast_2d(waveform)).max(axis=0)
    sound = np.flatnonzero(level >= peak * from_db(THRESHOLD_DB))
    margin = round(THRESHOLD_MARGIN_S * sample_rate)
    return waveform[..., max(0, int(sound[0]) - margin) : int(sound[-1]) + 1 + margin].copy()
