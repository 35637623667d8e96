"""The table of sound formats (``formats.json``), of which each front end offers its part."""
# Imports nothing of the pack: argument parsers read it.

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Format:
    """One format of sound files and streams.

    Args:
        media_type: of the server's answers; "": the server does not offer the format.
        muxer, codec: FFmpeg's names; no codec: FFmpeg only reads it.
        stream_options: FFmpeg's, for a container that is written while it is sent; a page of opus (in microseconds) per
            packet.
        libsndfile: its names of the format and the subtype; none: it cannot write the format.
        served_by_ffmpeg: whether FFmpeg encodes the server's complete files although libsndfile could.
        rates: the sample rates that it can hold, in Hz; none: any.
        most_kbit_s: the encoder's highest bit rate for one channel; 0: lossless.
        kbit_s: of the server's sound; 0: the encoder's default. LAME's, 32 kb/s, has an SNR of 18 dB on speech, 64 kb/s
            one of 25 (recordings/austen.flac).
        held_s: seconds that FFmpeg or libsndfile buffer of a stream, at most; 0: neither encodes it.
    """

    media_type: str = ""
    muxer: str = ""
    codec: str = ""
    stream_options: dict[str, str] = field(default_factory=dict)
    libsndfile: Sequence[str] | None = None
    served_by_ffmpeg: bool = False
    rates: Sequence[int] = ()
    most_kbit_s: int = 0
    kbit_s: int = 0
    held_s: float = 0.0

    @property
    def lossy(self) -> bool:
        return self.most_kbit_s > 0


ROWS = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
FORMATS = {name: Format(**row) for name, row in ROWS.items()}
# Media types of the server's formats.
SERVED = {name: one.media_type for name, one in FORMATS.items() if one.media_type}
# Files that the command line writes, by suffix, with FFmpeg's name to read them: guessing could open other files.
FILES = {f".{name}": one.muxer for name, one in FORMATS.items() if one.libsndfile}
# Formats of Save Speech, with metadata inside.
TAGGED = {name: one for name, one in FORMATS.items() if one.libsndfile and one.codec}
# Recordings that libsndfile cannot read, by suffix, with FFmpeg's name to read them.
RECORDED = {".m4a": "mov", ".mp4": "mov", ".aac": "aac", ".webm": "matroska"}
# Formats that stream without an encoder.
PLAIN_STREAMS = tuple(name for name, one in FORMATS.items() if one.media_type and not one.held_s)
