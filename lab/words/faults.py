"""Whether the guard finds the lines in which a recogniser misses words or hears others, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from qwen3_tts_morph.morph.hearing.words import count_errors, normalize
from qwen3_tts_morph.morph.words.guard import WordFault, find_fault

from ..benchmarks.results import PartRow
from .heard import HeardWord, join
from .record import Recorded
from .tokens import said_tokens

FEW = 2  # words: what a recogniser adds or leaves out by itself is fewer


@dataclass(frozen=True)
class FaultsRow(PartRow):
    """How many lines the guard calls wrong, by what a recogniser heard in them.

    Args:
        lines: their part, and a name of GOOD or WRONG.
        spoken: how many there are.
        right: of them, without any wrong word; ``alarms``: of these, called wrong.
        broken: in which FEW or more words in a row are missing or added; ``found``: of these, called wrong.
        other: lines with wrong words otherwise, as those that are said badly; ``other_found``: of these, called wrong.
        faults: what the guard said, by kind.
    """

    lines: str
    seq_groups: int
    spoken: int
    right: int
    alarms: int
    broken: int
    found: int
    other: int
    other_found: int
    skipped: int
    repeated: int
    invented: int


@dataclass(frozen=True)
class Judged:
    """One line.

    Args:
        heard: "right", "broken" or "other", as in FaultsRow.
        faults: by the guard.
    """

    heard: str
    faults: tuple[WordFault, ...]


def judge(pieces: Sequence[Recorded], heard: Sequence[HeardWord], tokenizer: Any) -> Judged:
    """Return what the recogniser and the guard say of a line."""
    faults: list[WordFault] = []
    for piece in pieces:
        faults += guard_piece(piece, tokenizer)
    asked = " ".join(piece.text for piece in pieces)
    return Judged(how_heard(asked, join(heard)), tuple(faults))


def guard_piece(piece: Recorded, tokenizer: Any) -> list[WordFault]:
    """Return what the guard says of a piece: its first fault, or nothing."""
    tokens, weights, _ = (values.tolist() for values in piece.trace)
    words = said_tokens(tokenizer, piece.text)
    fault = find_fault(tokens, weights, words, piece.rows.shape[1], piece.ended == "eos")
    return [] if fault is None else [fault]


def how_heard(asked: str, heard: str) -> str:
    """Return "right", "broken" or "other" for what was heard of a text."""
    if not count_errors(asked, heard, "english")[0]:
        return "right"
    wanted, given = (normalize(text, "english", asked).split() for text in (asked, heard))
    edits = SequenceMatcher(None, wanted, given, autojunk=False).get_opcodes()
    longest = max(abs((last - first) - (end - begin)) for _, first, last, begin, end in edits)
    return "broken" if longest >= FEW else "other"


def summarise_faults(lines: Sequence[Judged]) -> dict[str, Any]:
    """Return a row's figures from its lines."""
    heard = {name: [one for one in lines if one.heard == name] for name in ("right", "broken", "other")}
    found = {name: sum(bool(one.faults) for one in own) for name, own in heard.items()}
    kinds = [fault.kind for one in lines for fault in one.faults]
    return {
        "spoken": len(lines),
        "right": len(heard["right"]),
        "alarms": found["right"],
        "broken": len(heard["broken"]),
        "found": found["broken"],
        "other": len(heard["other"]),
        "other_found": found["other"],
        **{kind: kinds.count(kind) for kind in ("skipped", "repeated", "invented")},
    }
