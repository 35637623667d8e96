"""Cache rendered lines and recognised words in a folder: one safetensors or JSON file each, never pickle.

A file is written under another name and then renamed, so it is complete or absent. Its modification time is its last
use: the least recently used files go first when there are too many bytes.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ..runtime.whole_file import TooLarge, read_whole
from ..speech.lines import Line, LineReport, PieceSpan, Spoken
from ..speech.pieces import text_as_spoken
from ..speech.takes import ENDS
from ..text.normalize import SpokenText
from ..text.pronunciation import shown_text
from ..words.timing import read_words
from ..words.trace import Trace

T = TypeVar("T")
log = logging.getLogger(__name__)

FORMAT, VERSION = "qwen3-tts-line", "2"
LINE, WORDS, UNFINISHED = ".line.safetensors", ".words.json", ".part"
SOUND = "sound_version"  # the file that says for which version of the pack's sound the lines are
ROOM = 100  # one new file per so many cached ones, before the folder is scanned again
MOST = 1 << 40  # above any count in a line
OWN_NAME = re.compile(r"[0-9a-f]{64}\.(line\.safetensors|words\.json)(\.[0-9a-f]{16}\.part)?")


class DamagedLine(ValueError):
    """A cached file is damaged and has been removed, or cannot be read."""


@dataclass(frozen=True)
class Kept:
    """A cached line, with the retries that its pieces could have (``GenerateOptions.retries``)."""

    spoken: Spoken
    retries: int

    def fits(self, retries: int) -> bool:
        """Return whether a rendering with ``retries`` would make the same line: a good one needs no more."""
        report = self.spoken.report
        return self.retries == retries or (report.ended == ENDS[0] and report.takes <= retries + 1)


@dataclass(frozen=True)
class CacheSize:
    """The number of cached lines, and the bytes on disk of all files."""

    lines: int
    bytes: int


class _Room:
    """How much can be cached before the folder is scanned, which takes longer the more files there are."""

    def __init__(self) -> None:
        self._bytes = self._files = 0

    def take(self, size: int) -> bool:
        """Note a cached file; return whether there was room for it."""
        self._bytes -= size
        self._files -= 1
        return self._bytes >= 0 and self._files >= 0

    def set(self, size: int, files: int) -> None:
        """Note the free bytes, and after how many files other processes may have used them."""
        self._bytes, self._files = size, files


@dataclass(frozen=True)
class LineCache:
    """Cached lines and their recognised words. Several processes may use one folder.

    ``most_bytes`` limits all files. With several processes and many files, the limit may be exceeded by a hundredth
    for a while, and a hundredth more than necessary may go. The folder is created for the first line.
    """

    folder: Path
    most_bytes: int
    _room: _Room = field(default_factory=_Room, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.most_bytes < 1:
            raise ValueError(f"most_bytes is {self.most_bytes}: choose 1 or more")

    def find(self, key: str, line: Line) -> Kept | None:
        """Return what is cached under ``key`` (64 hexadecimal digits), or None, also for another version.

        It counts as used now; its report gets the name and text of ``line``. Raises DamagedLine.
        """
        return self._read(self._path(key, LINE), lambda content: _unpack(content, line))

    def keep(self, key: str, kept: Kept) -> None:
        """Cache a line and trim to ``most_bytes``; OSError if it cannot be written, with nothing half-written left."""
        self._write(self._path(key, LINE), _pack(kept))

    def find_words(self, key: str) -> str | None:
        """Return the words cached under a key, or None; errors as ``find``."""
        return self._read(self._path(key, WORDS), _unpack_words)

    def keep_words(self, key: str, text: str) -> None:
        """Cache the words recognised in a recording; errors as ``keep``."""
        digest = hashlib.sha256(text.encode()).hexdigest()
        self._write(self._path(key, WORDS), json.dumps({"text": text, "sha256": digest}).encode())

    def note_version(self, version: int) -> None:
        """Log once if the lines were made before the pack's sound had this version: they are made again."""
        path, known = self.folder / SOUND, b""  # 0.2.0 wrote none
        with suppress(OSError):
            known = path.read_bytes()
        if known == b"%d" % version:
            return
        if self.size().lines:
            log.warning("lines kept by an earlier version of the pack sound otherwise: they are made again")
        with suppress(OSError):  # each line says that it cannot be kept
            self.folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"%d" % version)

    def _read(self, path: Path, unpack: Callable[[bytes], T | None]) -> T | None:
        try:
            content = read_whole(path, self.most_bytes)
        except (FileNotFoundError, TooLarge):  # a file too large for the folder goes when the line is cached
            return None
        except OSError as error:
            why = _clear_folder(path) if path.is_dir() else error.strerror or str(error)
            raise DamagedLine(f"cannot be read ({why})") from error
        try:
            os.utime(path)
        except OSError as error:  # another user's file, or another process has removed it
            log.debug("a kept file goes earlier than it should: %s (%s)", path.name, error)
        try:
            return unpack(content)
        except (SafetensorError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            log.warning("a kept file is damaged and removed: %s (%s)", path.name, error)
            _remove(path)
            raise DamagedLine("is damaged") from error

    def _write(self, path: Path, content: bytes) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.{secrets.token_hex(8)}{UNFINISHED}")
        try:
            unfinished.write_bytes(content)
            # Another process may remove it before it is renamed: as if it were removed a moment later.
            with suppress(FileNotFoundError):
                unfinished.replace(path)
        finally:
            _remove(unfinished)
        if not self._room.take(len(content)):
            self._trim()

    def size(self) -> CacheSize:
        return _size(list(self._files()))

    def clear(self) -> CacheSize:
        return _size([(path, status) for path, status in self._files() if _remove(path)])

    def _path(self, key: str, suffix: str) -> Path:
        path = self.folder / f"{key}{suffix}"
        if not OWN_NAME.fullmatch(path.name):
            raise ValueError(f"key is {key[:80]!r}: it is 64 hexadecimal digits")
        return path

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return
        for name in filter(OWN_NAME.fullmatch, names):
            try:
                status = os.stat(self.folder / name)
            except FileNotFoundError:  # another process has removed it
                continue
            if stat.S_ISREG(status.st_mode):
                yield self.folder / name, status

    def _trim(self) -> None:
        files = sorted(self._files(), key=lambda file: file[1].st_mtime_ns)
        total, ahead = sum(status.st_size for _, status in files), len(files) // ROOM
        target = self.most_bytes
        if total > target and ahead:
            target -= ahead * (total // len(files))
        for path, status in files:
            if total <= target:
                break
            if _remove(path):
                total -= status.st_size
        self._room.set(self.most_bytes - total, ahead)


def _size(files: Sequence[tuple[Path, os.stat_result]]) -> CacheSize:
    lines = sum(path.name.endswith(LINE) for path, _ in files)
    return CacheSize(lines, sum(status.st_size for _, status in files))


def _remove(path: Path) -> bool:
    """Remove a file if it exists; return whether it is gone. Windows keeps a file that another process reads."""
    try:
        path.unlink(missing_ok=True)
    except PermissionError as error:
        log.warning("%s cannot be removed: %s", path.name, error)
        return False
    return True


def _clear_folder(path: Path) -> str:
    """Remove an empty folder in a file's place; return what is wrong."""
    try:
        path.rmdir()
    except OSError:
        return f"a folder is in its place: delete {path.name}"
    return "a folder was in its place"


def _pack(kept: Kept) -> bytes:
    spoken, report = kept.spoken, kept.spoken.report
    facts = {
        "retries": kept.retries,
        "sample_rate": spoken.sample_rate,
        "engine": spoken.engine,
        "spans": [[span.text, span.start, span.end] for span in spoken.spans],
        "traces": [
            [span.trimmed, span.trace.to_lists()] if span.trace is not None else None for span in spoken.spans
        ],
        "words": [astuple(word) for word in spoken.words],
        "frames": report.frames,
        "ended": report.ended,
        "pieces": report.pieces,
        "takes": report.takes,
        "text": report.spoken or shown_text(report.text),
        "notes": report.notes,
    }
    words = json.dumps(facts)
    waveform = np.ascontiguousarray(spoken.waveform, dtype=np.float32)
    metadata = {"format": FORMAT, "version": VERSION, "line": words, "sha256": _digest(words, waveform)}
    return save({"waveform": waveform}, metadata)


def _unpack_words(content: bytes) -> str:
    said = json.loads(content)
    text = said["text"]
    if said["sha256"] != hashlib.sha256(text.encode()).hexdigest():
        raise ValueError("its checksum does not match")
    return str(text)


def _unpack(content: bytes, line: Line) -> Kept | None:
    """Read a file's content; raises one of the errors that ``_read`` catches if anything is wrong with it."""
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    metadata: dict[str, Any] = header["__metadata__"]
    if metadata["format"] != FORMAT:
        raise ValueError("it has another format")
    if metadata["version"] != VERSION:
        return None
    waveform = load(content)["waveform"]
    if metadata["sha256"] != _digest(metadata["line"], waveform):
        raise ValueError("its checksum does not match")
    facts = json.loads(metadata["line"])
    _check(waveform, facts)
    text = SpokenText(facts["text"], tuple(facts["notes"]))
    report = LineReport(
        line.name,
        str(line.text),
        facts["frames"],
        len(waveform) / facts["sample_rate"],
        facts["ended"],
        facts["pieces"],
        text_as_spoken(line, text),
        facts["takes"],
        text.notes,
        from_before=True,
        readings=line.find_readings(str(line.text)),
    )
    traces = facts.get("traces") or [None] * len(facts["spans"])
    spans = tuple(_span(*one) for one in zip(facts["spans"], traces, strict=True))
    words = read_words(facts.get("words", ()))
    spoken = Spoken(waveform, facts["sample_rate"], report, spans, facts["engine"], words=words)
    return Kept(spoken, facts["retries"])


def _span(place: list[Any], traced: list[Any] | None) -> PieceSpan:
    if traced is None:
        return PieceSpan(*place)
    trimmed, lists = traced
    if type(trimmed) is not int or not 0 <= trimmed < MOST:
        raise ValueError("a number of it is out of range")
    text, start, end = place
    return PieceSpan(text, start, end, Trace.from_lists(lists), trimmed)


def _check(waveform: np.ndarray, facts: dict[str, Any]) -> None:
    """Raise ValueError for values that no rendering produces, though the checksum is right."""
    if waveform.dtype != np.float32 or waveform.ndim != 1 or not np.isfinite(waveform).all():
        raise ValueError("its samples are not float32 of one channel, or not finite")
    counts = [facts[name] for name in ("sample_rate", "takes")]
    counts += [facts[name] + 1 for name in ("frames", "pieces", "retries")]
    counts += [place + 1 for _, *places in facts["spans"] for place in places]
    if not all(type(count) is int and 0 < count < MOST for count in counts):
        raise ValueError("a number of it is out of range")
    if not all(start <= end <= len(waveform) for _, start, end in facts["spans"]):
        raise ValueError("a piece of it is not in its sound")
    texts = [facts["engine"], facts["text"], *facts["notes"], *(text for text, _, _ in facts["spans"])]
    if facts["ended"] not in ENDS or not all(isinstance(text, str) for text in texts):
        raise ValueError("a word of it is none")


def _digest(words: str, waveform: np.ndarray) -> str:
    digest = hashlib.sha256(words.encode() + b"\0")
    digest.update(waveform.data)  # without a copy: a line may be hours long
    return digest.hexdigest()
