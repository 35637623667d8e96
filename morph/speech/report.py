"""The report of lines for people: failures, length and speed, and settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ..hearing.whisper import Transcript
from ..model.model import Model
from ..model.tail import describe_groups
from ..options import GenerateOptions
from ..text.pronunciation import describe_readings
from .lines import ERROR, WRONG, LineReport, Spoken

ENDINGS = {
    "eos": "complete",
    "echo": "BEGINS WITH WORDS OF ITS REFERENCE: try another seed or, where the voice is made, pad reference",
    "words": "HAS WRONG WORDS: try another seed",
    "cap": "RAN INTO ITS LIMIT and was ended: try another seed, or a higher max seconds",
    "loop": "REPEATED ITSELF and was ended: try another seed",
    "early": "ENDED TOO EARLY for its text: try another seed",
    "silent": "IS SILENT: try another seed or, for a voice cloned with its transcript (ICL), x-vector",
    "cancelled": "was cancelled",
    "failed": "LOST ITS TEXT: what gave the text failed",
    ERROR: "COULD NOT BE MADE",
}
TROUBLE = (*WRONG, "failed", ERROR)
SHOWN_WRONG = 5  # lines that the outcome names; the rows name all
LONGEST_SHOWN = 60
LONGEST_SPOKEN = 200
LONGEST_ERROR = 300


def describe(model: Model, spoken: Sequence[Spoken], options: GenerateOptions, elapsed_s: float) -> str:
    """Return a report of lines: outcome and speed, a row for each line, settings.

    Blank lines separate its paragraphs, so it works as plain text and as Markdown. ``model`` is any of several
    devices' models; ``elapsed_s`` is wall-clock time with prompt and codec.
    """
    tail = model.tails(options.tail).get(options.seq_groups)
    groups = describe_groups(options, tail, model.weights)
    counts = Counter(one.report.device for one in spoken if one.report.device)
    said = ", ".join(f"{_count(lines)} on {name}" for name, lines in sorted(counts.items()))
    devices = [f"devices: {said}"] if said else []
    return compose(spoken, elapsed_s, [groups, *engines_of(spoken), model.summary(), *devices])


def _count(lines: int) -> str:
    return f"{lines} line{'' if lines == 1 else 's'}"


def engines_of(spoken: Sequence[Spoken]) -> list[str]:
    return list(dict.fromkeys(one.engine for one in spoken if one.engine))


def compose(spoken: Sequence[Spoken], elapsed_s: float, settings: Sequence[str]) -> str:
    """Return a report (see ``describe``) whose last paragraph is ``settings``, one per line."""
    lines, first = numbered(spoken), dict[str, int]()
    rows = []
    for number, one in lines:
        # Each error once: later lines with it refer to the first.
        known = first.setdefault(one.error, number) if one.error else number
        row = _row(one if known == number else replace(one, error=f"as line {known}"))
        rows.append(f"{number}. {row}")
    blocks = [outcome(spoken, elapsed_s), "\n".join(rows), "\n".join(f"- {setting}" for setting in settings)]
    return "\n\n".join(blocks)


def outcome(spoken: Sequence[Spoken], elapsed_s: float) -> str:
    """Return how it went, in a few lines. Reused lines (``kept/cache.py``) do not count for the speed."""
    lines = numbered(spoken)
    reports = [one for _, one in lines]
    notes = dict.fromkeys(note for one in reports for note in one.notes)
    said = [*_trouble(lines), *_mismatched(lines), *notes]
    if cancelled := sum(one.ended == "cancelled" for one in reports):
        said.append(f"{cancelled} of {len(reports)} cancelled before the end.")
    if not said:
        said = ["Complete." if len(reports) == 1 else f"All {len(reports)} lines complete."]
    if retaken := sum(one.takes > 1 for one in reports):
        said.append(f"{retaken} of {len(reports)} spoken again with another seed: see below.")
    said += _transcripts(reports)
    if reused := sum(one.from_before for one in reports):
        which = "Reused" if len(reports) == 1 else f"{reused} of {len(reports)} lines reused"
        said.append(f"{which} from an earlier run.")
    return "\n".join([*said, _speed(reports, elapsed_s)])


def numbered(spoken: Sequence[Spoken]) -> list[tuple[int, LineReport]]:
    """Return line reports with the numbers of their captions, or their places."""
    return [(one.number or place, one.report) for place, one in enumerate(spoken, start=1)]


def _trouble(reports: Sequence[tuple[int, LineReport]]) -> list[str]:
    kinds: dict[object, list[tuple[int, LineReport]]] = {}
    for number, one in reports:
        if one.ended in TROUBLE:
            kinds.setdefault(one.error or id(one), []).append((number, one))
    shown = [
        f"{_which(number, one, reports)}{f' and {_count(len(same))} more' * bool(same)} {_ending(one)}."
        for (number, one), *same in kinds.values()
    ]
    if len(shown) > SHOWN_WRONG:
        shown[SHOWN_WRONG:] = [f"And {len(shown) - SHOWN_WRONG} more: see below."]
    wrong = sum(map(len, kinds.values()))
    return [f"{wrong} of {len(reports)} lines went wrong.", *shown] if shown and len(reports) > 1 else shown


def _which(number: int, report: LineReport, reports: Sequence[object]) -> str:
    return "The line" if len(reports) == 1 else f"Line {number} ({_short(report.text)})"


def _ending(report: LineReport) -> str:
    why = " ".join(report.error.split())[:LONGEST_ERROR].rstrip(".")
    return f"{ENDINGS[report.ended]}: {why}" if why else ENDINGS[report.ended]


def _mismatched(reports: Sequence[tuple[int, LineReport]]) -> list[str]:
    said = []
    for number, one in reports:
        if one.heard is not None and not one.heard.passed:
            takes = f" in the best of {one.heard.takes} takes" if one.heard.takes > 1 else ""
            which = _which(number, one, reports)
            said.append(f"{which} DOES NOT MATCH ITS TEXT: heard {_in_words(one.heard)}{takes}.")
    return said


def _transcripts(reports: Sequence[LineReport]) -> list[str]:
    own = [one.heard for one in reports if one.heard is not None]
    if not own or len(reports) == 1:
        return [f"Heard: {_in_words(one)}." for one in own if one.passed]
    return [f"{sum(one.passed for one in own)} of {len(own)} lines match their texts."]


def _in_words(said: Transcript) -> str:
    return f"{_short(said.text, LONGEST_SPOKEN)}, {said.errors} of {said.words} words wrong ({said.rate:.0%})"


def _speed(reports: Sequence[LineReport], elapsed_s: float) -> str:
    before_s = sum(one.seconds for one in reports if one.from_before)
    made = [one.seconds for one in reports if not one.from_before and one.frames]
    if made:
        before = f"{before_s:.2f} s of audio reused, " if before_s else ""
        times = f"{sum(made) / elapsed_s:.1f}" if elapsed_s else "many"
        return f"{before}{sum(made):.2f} s of audio in {elapsed_s:.2f} s: {times} times real time."
    if before_s:
        return f"{before_s:.2f} s of audio, none of it made now ({elapsed_s:.2f} s)."
    return f"No audio in {elapsed_s:.2f} s."


def _row(report: LineReport) -> str:
    facts = [
        _ending(report) + f" at take {report.takes}" * (report.takes > 1),
        "reused" * report.from_before,
        f"{report.seconds:.2f} s" + f" in {report.pieces} pieces" * (report.pieces > 1),
        describe_readings(report.readings),
        f"spoken as {_short(report.spoken, LONGEST_SPOKEN)}" * bool(report.spoken),
        "" if report.heard is None else f"heard as {_in_words(report.heard)}",
        f"on {report.device}" * bool(report.device),
    ]
    name = f"{report.name}: " * bool(report.name)
    return f"{name}{_short(report.text)}: {', '.join(filter(None, facts))}"


def _short(text: str, longest: int = LONGEST_SHOWN) -> str:
    return repr(text if len(text) <= longest else text[: longest - 3] + "...")
