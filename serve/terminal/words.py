"""The option ``--words``: a file with the times of the words, of any command that writes sound."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...morph.text.scripts.cues import FORMATS, UNITS
from .arguments import ending_in
from .sound import write_whole

if TYPE_CHECKING:
    from ...morph.words.captions import LineWords


def add_words(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("words")
    group.add_argument(
        "--words",
        type=ending_in([f".{one}" for one in FORMATS]),
        metavar="FILE",
        help="also write when each word is heard, in the sound that is written: .srt, .vtt (words light up), .json, or "
        ".ass (karaoke); none: no such file",
    )
    group.add_argument(
        "--words-by",
        choices=UNITS,
        default="phrase",
        help="what a caption of that file has; a phrase has at most 42 characters",
    )


def write_words(lines: Sequence[LineWords], options: argparse.Namespace) -> None:
    """Write the words of lines, at their times in the sound; ValueError if the file cannot be written."""
    from ...morph.words.captions import CaptionOptions, write_captions

    wanted = CaptionOptions(options.words.suffix[1:].lower(), options.words_by)
    write_whole(options.words, write_captions(lines, wanted).encode())
