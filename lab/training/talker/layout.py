"""Layout of a line for the talker: ids and codes per position, where ``morph/voice/prompt.py`` builds embeddings.

Three layouts: the text streamed one token per frame (clones), the whole text in the prefill (presets), and either of
these after a reference's text and codes (ICL).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .config import GROUPS, Shape
from .tokenizer import TextTokens

NOTHING = -1


@dataclass(frozen=True)
class Ids:
    """Special ids of the text stream and of group 0."""

    role: tuple[int, ...]
    text_pad: int
    text_bos: int
    text_eos: int
    pad: int
    bos: int
    eos: int
    auto: tuple[int, ...]
    english: tuple[int, ...]

    @classmethod
    def of(cls, shape: Shape, tokens: TextTokens) -> Ids:
        """Return the ids for a codebook and a tokenizer."""
        codec = shape.codec_ids()
        return cls(
            role=tuple(tokens.role()),
            text_pad=tokens.special["<tts_pad>"],
            text_bos=tokens.special["<tts_text_bos>"],
            text_eos=tokens.special["<tts_text_eod>"],
            pad=codec["pad"],
            bos=codec["bos"],
            eos=codec["eos"],
            auto=(codec["nothink"], codec["think_bos"], codec["think_eos"]),
            english=(codec["think"], codec["think_bos"], codec["english"], codec["think_eos"]),
        )


@dataclass(frozen=True)
class Layout:
    """One line of T positions.

    ``text`` ``[T]``; ``codes`` ``[T, 16]`` with -1 where a group adds nothing; the speaker embedding is added at
    position ``speaker_at``. Position ``first + i`` predicts frame i, and ``first + frames`` the end.
    """

    text: np.ndarray
    codes: np.ndarray
    speaker_at: int
    first: int
    frames: int


@dataclass(frozen=True)
class Style:
    """Variant of a layout: ``whole`` puts the whole text into the prefill, ``tag`` names the language."""

    whole: bool = False
    tag: bool = False


def lay_out(ids: Ids, text: Sequence[int], codes: np.ndarray, frames: int, style: Style) -> Layout:
    """Lay out one line.

    Args:
        ids: the special ids.
        text: the text's tokens, after those of the reference if there is one.
        codes: int ``[R + F, 16]``: the reference's frames, then the line's.
        frames: F.
        style: the layout's variant.
    """
    opening = ids.english if style.tag else ids.auto
    speaker_at = len(ids.role) + len(opening)
    first = [NOTHING] * len(ids.role) + [*opening, NOTHING, ids.pad]
    stream = [*text, ids.text_eos]
    words = [*ids.role, *[ids.text_pad] * (len(opening) + 1), ids.text_bos]
    body = 1 + len(codes)
    if style.whole:
        first += [ids.pad] * len(stream)
        words += stream + [ids.text_pad] * body
    else:
        words += (stream + [ids.text_pad] * (body - len(stream)))[:body]
    first.append(ids.bos)
    laid = np.full((len(words), GROUPS), NOTHING, dtype=np.int16)
    laid[: len(first), 0] = first
    laid[len(first) :] = codes
    return Layout(np.array(words, dtype=np.int16), laid, speaker_at, len(words) - frames - 1, frames)


def pad_layouts(layouts: Sequence[Layout], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return texts int32 ``[B, length]`` and codes int32 ``[B, length, 16]``; padding on the right adds nothing."""
    text = np.zeros((len(layouts), length), np.int32)
    codes = np.full((*text.shape, GROUPS), NOTHING, np.int32)
    for row, one in enumerate(layouts):
        text[row, : len(one.text)] = one.text
        codes[row, : len(one.text)] = one.codes
    return text, codes
