"""Samples to the bytes of a format, chunk by chunk. What was encoded is complete only after ``finish``."""

from __future__ import annotations

import inspect
import io
import os
import struct
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ...postprocess.pcm import to_s16

# Media types.
FORMATS: dict[str, str] = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
# How FFmpeg (through PyAV) makes the compressed ones: container, codec, options of a streamed container.
AT_ONCE = {"flush_packets": "1"}
MADE_BY_FFMPEG: dict[str, tuple[str, str, dict[str, str]]] = {
    "mp3": ("mp3", "libmp3lame", {"write_xing": "0", "id3v2_version": "0"}),
    "opus": ("ogg", "libopus", {"page_duration": "20000"}),  # microseconds: a page per packet
    "aac": ("adts", "aac", {}),
    "flac": ("flac", "flac", {}),
}
# LAME's own 32 kb/s leave speech at 18 dB above what they lose, these at 25 (recordings/austen.flac).
BIT_RATES = {"mp3": 64_000}
# How libsndfile makes complete files: format, subtype.
MADE_BY_LIBSNDFILE = {"mp3": ("MP3", "MPEG_LAYER_III"), "flac": ("FLAC", "PCM_16")}
# Seconds of a stream's sound that they hold back, at most (tests/serve/audio/test_encoders.py).
HELD_S = {"mp3": 0.08, "opus": 0.03, "aac": 0.08, "flac": 0.08}
PIPED_LEVEL = 0.6  # of libsndfile, for mp3: 64 kb/s
PIPED_SAMPLES = 7680  # less than 4 kB of mp3: the smallest pipe holds them until they are read
PIPE_BYTES = 1 << 16  # that any holds
# Bytes at its rate, three frames: what LAME puts before the sound is not sent without some of that.
SILENT_START = 576
# What makes a format.
PLAIN, LIBSNDFILE, FFMPEG = "plain", "libsndfile", "FFmpeg"
UNKNOWN_LENGTH = 0xFFFFFFFF
BLOCK = 1920  # samples: small blocks are heard early


class Encoder:
    """Turns float32 samples within -1..1 into bytes: this one into signed 16 bits, little endian, without a header."""

    def add(self, samples: np.ndarray) -> bytes:
        """Encode the next samples ``[n]``; return the bytes that are ready, maybe none."""
        return to_s16(samples).tobytes()

    def finish(self) -> bytes:
        """Return the rest."""
        return b""

    def close(self) -> None:
        """Release what it holds, also in the middle of a sound."""


def open_encoder(name: str, sample_rate: int, complete: bool = False) -> Encoder:
    """Return an encoder of one of FORMATS; close it when its answer ends.

    Args:
        name: of the format. FFmpeg's are opened by the first samples: an answer without any needs no encoder.
        sample_rate: in Hz.
        complete: for a file, whose header has the true length.
    """
    made_by = maker_of(name, complete)
    if made_by == FFMPEG:
        return _Ffmpeg(name, sample_rate, complete)
    if made_by == LIBSNDFILE:
        return _CompleteFile(name, sample_rate) if complete else _PipedMp3(sample_rate)
    if name == "pcm":
        return Encoder()
    return _CompleteWav(sample_rate) if complete else _StreamedWav(sample_rate)


def maker_of(name: str, complete: bool) -> str:
    """Return what makes a format, as a file or a stream: PLAIN, LIBSNDFILE or FFMPEG."""
    if name not in MADE_BY_FFMPEG:
        return PLAIN
    return LIBSNDFILE if (by_libsndfile(name) if complete else pipes_mp3(name)) else FFMPEG


class _StreamedWav(Encoder):
    """One header with sizes that say "until the end", then samples."""

    def __init__(self, sample_rate: int):
        self._head = wav_header(sample_rate, None)

    def add(self, samples: np.ndarray) -> bytes:
        head, self._head = self._head, b""
        return head + super().add(samples)

    def finish(self) -> bytes:
        return self._head  # of a stream without samples


class _CompleteWav(Encoder):
    """Header and samples at the end."""

    def __init__(self, sample_rate: int):
        self._sample_rate, self._samples = sample_rate, bytearray()

    def add(self, samples: np.ndarray) -> bytes:
        self._samples += super().add(samples)
        return b""

    def finish(self) -> bytes:
        return wav_header(self._sample_rate, len(self._samples)) + bytes(self._samples)


def wav_header(sample_rate: int, size: int | None) -> bytes:
    """Return a WAV header of mono 16 bits for ``size`` bytes of samples; None: their number is not known."""
    riff, data = (UNKNOWN_LENGTH,) * 2 if size is None else (size + 36, size)
    head = struct.pack(
        "<4sI8sIHHIIHH", b"RIFF", riff, b"WAVEfmt ", 16, 1, 1, sample_rate, 2 * sample_rate, 2, 16
    )
    return head + struct.pack("<4sI", b"data", data)


def by_libsndfile(name: str) -> bool:
    """Return whether libsndfile makes complete files of a format: before its version 1.1 it knew no mp3."""
    import soundfile

    return name in MADE_BY_LIBSNDFILE and MADE_BY_LIBSNDFILE[name][0] in soundfile.available_formats()


def pipes_mp3(name: str) -> bool:
    """Return whether libsndfile makes the streams of a format: mp3 of one bit rate, through a pipe, not on Windows."""
    import soundfile

    if name != "mp3" or os.name != "posix" or not by_libsndfile(name):
        return False
    return "bitrate_mode" in inspect.signature(soundfile.SoundFile.__init__).parameters  # 0.13 and later


class _PipedMp3(Encoder):
    """A stream of mp3, which libsndfile writes into a pipe in one call. Why not FFmpeg: see ``_CompleteFile``.

    The first samples open it, as FFmpeg's: a request that waits needs no file descriptors for it.
    """

    def __init__(self, sample_rate: int):
        self._sample_rate = sample_rate
        self._file: Any = None
        self._out = -1
        self._held = bytearray()
        self._least = SILENT_START

    def _open(self) -> None:
        import soundfile

        if self._file is not None:
            return
        kind, subtype = MADE_BY_LIBSNDFILE["mp3"]
        self._out, into = os.pipe()
        os.set_blocking(self._out, False)
        try:
            self._file = soundfile.SoundFile(
                into, "w", self._sample_rate, 1, subtype, format=kind, bitrate_mode="CONSTANT",
                compression_level=PIPED_LEVEL,
            )  # fmt: skip
        except BaseException:
            for end in (self._out, into):
                with suppress(OSError):  # libsndfile may have closed its end
                    os.close(end)
            raise

    def add(self, samples: np.ndarray) -> bytes:
        self._open()
        for start in range(0, len(samples), PIPED_SAMPLES):
            self._file.write(to_s16(samples[start : start + PIPED_SAMPLES]))
            self._read()
        return self._take() if len(self._held) > self._least else b""

    def finish(self) -> bytes:
        self._open()
        self._file.close()
        self._read()
        return self._take()

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
            os.close(self._out)

    def _read(self) -> None:
        with suppress(BlockingIOError):  # nothing yet
            self._held += os.read(self._out, PIPE_BYTES)

    def _take(self) -> bytes:
        taken, self._held, self._least = bytes(self._held), bytearray(), 0
        return taken


class _CompleteFile(Encoder):
    """A compressed file, made in one go that needs no Python.

    FFmpeg's encoders come back to Python for each packet, and wait for their turn there: beside a busy thread 20 s of
    mp3 took 7.4 s for 0.15 s on an idle computer, and this way 0.15 for 0.1.
    """

    def __init__(self, name: str, sample_rate: int):
        self._name, self._sample_rate = name, sample_rate
        self._samples = [np.zeros(0, np.float32)]

    def add(self, samples: np.ndarray) -> bytes:
        self._samples.append(samples)
        return b""

    def finish(self) -> bytes:
        import soundfile

        kind, subtype = MADE_BY_LIBSNDFILE[self._name]
        samples = to_s16(np.concatenate(self._samples))
        # To a file object each block would be written by Python.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, self._name)
            soundfile.write(path, samples, self._sample_rate, format=kind, subtype=subtype)
            return path.read_bytes()


class _Sink:
    """A file that can be written only, as a socket."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def write(self, data: bytes) -> int:
        """Keep bytes until ``take``."""
        self._bytes += data
        return len(data)

    def take(self) -> bytes:
        """Return what was written since the last call."""
        taken = bytes(self._bytes)
        self._bytes.clear()
        return taken


class _Ffmpeg(Encoder):
    """A compressed format; the end of the sound is in ``finish``."""

    def __init__(self, name: str, sample_rate: int, complete: bool):
        self._name, self._sample_rate, self._complete = name, sample_rate, complete
        self._file: Any = io.BytesIO() if complete else _Sink()
        self._container: Any = None
        self._stream: Any = None
        self._position = 0

    def _open(self) -> None:
        if self._container is not None:
            return
        import av

        container, codec, options = MADE_BY_FFMPEG[self._name]
        streaming = {} if self._complete else {**AT_ONCE, **options}
        self._container = av.open(self._file, "w", format=container, options=streaming)
        self._stream = self._container.add_stream(codec, rate=self._sample_rate, layout="mono")
        if self._name in BIT_RATES:
            self._stream.bit_rate = BIT_RATES[self._name]

    def add(self, samples: np.ndarray) -> bytes:
        import av

        self._open()
        whole = to_s16(samples)
        for start in range(0, len(whole), BLOCK):
            block = whole[None, start : start + BLOCK]
            frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(block), format="s16", layout="mono")
            frame.sample_rate, frame.pts = self._sample_rate, self._position
            self._position += block.shape[1]
            self._container.mux(self._stream.encode(frame))
        return self._ready()

    def finish(self) -> bytes:
        self._open()
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return bytes(self._file.getvalue()) if self._complete else self._ready()

    def close(self) -> None:
        """Close: the container refers to its streams, and they to it, until then."""
        container, self._container, self._stream = self._container, None, None
        if container is not None:
            container.close()

    def _ready(self) -> bytes:
        return b"" if self._complete else bytes(self._file.take())
