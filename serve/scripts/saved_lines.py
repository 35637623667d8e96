"""The lines of a script that are spoken already: a folder with a sound file for each, and a manifest.

Beside the manifest, lines that are new since it was written have a row each in a second file, so that a run that is
ended in any way loses none, and the manifest of a long script is not written for each line.

A line is found again by its key, a hash of everything that decides its sound. Its file carries the line's number, its
name and the key's first letters; it is written completely or not at all, so what is there is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..terminal.folder_lock import exclusive
from ..terminal.sound import explaining, read_recording, write_whole

if TYPE_CHECKING:
    import numpy as np

    from ...morph.speech.lines import LineReport, PieceSpan, Spoken

MANIFEST = "manifest.json"
NEW_LINES = "manifest.new.jsonl"
FORMAT = "qwen3-tts-morph script"
VERSION = 1
ENDINGS = (".wav", ".flac")
MOST = 10**12  # of any number of a line: samples, frames, seconds
SHOWN_KEY = 8  # letters of the key in a file's name


def make_key(facts: Mapping[str, Any]) -> str:
    """Return a hash of what decides a line's sound; ``facts`` are JSON's values."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


@dataclass(frozen=True)
class Plan:
    """One line of a script: its number from 1, who speaks, and its key."""

    number: int
    name: str
    key: str

    def file_name(self, ending: str) -> str:
        """Return the name of its file."""
        name = re.sub(r"[^\w]+", "-", self.name).strip("-")[:40] or "line"
        return f"{self.number:04d}_{name}_{self.key[:SHOWN_KEY]}{ending}"


@dataclass
class SavedLines:
    """The folder of one script.

    Args:
        folder: where everything is written.
        ending: of new lines' files, one of ENDINGS. Both are exact: lines are found in either.
        entries: what the manifest knows of each line, by key: its file, and its report's fields.
    """

    folder: Path
    ending: str
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def open(cls, folder: Path, audio: str) -> Iterator[SavedLines]:
        """Hold the folder, and yield what an earlier run left in it; lines for a track of format ``audio``.

        Raises:
            ValueError: for a folder that cannot be made or that another run has, a manifest of something else, or
                damaged rows beside it.
        """
        with explaining(f"folder {folder}", "made"):
            folder.mkdir(parents=True, exist_ok=True)
        with exclusive(folder):
            is_new = not (folder / MANIFEST).exists()
            entries = {} if is_new else read_manifest(folder / MANIFEST) | read_new_lines(folder / NEW_LINES)
            yield cls(folder, ".wav" if audio == "wav" else ".flac", entries)

    def place(self, plans: Sequence[Plan]) -> None:
        """Give the files of lines that are spoken already the names of their places in the script.

        Raises:
            ValueError: if the folder cannot be written.
        """
        first = {plan.key: plan for plan in reversed(plans)}  # lines of one sound share a file
        for plan in first.values():
            if (file := self._find(plan.key)) is None:
                continue
            wanted = self.folder / plan.file_name(file.suffix)
            with explaining(file, "renamed", "choose another folder with --out"):
                os.replace(file, wanted)
            self.entries[plan.key]["file"] = wanted.name

    def _find(self, key: str) -> Path | None:
        """Return the file of a line, also of one that was renamed before a run was interrupted; None if it is gone."""
        if key not in self.entries:
            return None
        named = self.folder / str(self.entries[key].get("file"))
        if named.suffix in ENDINGS and named.is_file() and named.parent == self.folder:
            return named
        found = sorted(self.folder.glob(f"*_{key[:SHOWN_KEY]}.*"))
        return next((path for path in found if path.suffix in ENDINGS), None)

    def has(self, key: str) -> bool:
        """Return whether a line is spoken already."""
        return self._find(key) is not None

    def add(self, plan: Plan, spoken: Spoken) -> None:
        """Write a line's file, and note that it is there."""
        from ...morph.audio.writer import encode_by_libsndfile

        path = self.folder / plan.file_name(self.ending)
        write_whole(path, encode_by_libsndfile(spoken.waveform, spoken.sample_rate, self.ending[1:]))
        self.entries[plan.key] = {
            "file": path.name,
            "report": asdict(spoken.report),
            "engine": spoken.engine,
            "spans": [write_span(span) for span in spoken.spans],
            **self._more_of(spoken),
        }
        with (self.folder / NEW_LINES).open("a", encoding="utf-8") as file:
            file.write(json.dumps([plan.key, self.entries[plan.key]]) + "\n")

    @staticmethod
    def _more_of(spoken: Spoken) -> dict[str, Any]:
        speed = {} if spoken.speed == 1 else {"speed": spoken.speed}
        return speed | ({"words": [astuple(word) for word in spoken.words]} if spoken.words else {})

    def read(self, key: str, rate: int) -> Spoken:
        """Return a line that is spoken; a file that was edited by hand counts as it is.

        Raises:
            ValueError: for a file that cannot be read, or has another rate.
        """
        from ...morph.speech.lines import Spoken
        from ...morph.words.timing import read_words

        path = self._find(key)
        if path is None:
            raise ValueError(f"a line's file is gone from {self.folder}: run the command again")
        channels, own_rate = read_recording(path)
        if own_rate != rate:
            raise ValueError(f"{path} has {own_rate} Hz and the track {rate}: delete it, or convert it")
        waveform: np.ndarray = channels.mean(axis=0)
        entry, report = self.entries[key], self.report(key)
        whole = len(waveform) == round(report.seconds * rate)  # else it was edited: its pieces are elsewhere
        spans = tuple(map(read_span, entry.get("spans", ()))) if whole else ()
        words = read_words(entry.get("words", ())) if whole else ()
        report = replace(report, seconds=len(waveform) / rate)
        return Spoken(
            waveform, rate, report, spans, entry["engine"], speed=entry.get("speed", 1.0), words=words
        )

    def report(self, key: str) -> LineReport:
        """Return how a line went."""
        return read_report(self.entries[key]["report"])

    def write_manifest(self, source: str, plans: Sequence[Plan], more: Mapping[str, Any]) -> None:
        """Write the manifest: the script's lines by key in their order, and all that is saved."""
        known = {
            "format": FORMAT,
            "version": VERSION,
            "source": source,
            **more,
            "lines": [plan.key for plan in plans],
            "saved": self.entries,
        }
        content = json.dumps(known, indent=1, ensure_ascii=False) + "\n"
        write_whole(self.folder / MANIFEST, content.encode())
        (self.folder / NEW_LINES).unlink(missing_ok=True)


def read_manifest(path: Path) -> dict[str, dict[str, Any]]:
    """Return the entries of a manifest; ValueError for a file that is none."""
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if (manifest["format"], manifest["version"]) != (FORMAT, VERSION):
            raise ValueError
        return {str(key): check_entry(entry) for key, entry in dict(manifest["saved"]).items()}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{path} is not a manifest of this program: choose another folder with --out, or delete it"
        ) from error


def write_span(span: PieceSpan) -> dict[str, Any]:
    """Return a piece's span as JSON: its trace only if it has one."""
    place = {"text": span.text, "start": span.start, "end": span.end}
    return place if span.trace is None else {**place, "trimmed": span.trimmed, "trace": span.trace.to_lists()}


def read_span(span: Mapping[str, Any]) -> PieceSpan:
    """Return a piece's span; ValueError, KeyError or TypeError for what is none."""
    from ...morph.speech.lines import PieceSpan
    from ...morph.words.trace import Trace

    facts = dict(span)
    lists = facts.pop("trace", None)
    return PieceSpan(**facts, trace=None if lists is None else Trace.from_lists(lists))


def check_entry(entry: Any) -> dict[str, Any]:
    """Return the entry of a line; ValueError, KeyError or TypeError for what is none."""
    from ...morph.words.timing import read_words

    report = read_report(entry["report"])
    words = read_words(entry.get("words", ()))
    if not 0 < entry.get("speed", 1.0) < MOST:
        raise ValueError("its speed is out of its limits")
    spans = [read_span(span) for span in entry.get("spans", ())]
    texts = [entry["file"], entry["engine"], report.name, report.text, report.ended]
    texts += [report.spoken, report.error]
    numbers = [report.frames, report.seconds, report.pieces, report.takes]
    numbers += [place for span in spans for place in (span.start, span.end, span.trimmed)]
    numbers += [word.end_s for word in words]
    texts += [word for one in report.readings for word in (one.shown, one.read)]
    places = [0, *(place for one in report.readings for place in (one.first, one.last)), len(report.text)]
    if not all(type(place) is int for place in places) or places != sorted(places):
        raise ValueError("its readings are not in its text")
    if (heard := report.heard) is not None:
        texts, numbers = [*texts, heard.text], [*numbers, heard.errors, heard.words, heard.takes]
    texts += [*report.notes, *(span.text for span in spans), *(word.text for word in words)]
    for text in texts:
        str.encode(text)  # TypeError for another thing, ValueError for half a character
    if not all(0 <= number < MOST for number in numbers):  # NaN compares false
        raise ValueError("a number is out of its limits")
    return dict(entry)


def read_report(fields: Mapping[str, Any]) -> LineReport:
    """Return a report from its fields; KeyError or TypeError for other ones."""
    from ...morph.hearing.words import HeardWords
    from ...morph.speech.lines import LineReport
    from ...morph.text.pronunciation import Reading

    known = {"readings": (), **fields}  # lines of before have none
    readings = tuple(Reading(**one) for one in known["readings"])
    report = LineReport(**{**fields, "notes": tuple(fields["notes"]), "readings": readings})
    return report if report.heard is None else replace(report, heard=HeardWords(**fields["heard"]))


def read_new_lines(path: Path) -> dict[str, dict[str, Any]]:
    """Return the entries that are new since the manifest; a last row that was not written completely is left out.

    Raises:
        ValueError: for another row that is damaged.
    """
    if not path.is_file():
        return {}
    entries: dict[str, dict[str, Any]] = {}
    for number, row in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        if not row.endswith(b"\n"):
            break
        try:
            key, entry = json.loads(row)
            entries[str(key)] = check_entry(entry)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(
                f"{path} is damaged in row {number}: delete it; the lines that only it knows are spoken again"
            ) from error
    return entries
