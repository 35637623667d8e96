"""Compare detected faults with the errors that a recogniser finds in the same lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from qwen3_tts_morph.morph.hearing.whisper import count_errors, normalize
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.words.alignment import Trace
from qwen3_tts_morph.morph.words.guard import WordFault, find_fault

from ..benchmarks.results import PartRow
from .record import TracedLine
from .transcribed import TranscribedWord, join

FEW = 2  # words: a recogniser's own errors are shorter


@dataclass(frozen=True)
class FaultsRow(PartRow):
    """How many lines are reported as wrong, by their transcripts.

    Args:
        lines: their part, and a name of GOOD or WRONG.
        spoken: how many there are.
        right: lines without any wrong word; ``alarms``: of these, reported.
        broken: lines with FEW or more words in a row missing or added; ``found``: of these, reported.
        other: lines with other wrong words, such as unclear ones; ``other_found``: of these, reported.
        skipped, repeated, invented: the reported faults, by kind.
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
class JudgedLine:
    """One line.

    Args:
        outcome: "right", "broken" or "other", as in FaultsRow.
        faults: by the product.
    """

    outcome: str
    faults: tuple[WordFault, ...]


def judge(pieces: Sequence[TracedLine], words: Sequence[TranscribedWord], model: Model) -> JudgedLine:
    """Return a line's outcome by its transcript, and the faults that the product finds."""
    faults = [fault for piece in pieces for fault in find_faults(piece, model)]
    asked = " ".join(piece.text for piece in pieces)
    return JudgedLine(outcome_of(asked, join(words)), tuple(faults))


def find_faults(piece: TracedLine, model: Model) -> list[WordFault]:
    """Return the fault that the product finds in a piece, or nothing."""
    spans, codes = model.texts.spans(piece.text), piece.codes[:, 0] if piece.ended == "eos" else None
    fault = find_fault(piece.text, spans, Trace(*piece.trace), codes, model.letters)
    return [] if fault is None else [fault]


def outcome_of(asked: str, transcript: str) -> str:
    """Return "right", "broken" or "other" for the transcript of a text."""
    if not count_errors(asked, transcript, "english")[0]:
        return "right"
    wanted, given = (normalize(text, "english", asked).split() for text in (asked, transcript))
    edits = SequenceMatcher(None, wanted, given, autojunk=False).get_opcodes()
    longest = max(abs((last - first) - (end - begin)) for _, first, last, begin, end in edits)
    return "broken" if longest >= FEW else "other"


def summarise_faults(lines: Sequence[JudgedLine]) -> dict[str, Any]:
    """Return a row's figures from its lines."""
    judged = {name: [one for one in lines if one.outcome == name] for name in ("right", "broken", "other")}
    found = {name: sum(bool(one.faults) for one in own) for name, own in judged.items()}
    kinds = [fault.kind for one in lines for fault in one.faults]
    return {
        "spoken": len(lines),
        "right": len(judged["right"]),
        "alarms": found["right"],
        "broken": len(judged["broken"]),
        "found": found["broken"],
        "other": len(judged["other"]),
        "other_found": found["other"],
        **{kind: kinds.count(kind) for kind in ("skipped", "repeated", "invented")},
    }
