"""Encode samples as streams or complete files: uncompressed, with libsndfile, or with FFmpeg (PyAV)."""

import inspect
import io
import os
import struct
import tempfile
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ...postprocess.pcm import to_s16
from .formats import FORMATS

PIPED_LEVEL = 0.6  # of libsndfile, for mp3: 64 kb/s
PIPED_SAMPLES = 7680  # less than 4 kB of mp3, which the smallest pipe holds
PIPE_BYTES = 1 << 16  # the largest that a pipe holds
# Bytes, three frames: LAME's leading frames, without sound, are not sent alone.
SILENT_START = 576
# Kinds of encoders.
PLAIN, LIBSNDFILE, FFMPEG = "plain", "libsndfile", "FFmpeg"
UNKNOWN_LENGTH = 0xFFFFFFFF
BLOCK = 1920  # samples; small, so that playback can begin early
PORTION = 240_000  # samples: libsndfile fails with long arrays in some formats
MOST_CHANNELS = 2


class Encoder:
    """An encoder of float32 samples within -1..1; this one writes a header and 16-bit PCM, little endian."""

    def __init__(self, head: bytes = b""):
        self._head = head

    def add(self, samples: np.ndarray) -> bytes:
        """Encode the next samples ``[n]``; return the bytes that are ready, maybe none."""
        head, self._head = self._head, b""
        return head + to_s16(samples).tobytes()

    def finish(self) -> bytes:
        return self._head  # of a stream without samples

    def close(self) -> None:
        """Release resources, also in the middle of a sound."""


def open_encoder(name: str, sample_rate: int) -> Encoder:
    """Return an encoder of a mono stream of one of SERVED; close it when the stream ends.

    FFmpeg and libsndfile are opened with the first samples.
    """
    kind = encoder_kind(name, complete=False)
    if kind == FFMPEG:
        return _Ffmpeg(name, sample_rate, bit_rate=1000 * FORMATS[name].kbit_s)
    if kind == LIBSNDFILE:
        return _PipedMp3(sample_rate)
    return Encoder(wav_header(sample_rate, None) if name == "wav" else b"")


def encode(samples: np.ndarray, sample_rate: int, name: str) -> bytes:
    """Return float ``[T]`` within -1..1 as a complete file of one of SERVED."""
    kind = encoder_kind(name, complete=True)
    if kind == LIBSNDFILE:
        return encode_by_libsndfile(samples, sample_rate, name)
    if kind == FFMPEG:
        return encode_tagged(samples[None], sample_rate, name, FORMATS[name].kbit_s, {})
    content = to_s16(samples).tobytes()
    return wav_header(sample_rate, len(content)) + content if name == "wav" else content


def encoder_kind(name: str, complete: bool) -> str:
    """Return the encoder of one of SERVED, for a file or a stream: PLAIN, LIBSNDFILE or FFMPEG."""
    made = FORMATS[name]
    if not made.held_s:
        return PLAIN
    by_libsndfile = libsndfile_has(name) and not made.served_by_ffmpeg if complete else pipes_mp3(name)
    return LIBSNDFILE if by_libsndfile else FFMPEG


def wav_header(sample_rate: int, size: int | None) -> bytes:
    """Return a WAV header of mono 16 bits for ``size`` bytes of samples; None: unknown."""
    riff, data = (UNKNOWN_LENGTH,) * 2 if size is None else (size + 36, size)
    head = struct.pack(
        "<4sI8sIHHIIHH", b"RIFF", riff, b"WAVEfmt ", 16, 1, 1, sample_rate, 2 * sample_rate, 2, 16
    )
    return head + struct.pack("<4sI", b"data", data)


def libsndfile_has(name: str) -> bool:
    """Return whether the installed libsndfile writes a format: it has mp3 since version 1.1."""
    import soundfile

    names = FORMATS[name].libsndfile
    return names is not None and names[0] in soundfile.available_formats()


def pipes_mp3(name: str) -> bool:
    """Return whether libsndfile encodes a format's streams: constant-rate mp3, through a pipe, not on Windows."""
    import soundfile

    if name != "mp3" or os.name != "posix" or not libsndfile_has(name):
        return False
    return "bitrate_mode" in inspect.signature(soundfile.SoundFile.__init__).parameters  # 0.13 and later


def open_file(target: Path | int, sample_rate: int, name: str, **more: Any) -> Any:
    """Return libsndfile's writer of a mono file or file descriptor; fill it with ``add_samples``."""
    import soundfile

    kind, subtype = FORMATS[name].libsndfile or ("", "")
    return soundfile.SoundFile(target, "w", sample_rate, 1, subtype, format=kind, **more)


def add_samples(file: Any, samples: np.ndarray) -> None:
    """Write float ``[T]`` into what ``open_file`` returned."""
    for start in range(0, len(samples), PORTION):
        file.write(to_s16(samples[start : start + PORTION]))


def encode_by_libsndfile(samples: np.ndarray, sample_rate: int, name: str) -> bytes:
    """Return float ``[T]`` as a complete file of one of FILES, encoded in few calls that release the GIL.

    FFmpeg's encoders need the GIL for each packet: beside a busy thread 20 s of mp3 took 7.4 s (0.15 s on an idle
    machine), this way 0.15 s (0.1 s).
    """
    # Not to a file object: Python would write each block.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        with open_file(path, sample_rate, name) as file:
            add_samples(file, samples)
        return path.read_bytes()


class _PipedMp3(Encoder):
    """An mp3 stream, which libsndfile writes into a pipe; ``encode_by_libsndfile`` says why not FFmpeg."""

    def __init__(self, sample_rate: int):
        self._sample_rate = sample_rate
        self._file: Any = None
        self._out = -1
        self._held = bytearray()
        self._least = SILENT_START

    def _open(self) -> None:
        if self._file is not None:
            return
        self._out, into = os.pipe()
        os.set_blocking(self._out, False)
        level = {"bitrate_mode": "CONSTANT", "compression_level": PIPED_LEVEL}
        try:
            self._file = open_file(into, self._sample_rate, "mp3", **level)
        except BaseException:
            for end in (self._out, into):
                with suppress(OSError):  # libsndfile may have closed its end
                    os.close(end)
            raise

    def add(self, samples: np.ndarray) -> bytes:
        self._open()
        for start in range(0, len(samples), PIPED_SAMPLES):
            add_samples(self._file, samples[start : start + PIPED_SAMPLES])
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


def encode_tagged(
    waveform: np.ndarray, sample_rate: int, name: str, kbit_s: int, metadata: Mapping[str, str]
) -> bytes:
    """Return FFmpeg's file of a mono or stereo ``waveform``, float ``[C, T]`` within -1..1; flac and wav have 16 bits.

    Args:
        sample_rate: in Hz.
        name: a format with a codec.
        kbit_s: of lossy formats, limited to the encoder's highest; 0: its default.
        metadata: texts by FFmpeg's names; wav keeps "title", "artist" and "comment" only.
    Raises:
        ValueError: as ``check_fits``.
    """
    check_fits(waveform, sample_rate, name)
    bit_rate = 1000 * min(kbit_s, FORMATS[name].most_kbit_s * len(waveform))
    with closing(_Ffmpeg(name, sample_rate, len(waveform), bit_rate, metadata)) as encoder:
        encoder.add(waveform)
        return encoder.finish()


def check_fits(waveform: np.ndarray, sample_rate: int, name: str) -> None:
    """Raise ValueError if a file of this format cannot hold ``waveform`` (``[C, T]``), or it has NaN."""
    if waveform.shape[0] > MOST_CHANNELS:
        raise ValueError(f"audio has {waveform.shape[0]} channels: mix it to mono or stereo first")
    rates = FORMATS[name].rates
    if rates and sample_rate not in rates:
        shown = ", ".join(map(str, rates))
        raise ValueError(
            f"audio has {sample_rate} samples per second, and {name} holds {shown}: choose flac or wav, or resample it"
        )
    if not np.isfinite(waveform).all():
        raise ValueError("audio contains NaN or infinity: render or record it again")


class _Sink(bytearray):
    """A write-only file that cannot seek, like a socket."""

    write = bytearray.extend


class _Ffmpeg(Encoder):
    """A stream, or with ``metadata`` a complete file, returned by ``finish``."""

    def __init__(
        self,
        name: str,
        sample_rate: int,
        channels: int = 1,
        bit_rate: int = 0,
        metadata: Mapping[str, str] | None = None,
    ):
        self._format, self._sample_rate, self._bit_rate = FORMATS[name], sample_rate, bit_rate
        self._layout, self._metadata = "mono" if channels == 1 else "stereo", metadata
        self._file: Any = _Sink() if metadata is None else io.BytesIO()
        self._container: Any = None
        self._stream: Any = None
        self._position = 0

    def _open(self) -> None:
        if self._container is not None:
            return
        import av

        made, is_stream = self._format, self._metadata is None
        options = {"flush_packets": "1", **made.stream_options} if is_stream else {}
        self._container = av.open(self._file, "w", format=made.muxer, options=options)
        self._container.metadata.update(self._metadata or {})
        self._stream = self._container.add_stream(made.codec, rate=self._sample_rate, layout=self._layout)
        if self._bit_rate:
            self._stream.bit_rate = self._bit_rate

    def add(self, samples: np.ndarray) -> bytes:
        """See ``Encoder.add``; a file's samples may be ``[C, n]``, and are added in one piece."""
        import av

        self._open()
        kind = "flt" if self._format.lossy else "s16"
        packed = samples.T.reshape(1, -1)  # channels are interleaved
        packed = packed.astype(np.float32) if self._format.lossy else to_s16(packed)
        length = BLOCK if self._metadata is None else max(1, packed.size)
        for start in range(0, packed.size, length):
            block = np.ascontiguousarray(packed[:, start : start + length])
            frame = av.AudioFrame.from_ndarray(block, format=kind, layout=self._layout)
            frame.sample_rate, frame.pts = self._sample_rate, self._position
            self._position += frame.samples
            self._container.mux(self._stream.encode(frame))
        return self._ready()

    def finish(self) -> bytes:
        self._open()
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._ready() if self._metadata is None else bytes(self._file.getvalue())

    def close(self) -> None:
        container, self._container, self._stream = self._container, None, None
        if container is not None:
            container.close()

    def _ready(self) -> bytes:
        if self._metadata is not None:
            return b""
        ready = bytes(self._file)
        self._file.clear()
        return ready
