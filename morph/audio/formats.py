"""The table of sound formats, of which each front end offers its part. Imports nothing: argument parsers read it."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Format:
    """One format of sound files and streams.

    Args:
        media_type: of the server's answers; "": the server does not offer the format.
        muxer, codec: FFmpeg's names; no codec: FFmpeg only reads it.
        stream_options: FFmpeg's, for a container that is written while it is sent.
        libsndfile: its names of the format and the subtype; none: it cannot write files of it.
        served_by_ffmpeg: whether the server's complete files are FFmpeg's although libsndfile has the format.
        rates: the sample rates that it can hold, in Hz; none: any.
        most_kbit_s: the highest bit rate that the encoder takes for one channel; 0: it is lossless.
        kbit_s: of the server's sound; 0: the encoder's own.
        held_s: seconds that FFmpeg or libsndfile hold back of a stream, at most; 0: neither makes it.
    """

    media_type: str = ""
    muxer: str = ""
    codec: str = ""
    stream_options: dict[str, str] = field(default_factory=dict)
    libsndfile: tuple[str, str] | None = None
    served_by_ffmpeg: bool = False
    rates: tuple[int, ...] = ()
    most_kbit_s: int = 0
    kbit_s: int = 0
    held_s: float = 0.0

    @property
    def lossy(self) -> bool:
        return self.most_kbit_s > 0


FORMATS = {
    "flac": Format("audio/flac", "flac", "flac", libsndfile=("FLAC", "PCM_16"), held_s=0.08),
    "wav": Format("audio/wav", "wav", "pcm_s16le", libsndfile=("WAV", "PCM_16")),
    "mp3": Format(
        "audio/mpeg",
        "mp3",
        "libmp3lame",
        {"write_xing": "0", "id3v2_version": "0"},
        ("MP3", "MPEG_LAYER_III"),
        rates=(8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000),
        most_kbit_s=320,
        # LAME's own 32 kb/s leave speech at 18 dB above what they lose, these at 25 (recordings/austen.flac).
        kbit_s=64,
        held_s=0.08,
    ),
    "opus": Format(
        "audio/ogg",
        "ogg",
        "libopus",
        {"page_duration": "20000"},  # microseconds: a page per packet
        ("OGG", "OPUS"),
        served_by_ffmpeg=True,
        rates=(8000, 12000, 16000, 24000, 48000),
        most_kbit_s=256,
        held_s=0.03,
    ),
    "ogg": Format(muxer="ogg", libsndfile=("OGG", "VORBIS")),
    "aac": Format("audio/aac", "adts", "aac", most_kbit_s=144, held_s=0.08),
    "pcm": Format("audio/pcm"),
}
# Of the server's answers: media types.
SERVED = {name: one.media_type for name, one in FORMATS.items() if one.media_type}
# By suffix, what the command line writes, and FFmpeg's name to read it: guessing could open other files.
FILES = {f".{name}": one.muxer for name, one in FORMATS.items() if one.libsndfile}
# What Save Speech writes, with metadata inside.
TAGGED = {name: one for name, one in FORMATS.items() if one.libsndfile and one.codec}
# By suffix, the recordings that libsndfile cannot read, and FFmpeg's name to read them.
RECORDED = {".m4a": "mov", ".mp4": "mov", ".aac": "aac", ".webm": "matroska"}
# Formats that can be heard while they are written without an encoder.
PLAIN_STREAMS = tuple(name for name, one in FORMATS.items() if one.media_type and not one.held_s)
