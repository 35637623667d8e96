"""Sound files with metadata inside: wav, flac, mp3 and opus, with PyAV, which ComfyUI brings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from ...postprocess.pcm import to_s16

if TYPE_CHECKING:
    from av.audio.stream import AudioStream

MOST_CHANNELS = 2


@dataclass(frozen=True)
class Format:
    """A kind of sound file.

    Args:
        codec: FFmpeg's name of the encoder.
        lossy: whether it has a bit rate.
        rates: the sample rates that it can hold, in Hz; none: any.
        most_kbit_s: the highest bit rate that the encoder takes for one channel.
    """

    codec: str
    lossy: bool = False
    rates: tuple[int, ...] = ()
    most_kbit_s: int = 0


MP3_RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
OPUS_RATES = (8000, 12000, 16000, 24000, 48000)
FORMATS = {
    "flac": Format("flac"),
    "wav": Format("pcm_s16le"),
    "mp3": Format("libmp3lame", True, MP3_RATES, 320),
    "opus": Format("libopus", True, OPUS_RATES, 256),
}
# By suffix, so that FFmpeg guesses nothing from a file: some kinds of files make it open others.
DEMUXERS = {".flac": "flac", ".wav": "wav", ".mp3": "mp3", ".opus": "ogg", ".ogg": "ogg"}


def check_fits(waveform: np.ndarray, sample_rate: int, kind: str) -> None:
    """Raise ValueError if a file of this kind cannot hold ``waveform`` (``[C, T]``), or no file can: it has NaN."""
    if waveform.shape[0] > MOST_CHANNELS:
        raise ValueError(f"audio has {waveform.shape[0]} channels: mix it to mono or stereo first")
    rates = FORMATS[kind].rates
    if rates and sample_rate not in rates:
        shown = ", ".join(map(str, rates))
        raise ValueError(
            f"audio has {sample_rate} samples per second, and {kind} holds {shown}: choose flac or wav, or resample it"
        )
    if not np.isfinite(waveform).all():
        raise ValueError("audio contains NaN or infinity: render or record it again")


def encode(
    waveform: np.ndarray, sample_rate: int, kind: str, kbit_s: int, metadata: Mapping[str, str]
) -> bytes:
    """Return a sound file; flac and wav have 16 bits.

    Args:
        waveform: float ``[C, T]`` within -1..1, mono or stereo.
        sample_rate: in Hz.
        kind: one of FORMATS.
        kbit_s: of mp3 and opus; opus takes at most 256 a channel.
        metadata: texts by FFmpeg's names; wav keeps "title", "artist" and "comment" only.

    Raises:
        ValueError: as ``check_fits``.
    """
    import av

    check_fits(waveform, sample_rate, kind)
    lossy = FORMATS[kind].lossy
    layout = "mono" if waveform.shape[0] == 1 else "stereo"
    buffer = BytesIO()
    with av.open(buffer, mode="w", format=kind) as container:
        container.metadata.update(metadata)
        added = container.add_stream(FORMATS[kind].codec, rate=sample_rate, layout=layout)
        stream = cast("AudioStream", added)
        if lossy:
            stream.bit_rate = 1000 * min(kbit_s, FORMATS[kind].most_kbit_s * waveform.shape[0])
        samples = waveform.T.reshape(1, -1)  # left and right alternate
        packed = samples.astype(np.float32) if lossy else to_s16(samples)
        frame = av.AudioFrame.from_ndarray(packed, format="flt" if lossy else "s16", layout=layout)
        frame.sample_rate, frame.pts = sample_rate, 0
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return buffer.getvalue()


def read_comment(path: Path) -> str:
    """Return the comment inside a sound file, or "".

    Raises:
        ValueError: for a file that is none of DEMUXERS, or cannot be read.
    """
    import av

    demuxer = DEMUXERS.get(path.suffix.lower())
    if demuxer is None:
        raise ValueError(f"{path.name} is not one of {', '.join(DEMUXERS)}: choose a file of Save Speech")
    try:
        with path.open("rb") as file, av.open(file, format=demuxer, metadata_errors="replace") as container:
            texts = [container.metadata, *(stream.metadata for stream in container.streams)]
            found = {key.lower(): text for one in texts for key, text in one.items()}
    except (OSError, av.FFmpegError) as error:
        raise ValueError(f"{path.name} cannot be read as {demuxer}: choose another file") from error
    return found.get("comment", "")
