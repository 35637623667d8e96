"""Find sounds in a caption: words in brackets, and what is sung between notes.

``[door slams]`` is a sound wherever it stands. ``(laughs)`` and its full-width forms are one at the beginning or the
end of a caption, alone on a line, and after a sign; inside a sentence, parentheses hold words of the sentence. What is
between two notes (``\u266a la la \u266a``, ``# la la #``) or after one that begins a line is music.
"""

from __future__ import annotations

import re

from .script import KNOWN_TAG

NOTE = "\u2669\u266a\u266b\u266c\U0001f3b5\U0001f3b6"
BRACKETS = re.compile(r"\[[^\[\]]*\]")
OPENING, CLOSING = "(\uff08\uff3b\u3010", ")\uff09\uff3d\u3011"
REMARK = re.compile(f"([{OPENING}][^{OPENING}{CLOSING}]*[{CLOSING}])")
SENTENCE_ENDS = ".!?\u2026\u3002\uff01\uff1f"
# The look-ahead keeps a group of notes whole: half of it would pass for a pair.
_NOTES = rf"[{NOTE}]+(?![{NOTE}])"
MUSIC = re.compile(
    rf"""
      {_NOTES}[^{NOTE}\n]*{_NOTES}                        # a pair on one line
    | {_NOTES}[^{NOTE}]*{_NOTES}(?=[ \t]*(?:\n|\Z))       # a pair that closes at the end of a later line
    | {_NOTES}[^{NOTE}\n]*                                # a lone note, and its line
    | ^[^{NOTE}\n]+{_NOTES}[ \t]*$                        # the last line of what an earlier caption began
    """,
    re.VERBOSE | re.MULTILINE,
)
HASHES = re.compile(
    r"""
      \A\s*\#+[^#]+\#+\s*\Z                                              # the whole caption
    | (?:^|(?<=[:\uff1a\-\u2010-\u2014]))[ \t]*\#+[^#\n]+\#+(?=\s|\Z)     # a pair on one line
    | ^[ \t]*\#+[ \t][^\n]*                                              # a lone one; #1 and #tag are words
    """,
    re.VERBOSE | re.MULTILINE,
)


def without_sounds(text: str) -> str:
    """Return a caption without sounds, unchanged if it has none."""
    text = BRACKETS.sub(lambda match: match[0] if KNOWN_TAG.fullmatch(match[0]) else " ", text)
    return HASHES.sub(" ", MUSIC.sub(_unsung, _without_remarks(text)))


def with_sounds(text: str) -> str:
    """Return a caption whose sounds can be read: brackets become parentheses, which are no tags of scripts."""
    text = BRACKETS.sub(
        lambda match: match[0] if KNOWN_TAG.fullmatch(match[0]) else f"({match[0][1:-1]})", text
    )
    return re.sub(f"[{NOTE}]", "", text)


def _unsung(match: re.Match[str]) -> str:
    words = match[0].strip(NOTE + " \t")
    spoken = match[0][0] not in NOTE and words.endswith(tuple(SENTENCE_ENDS))
    return words if spoken else " "


def _without_remarks(text: str) -> str:
    # Words and remarks alternate.
    parts = REMARK.split(text)
    last = len(parts) - 1
    kept = [
        " " if place % 2 and _is_sound(part, parts[place - 1], parts[place + 1], place + 1 == last) else part
        for place, part in enumerate(parts)
    ]
    return "".join(kept)


def _is_sound(remark: str, before: str, behind: str, is_last: bool) -> bool:
    """Return whether a remark between two texts describes a sound; ``(555)`` does not."""
    if not any(char.isalpha() for char in remark):
        return False
    words = before.rstrip()
    begins = not words or not words[-1].isalnum()
    ends = is_last and not behind.strip()
    alone = "\n" in before[len(words) :] and "\n" in behind[: len(behind) - len(behind.lstrip())]
    return begins or ends or alone
