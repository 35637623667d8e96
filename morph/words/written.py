"""The words of a text as its writer sees them, each with its place in the text.

A word is what stands between spaces, with its punctuation. In Chinese and Japanese each character is one, with small
kana and long vowels after it. Dashes that join words and three dots end words too. Punctuation that stands alone
belongs to the word before it, an opening bracket or quotation mark to the word after it.
"""

import re
import unicodedata
from dataclasses import dataclass

from ..text.pauses import PAUSE

CHARACTER = (
    "\u2e80-\u2fdf\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fd-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff"
)
# Small kana, the marks of voiced ones, and long vowels: half a syllable
SMALL = "ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮー\u3099\u309a゛゜\uff67-\uff70\uff9e\uff9f"
MARKS = "、。〃〈〉《》「」『』【】〔〕〖〗・！（），．：；？［］｛｝｡｢｣､“”"
BREAK = r"[\u2014\u2026]|-{2}"
PART = re.compile(
    rf"[{CHARACTER}][{SMALL}]*|[{MARKS}]|(?:\u2014|\u2026|-{{2,}})+|(?:(?!{BREAK})[^\s{CHARACTER}{MARKS}])+"
)
SAID_ALONE = frozenset("&+=%@#$£€°×÷±√≤≥≈<>＆＋＝％＠＃＄￥¥")  # words if they stand alone
OPENING = frozenset("¿¡«“")


@dataclass(frozen=True)
class WrittenWord:
    """A word of a text: ``text[first:last]``, with its punctuation."""

    text: str
    first: int
    last: int


def find_words(text: str) -> list[WrittenWord]:
    """Return the words of a text in order, all of it but spaces and pauses; none without spoken signs."""
    # As long as the pauses, so that places stay what they are.
    shown = PAUSE.sub(lambda match: " " * len(match[0]), text)
    spans: list[tuple[int, int]] = []
    begin: int | None = None  # of opening marks before the next word
    for part in PART.finditer(shown):
        first = part.start() if begin is None else begin
        if is_said(part[0]):
            spans.append((first, part.end()))
            begin = None
        elif not spans or begin is not None or _opens(part[0]):
            begin = first
        else:
            spans[-1] = (spans[-1][0], part.end())
    if begin is not None and spans:  # marks that open nothing
        spans[-1] = (spans[-1][0], len(shown.rstrip()))
    return [WrittenWord(" ".join(shown[first:last].split()), first, last) for first, last in spans]


def is_said(part: str) -> bool:
    """Return whether a part of a text without spaces is spoken: it has a letter, a digit, or a sign alone."""
    return any(char.isalnum() for char in part) or not SAID_ALONE.isdisjoint(part)


def _opens(part: str) -> bool:
    return part[-1] in OPENING or unicodedata.category(part[-1]) in ("Ps", "Pi")


def said_span(word: WrittenWord, text: str) -> tuple[int, int]:
    """Return the span of a word in its text without the punctuation around it."""
    said = [index for index in range(word.first, word.last) if text[index].isalnum()]
    return (said[0], said[-1] + 1) if said else (word.first, word.last)
