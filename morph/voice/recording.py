"""Read a recording of a speaker, and prepare it as a reference: repair what would spoil the voice, note each change.

In the voice folder ``anna.wav`` is the voice "anna": ICL with the transcript ``anna.txt`` beside it, x-vector without.
Ordinary recordings are only mixed down and resampled, as upstream does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...postprocess.checks import from_db
from ..text.encoding import read_text_file
from .voice import LONGEST_TRANSCRIPT

if TYPE_CHECKING:
    from ..hearing.whisper import Whisper

SUFFIXES = (".wav", ".flac", ".mp3", ".ogg")
LONGEST_READ_S = 60.0  # of a file: cloning uses the first 30 s, or refuses it
MOST_TEXT_BYTES = 4 * LONGEST_TRANSCRIPT
SHORTEST_S = 1.0
LONGEST_S = 30.0
OVERRUN_S = 0.1  # a recording cut to 30 s, by hand or by an encoder, may be slightly longer
SILENCE_DBFS = -60.0
SILENCE_BELOW_LOUDEST_DB = 40.0  # quieter ends of a recording are not speech
BLOCK_S = 0.05  # a level is measured over this time
LONGEST_SILENCE_S = 2.0  # at either end; longer silence is cut down to the margin
MARGIN_S = 0.2
OVER_FULL_SCALE = 2.0  # lower peaks may be a decoder's overshoot
OFFSET_TO_LEVEL = 0.25  # a constant offset above this share of the signal's level is removed
LEAST_OFFSET = 1e-3
CLIPPED_SHARE = 0.01
STEADY_DB = 6.0  # the level of speech, with its pauses, varies far more
# A recording ends within its speech if its last block is this near to its loudest one, and this far above its pauses.
# Speech of presets ended 61 dB or more below the loudest block; without the silence 13 to 35 dB, cut in a word 4 to 27.
ABRUPT_DB, ABOVE_PAUSES_DB = 30.0, 10.0
SPEECH_HZ = (300.0, 4000.0)
# Telephone speech, also resampled. Other speech has -15 to -35 dB above this frequency, for s and f.
NARROW_HZ, NARROW_DB = 4200.0, -50.0
SPECTRUM_SAMPLES = 1024


@dataclass(frozen=True, eq=False)
class Recording:
    """A recording of a speaker."""

    name: str
    waveform: np.ndarray  # float32 ``[C, T]``
    sample_rate: int
    transcript: str | None = None  # None if unknown


def read_recording(path: Path) -> Recording:
    """Return the recording in a file, with the text beside it; ValueError if it cannot be read."""
    import soundfile

    try:
        with soundfile.SoundFile(path) as file:
            rate = int(file.samplerate)
            waveform = file.read(round(LONGEST_READ_S * rate), dtype="float32", always_2d=True).T
    except (OSError, soundfile.SoundFileError) as error:
        raise ValueError(f"{path.name} cannot be read as a recording ({error}): save it as wav") from error
    return Recording(path.stem, waveform, rate, read_transcript(path.with_suffix(".txt")))


def read_transcript(path: Path) -> str | None:
    """Return the text of a file, None if it is missing or empty; ValueError if it cannot be read."""
    if not path.is_file():
        return None
    text = read_text_file(path, MOST_TEXT_BYTES, "keep only what the recording says").strip()
    return text or None


@dataclass(frozen=True)
class Reference:
    """A prepared recording."""

    waveform: np.ndarray  # float32 ``[T]`` within -1..1
    notes: tuple[str, ...] = ()  # remarks for people


def prepare_reference(waveform: np.ndarray, sample_rate: int, target_rate: int, refuse_long: bool = False) -> Reference:
    """Prepare a recording of speech, float ``[T]`` or ``[C, T]``, as a reference; rates are in Hz.

    ``refuse_long``: refuse a recording above 30 s, which a transcript would not match after a cut. Raises ValueError
    also if it is too short, silent or not finite.
    """
    channels = check_channels(waveform, sample_rate)
    notes: list[str] = []
    mono = to_mono(channels, notes)
    mono = _shorten(_trim(mono, sample_rate, notes), sample_rate, refuse_long, notes)
    _judge(mono, sample_rate, notes)
    if sample_rate != target_rate:
        mono = _resample(mono, sample_rate, target_rate)
    mono = np.ascontiguousarray(mono / max(1.0, float(np.abs(mono).max())), dtype=np.float32)
    return Reference(mono, tuple(notes))


def transcribe_recording(recogniser: Whisper, waveform: np.ndarray, sample_rate: int) -> str:
    """Return the words of a recording, for ``CloneOptions.transcript``; the recogniser detects the language.

    ``waveform`` is float ``[T]`` or ``[C, T]`` at any rate in Hz, prepared as for cloning.

    Raises ValueError for a recording that ICL cannot use (``prepare_reference``), or one without words.
    """
    from ..hearing.whisper import RATE

    reference = prepare_reference(waveform, sample_rate, RATE, refuse_long=True)
    words = " ".join(recogniser.transcribe(reference.waveform, RATE, "auto").split())
    if not any(map(str.isalnum, words)):
        raise ValueError("no words are heard in the recording: type its transcript, or use x-vector mode")
    return words


def _resample(mono: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """Resample as librosa does, bit for bit, without importing it: speaker embeddings and codes stay as they were."""
    import soxr

    samples = math.ceil(mono.size * (wanted / rate))
    made = soxr.resample(mono, rate, wanted, quality="HQ")[:samples]
    return np.pad(made, (0, samples - made.size))


def check_channels(waveform: np.ndarray, sample_rate: int) -> np.ndarray:
    """Return a recording, ``[T]`` or ``[C, T]``, as float32 ``[C, T]``; ValueError if it is too short or not finite."""
    channels = np.atleast_2d(np.asarray(waveform, dtype=np.float32))
    if channels.ndim != 2 or len(channels) == 0 or sample_rate <= 0:
        raise ValueError(
            f"reference has shape {np.shape(waveform)} at {sample_rate} Hz: give one recording, [T] or [C, T]"
        )
    seconds = channels.shape[1] / sample_rate
    if seconds < SHORTEST_S:
        raise ValueError(f"reference is {seconds:.2f} s long: give at least {SHORTEST_S:.0f} s of speech")
    if not np.isfinite(channels).all():
        raise ValueError("reference contains NaN or infinite samples: record or convert it again")
    return channels


def to_mono(channels: np.ndarray, notes: list[str]) -> np.ndarray:
    """Mix ``[C, T]`` down to ``[T]`` and repair what would spoil it; add each change to ``notes``."""
    if (peak := float(np.abs(channels).max())) > OVER_FULL_SCALE:
        notes.append(f"the recording is {20 * math.log10(peak):.0f} dB over full scale: it was turned down")
        channels = channels / np.float32(peak)
    offsets = channels.mean(axis=1, dtype=np.float64)
    deviations = channels.std(axis=1, dtype=np.float64)
    offsets[np.abs(offsets) <= np.maximum(LEAST_OFFSET, OFFSET_TO_LEVEL * deviations)] = 0
    if offsets.any():
        notes.append("the recording has a constant offset (DC): it was removed")
        channels = (channels - offsets[:, None]).astype(np.float32)
    mono: np.ndarray = channels.mean(axis=0)
    levels = [_level(channel) for channel in channels]
    # The mean of one channel and silent ones has the level max / C.
    if _level(mono) < 0.5 * max(levels) / len(levels):
        notes.append("the recording's channels cancel each other out: only the loudest is used")
        mono = np.ascontiguousarray(channels[int(np.argmax(levels))])
    return mono


def _trim(mono: np.ndarray, rate: int, notes: list[str]) -> np.ndarray:
    levels = _block_levels(mono, rate)
    silence = from_db(SILENCE_DBFS)
    if levels.max() < silence:
        raise ValueError(f"reference is silent (below {SILENCE_DBFS:.0f} dBFS): give a recording of speech")
    loud = np.flatnonzero(levels >= max(silence, levels.max() * from_db(-SILENCE_BELOW_LOUDEST_DB)))
    block, margin, allowed = _block(rate), round(MARGIN_S * rate), LONGEST_SILENCE_S * rate
    start, end = int(loud[0]) * block, min((int(loud[-1]) + 1) * block, mono.size)
    if (end - start) / rate < SHORTEST_S and max(start, mono.size - end) > allowed:
        raise ValueError(
            f"reference contains only {(end - start) / rate:.2f} s of sound: give at least {SHORTEST_S:.0f} s of speech"
        )
    first = max(start - margin, 0) if start > allowed else 0
    last = min(end + margin, mono.size) if mono.size - end > allowed else mono.size
    cut = (mono.size - (last - first)) / rate
    if cut:
        notes.append(f"{cut:.1f} s of silence at the recording's ends were cut off")
    return mono[first:last]


def _shorten(mono: np.ndarray, rate: int, refuse_long: bool, notes: list[str]) -> np.ndarray:
    seconds = mono.size / rate
    if seconds <= LONGEST_S + OVERRUN_S:
        return mono
    if refuse_long:
        raise ValueError(
            f"reference is {seconds:.1f} s long and ICL takes at most {LONGEST_S:.0f} s: cut it to {LONGEST_S:.0f} s "
            "or less and give the transcript of that part, or use x-vector mode"
        )
    notes.append(f"reference is {seconds:.1f} s long: only its first {LONGEST_S:.0f} s are used")
    return mono[: round(LONGEST_S * rate)]


def _judge(mono: np.ndarray, rate: int, notes: list[str]) -> None:
    clipped = float(np.mean((mono == mono.max()) | (mono == mono.min())))
    if clipped > CLIPPED_SHARE:
        notes.append(f"{clipped:.0%} of the recording is clipped: a quieter recording makes a better voice")
    quiet, loud = np.quantile(_block_levels(mono, rate), (0.1, 0.95))
    if loud < quiet * from_db(STEADY_DB):
        notes.append("the recording's level hardly changes, like noise or a tone: is it speech?")
    elif _is_narrow(mono, rate):
        notes.append(
            "the recording has nothing above 4 kHz, like a telephone's: its clone will sound like somebody else; give "
            "one that was recorded at 16 kHz or more"
        )


def is_cut_off(mono: np.ndarray, rate: int) -> bool:
    """Return whether a recording, float ``[T]``, ends within its speech, not in a pause."""
    levels, last = _block_levels(mono, rate), _level(mono[-_block(rate) :])
    pauses = float(np.quantile(levels, 0.1))
    return bool(last > levels.max() * from_db(-ABRUPT_DB) and last > pauses * from_db(ABOVE_PAUSES_DB))


def _is_narrow(mono: np.ndarray, rate: int) -> bool:
    """Return whether nothing is above NARROW_HZ, where wider-band speech has its s and f."""
    import scipy.signal  # slow to import

    hertz, power = scipy.signal.welch(mono, rate, nperseg=min(SPECTRUM_SAMPLES, mono.size))
    speech = float(power[(hertz >= SPEECH_HZ[0]) & (hertz <= SPEECH_HZ[1])].sum())
    return float(power[hertz > NARROW_HZ].sum()) <= speech * 10 ** (NARROW_DB / 10)


def _level(waveform: np.ndarray) -> float:
    return math.sqrt(float(np.mean(np.square(waveform, dtype=np.float64))))


def _block(rate: int) -> int:
    return max(1, round(BLOCK_S * rate))


def _block_levels(mono: np.ndarray, rate: int) -> np.ndarray:
    """Return the level of each block of a waveform, ``[N]``; the last block may be shorter."""
    return np.sqrt(block_power(mono, np.arange(0, mono.size, _block(rate))))


def block_power(mono: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the mean square of each block of a waveform, float64 ``[N]``; ``starts``: of the blocks, ``[N]``."""
    sums = np.add.reduceat(np.square(mono, dtype=np.float64), starts)
    power: np.ndarray = sums / np.diff(np.append(starts, mono.size))
    return power
