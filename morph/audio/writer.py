"""Encode samples as streams or complete files: uncompressed, with libsndfile, or with FFmpeg (PyAV)."""

import inspect
import io
import os
import struct
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ...postprocess.convert import to_s16
from .formats import FORMATS, Format

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
Parts: TypeAlias = Generator[bytes, np.ndarray | None, None]


class Encoder:
    """An encoder of float32 samples within -1..1.

    ``parts`` gets samples, and None after the last, and yields the bytes that are ready. It opens with the first.
    """

    def __init__(self, parts: Parts):
        self._parts = parts
        next(parts)

    def add(self, samples: np.ndarray) -> bytes:
        """Encode the next samples ``[n]``; return the bytes that are ready, maybe none."""
        return self._parts.send(samples)

    def finish(self) -> bytes:
        return self._parts.send(None)

    def close(self) -> None:
        """Release resources, also in the middle of a sound."""
        self._parts.close()


def open_encoder(name: str, sample_rate: int) -> Encoder:
    """Return an encoder of a mono stream of one of SERVED; close it when the stream ends."""
    kind = encoder_kind(name, complete=False)
    if kind == FFMPEG:
        return Encoder(_stream_ffmpeg(name, sample_rate))
    if kind == LIBSNDFILE:
        return Encoder(_pipe_mp3(sample_rate))
    return Encoder(_stream_plain(wav_header(sample_rate, None) if name == "wav" else b""))


def _stream_plain(head: bytes) -> Parts:
    """Write a header and 16-bit PCM, little endian."""
    part = b""
    while True:
        samples = yield part
        part, head = head + (b"" if samples is None else to_s16(samples).tobytes()), b""


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
    head = struct.pack("<4sI8sIHHIIHH", b"RIFF", riff, b"WAVEfmt ", 16, 1, 1, sample_rate, 2 * sample_rate, 2, 16)
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


def _pipe_mp3(sample_rate: int) -> Parts:
    """Write mp3 with libsndfile into a pipe; ``encode_by_libsndfile`` says why not with FFmpeg."""
    samples = yield b""
    held, least = b"", SILENT_START
    out, into = os.pipe()
    os.set_blocking(out, False)
    try:
        with _open_pipe(into, sample_rate) as file:
            while samples is not None:
                for start in range(0, len(samples), PIPED_SAMPLES):
                    add_samples(file, samples[start : start + PIPED_SAMPLES])
                    held += _read_pipe(out)
                ready = b""
                if len(held) > least:
                    ready, held, least = held, b"", 0
                samples = yield ready
        yield held + _read_pipe(out)
    finally:
        os.close(out)


def _open_pipe(into: int, sample_rate: int) -> Any:
    try:
        level = {"bitrate_mode": "CONSTANT", "compression_level": PIPED_LEVEL}
        return open_file(into, sample_rate, "mp3", **level)
    except BaseException:
        with suppress(OSError):  # libsndfile may have closed it
            os.close(into)
        raise


def _read_pipe(out: int) -> bytes:
    try:
        return os.read(out, PIPE_BYTES)
    except BlockingIOError:  # nothing yet
        return b""


def encode_tagged(waveform: np.ndarray, sample_rate: int, name: str, kbit_s: int, metadata: Mapping[str, str]) -> bytes:
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
    made, file = FORMATS[name], io.BytesIO()
    bit_rate = 1000 * min(kbit_s, made.most_kbit_s * len(waveform))
    with _ffmpeg(file, made, sample_rate, len(waveform), bit_rate) as (container, write):
        container.metadata.update(metadata)
        if waveform.size:
            write(waveform)
    return file.getvalue()


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

    def take(self) -> bytes:
        taken = bytes(self)
        self.clear()
        return taken


def _stream_ffmpeg(name: str, sample_rate: int) -> Parts:
    samples = yield b""
    sink, made = _Sink(), FORMATS[name]
    options = {"flush_packets": "1", **made.stream_options}
    with _ffmpeg(sink, made, sample_rate, 1, 1000 * made.kbit_s, options) as (_, write):
        while samples is not None:
            for start in range(0, len(samples), BLOCK):
                write(samples[None, start : start + BLOCK])
            samples = yield sink.take()
    yield sink.take()


@contextmanager
def _ffmpeg(
    file: Any, made: Format, sample_rate: int, channels: int, bit_rate: int, options: Any = None
) -> Iterator[tuple[Any, Callable[[np.ndarray], None]]]:
    """Yield an open container, and what writes samples ``[C, n]`` into it; it is complete at the end."""
    import av

    layout, position = "mono" if channels == 1 else "stereo", 0
    with av.open(file, "w", format=made.muxer, options=options or {}) as container:
        stream: Any = container.add_stream(made.codec, rate=sample_rate, layout=layout)
        if bit_rate:
            stream.bit_rate = bit_rate

        def write(samples: np.ndarray) -> None:
            nonlocal position
            packed = samples.T.reshape(1, -1)  # channels are interleaved
            packed = np.ascontiguousarray(packed, np.float32) if made.lossy else to_s16(packed)
            frame = av.AudioFrame.from_ndarray(packed, format="flt" if made.lossy else "s16", layout=layout)
            frame.sample_rate, frame.pts = sample_rate, position
            position += frame.samples
            container.mux(stream.encode(frame))

        yield container, write
        container.mux(stream.encode(None))
