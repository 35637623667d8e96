"""Normalization rules: a pattern that takes linear time, and its replacement."""

import re
from collections.abc import Callable, Iterable

Replacement = str | Callable[[re.Match[str]], str]
Rule = tuple[re.Pattern[str], Replacement]

LAST_STOP = re.compile(r"[.!?\u3002][\"')\]]*$")


def rule(pattern: str, said: Replacement) -> Rule:
    return re.compile(pattern), said


def apply(rules: Iterable[Rule], sentence: str) -> str:
    for pattern, said in rules:
        sentence = pattern.sub(said, sentence)
    return sentence


def keep_stop(written: str, said: str) -> str:
    """Return ``said`` with the stop of the written sentence, if it was lost as an abbreviation's dot."""
    stop = LAST_STOP.search(written)
    return said.rstrip("\"')]") + stop[0] if stop and not LAST_STOP.search(said) else said


def text_before(match: re.Match[str], most: int) -> str:
    """Return at most this many characters before a match."""
    return match.string[max(0, match.start() - most) : match.start()]


def alternatives(words: Iterable[str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


def like(written: str, said: str) -> str:
    return said[:1].upper() + said[1:] if written[:1].isupper() else said
