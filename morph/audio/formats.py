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
        libsndfile: its names of the format and the subtype; none: it cannot write files of it.
        served_by_ffmpeg: whether the server's complete files are FFmpeg's although libsndfile has the format.
        rates: the sample rates that it can hold, in Hz; none: any.
        most_kbit_s: the highest bit rate that the encoder takes for one channel; 0: it is lossless.
        kbit_s: of the server's sound; 0: the encoder's own. LAME's own 32 kb/s leave speech at 18 dB above what they
            lose, 64 at 25 (recordings/austen.flac).
        held_s: seconds that FFmpeg or libsndfile hold back of a stream, at most; 0: neither makes it.
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
