"""The saved lines of a script: a folder with a sound file for each, and a manifest.

New lines have a row each in a second file: no interrupted run loses any, and the manifest of a long script is not
written for each line. A line is found by its key, a hash of everything that decides its sound. Its file is named by the
line's number, its name and the key's first letters; it is written completely or not at all.
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

from ...morph.hearing.words import HeardWords
from ...morph.text.pronunciation import Reading
from ..terminal.folder_lock import exclusive
from ..terminal.sound import explaining, read_recording, write_whole

if TYPE_CHECKING:
    import numpy as np

    from ...morph.speech.lines import LineReport, PieceSpan, Spoken

MANIFEST = "manifest.json"
NEW_LINES = "manifest.new.jsonl"
FORMAT = "qwen3-tts-morph script"
VERSION = 2
UNREADABLE = (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError)
ENDINGS = (".wav", ".flac")
SHOWN_KEY = 8  # letters of the key in a file's name


def make_key(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


@dataclass(frozen=True)
class Plan:
    """One line of a script, numbered from 1."""

    number: int
    name: str
    key: str

    def file_name(self, ending: str) -> str:
        name = re.sub(r"[^\w]+", "-", self.name).strip("-")[:40] or "line"
        return f"{self.number:04d}_{name}_{self.key[:SHOWN_KEY]}{ending}"


@dataclass
class SavedLines:
    """The folder of one script. ``ending`` is for new files: all are exact, and lines are found in either."""

    folder: Path
    ending: str
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)  # by key: file, report

    @classmethod
    @contextmanager
    def open(cls, folder: Path, audio: str) -> Iterator[SavedLines]:
        """Hold the folder, and yield what an earlier run left in it; ``audio``: the format of the track."""
        with explaining(f"folder {folder}", "made"):
            folder.mkdir(parents=True, exist_ok=True)
        with exclusive(folder):
            entries = read_saved(folder) if (folder / MANIFEST).exists() else {}
            yield cls(folder, ".wav" if audio == "wav" else ".flac", entries)

    def place(self, plans: Sequence[Plan]) -> None:
        """Rename the files of saved lines to their places in the script."""
        first = {plan.key: plan for plan in reversed(plans)}  # lines of one sound share a file
        for plan in first.values():
            if (file := self._find(plan.key)) is None:
                continue
            wanted = self.folder / plan.file_name(file.suffix)
            with explaining(file, "renamed", "choose another folder with --out"):
                os.replace(file, wanted)
            self.entries[plan.key]["file"] = wanted.name

    def _find(self, key: str) -> Path | None:
        """Return the file of a line, also if it was renamed before a run was interrupted; None if it is gone."""
        if key not in self.entries:
            return None
        named = self.folder / str(self.entries[key].get("file"))
        if named.suffix in ENDINGS and named.is_file() and named.parent == self.folder:
            return named
        found = sorted(self.folder.glob(f"*_{key[:SHOWN_KEY]}.*"))
        return next((path for path in found if path.suffix in ENDINGS), None)

    def has(self, key: str) -> bool:
        return self._find(key) is not None

    def add(self, plan: Plan, spoken: Spoken) -> None:
        from ...morph.audio.writer import encode_by_libsndfile

        path = self.folder / plan.file_name(self.ending)
        write_whole(path, encode_by_libsndfile(spoken.waveform, spoken.sample_rate, self.ending[1:]))
        entry = {
            "report": asdict(spoken.report),
            "engine": spoken.engine,
            "spans": [write_span(span) for span in spoken.spans],
            "speed": spoken.speed,
            "words": [astuple(word) for word in spoken.words],
        }
        self.entries[plan.key] = {"file": path.name, **entry, "sha256": make_key(entry)}
        with (self.folder / NEW_LINES).open("a", encoding="utf-8") as file:
            file.write(json.dumps([plan.key, self.entries[plan.key]]) + "\n")

    def read(self, key: str, rate: int) -> Spoken:
        """Return a saved line; a file that was edited by hand counts as it is. ValueError if unreadable."""
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
        spans = tuple(map(read_span, entry["spans"])) if whole else ()
        words = read_words(entry["words"]) if whole else ()
        report = replace(report, seconds=len(waveform) / rate)
        return Spoken(waveform, rate, report, spans, entry["engine"], speed=entry["speed"], words=words)

    def report(self, key: str) -> LineReport:
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


def read_saved(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the entries of the manifest and of newer rows; {} if another version wrote it. ValueError if damaged."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            raise ValueError
        if manifest["version"] != VERSION:  # its lines have other keys
            return {}
        saved = {key: check_entry(entry) for key, entry in dict(manifest["saved"]).items()}
    except UNREADABLE as error:
        raise ValueError(
            f"{path} is not a manifest of this program: choose another folder with --out, or delete it"
        ) from error
    return saved | read_new_lines(folder / NEW_LINES)


def check_entry(entry: Any) -> dict[str, Any]:
    """Return the entry of a line; one of UNREADABLE if it is not as it was written."""
    facts = {key: value for key, value in entry.items() if key not in ("file", "sha256")}
    if entry["sha256"] != make_key(facts):
        raise ValueError("its checksum does not match")
    return dict(entry)


def write_span(span: PieceSpan) -> dict[str, Any]:
    place = {"text": span.text, "start": span.start, "end": span.end}
    return place if span.trace is None else {**place, "trimmed": span.trimmed, "trace": span.trace.to_lists()}


def read_span(span: Mapping[str, Any]) -> PieceSpan:
    from ...morph.speech.lines import PieceSpan
    from ...morph.words.trace import Trace

    facts = dict(span)
    lists = facts.pop("trace", None)
    return PieceSpan(**facts, trace=None if lists is None else Trace.from_lists(lists))


def read_report(fields: Mapping[str, Any]) -> LineReport:
    from ...morph.speech.lines import LineReport

    readings = tuple(Reading(**one) for one in fields["readings"])
    report = LineReport(**{**fields, "notes": tuple(fields["notes"]), "readings": readings})
    return report if report.heard is None else replace(report, heard=HeardWords(**fields["heard"]))


def read_new_lines(path: Path) -> dict[str, dict[str, Any]]:
    """Return the rows since the manifest, without an unfinished last one; ValueError for a damaged one."""
    entries: dict[str, dict[str, Any]] = {}
    content = path.read_bytes() if path.is_file() else b""
    for number, row in enumerate(content.splitlines(keepends=True), start=1):
        if not row.endswith(b"\n"):
            break
        try:
            key, entry = json.loads(row)
            entries[str(key)] = check_entry(entry)
        except UNREADABLE as error:
            raise ValueError(
                f"{path} is damaged in row {number}: delete it; the lines that only it knows are spoken again"
            ) from error
    return entries
