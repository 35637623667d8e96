"""Cache rendered lines and recognised words in a folder: one safetensors file each, never pickle.

A file is written under another name and then renamed, so it is complete or absent. Its modification time is its last
use: the least recently used files go first when there are too many bytes.
"""

import hashlib
import json
import logging
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ..runtime.atomic_file import TooLarge, read_limited
from ..speech.lines import Line, LineReport, PieceSpan, Spoken
from ..speech.pieces import NO_SAMPLES, text_as_spoken
from ..speech.takes import ENDS
from ..text.normalize import SpokenText
from ..text.pronunciation import shown_text
from ..words.timing import read_words
from ..words.trace import Trace

log = logging.getLogger(__name__)

FORMAT, VERSION = "qwen3-tts-line", "3"
LINE, WORDS, UNFINISHED = ".line.safetensors", ".words.safetensors", ".part"
SOUND = "sound_version"  # the file that says for which version of the pack's sound the lines are
ROOM = 100  # one new file per so many cached ones, before the folder is scanned again
# 0.2.0 wrote words as JSON.
OWN_NAME = re.compile(r"[0-9a-f]{64}\.(line\.safetensors|words\.(safetensors|json))(\.[0-9a-f]{16}\.part)?")
COUNTS = ("frames", "pieces", "takes")  # of a report
Facts = dict[str, Any]
T = TypeVar("T")


class DamagedLine(ValueError):
    """A cached file is damaged and has been removed, or cannot be read."""


@dataclass(frozen=True)
class CacheSize:
    """The number of cached lines, and the bytes on disk of all files."""

    lines: int
    bytes: int


@dataclass
class LineCache:
    """Cached lines and their recognised words. Several processes may use one folder.

    ``most_bytes`` limits all files. With several processes and many files, the limit may be exceeded by a hundredth
    for a while, and a hundredth more than necessary may go. The folder is created for the first line.
    """

    folder: Path
    most_bytes: int
    # What can be cached before the folder is scanned, which takes longer the more files there are.
    _free_bytes: int = field(default=0, init=False, repr=False, compare=False)
    _free_files: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.most_bytes < 1:
            raise ValueError(f"most_bytes is {self.most_bytes}: choose 1 or more")

    def find(self, key: str, line: Line, retries: int) -> Spoken | None:
        """Return the line cached under ``key`` (64 hexadecimal digits) if ``retries`` would make the same, or None.

        It counts as used now; its report gets the name and text of ``line``. Raises DamagedLine.
        """

        def unpack(facts: Facts, waveform: np.ndarray) -> Spoken | None:
            found = _unpack(line, facts, waveform)
            # A good line needs no more retries than it had.
            is_good = found.report.ended == ENDS[0] and found.report.takes <= retries + 1
            return found if facts["retries"] == retries or is_good else None

        return self._read(self._path(key, LINE), unpack)

    def keep(self, key: str, spoken: Spoken, retries: int) -> None:
        """Cache a line and trim to ``most_bytes``; OSError if it cannot be written, with nothing half-written left.

        ``retries``: how many its pieces could have (``GenerateOptions.retries``).
        """
        self._write(self._path(key, LINE), {"retries": retries, **_facts(spoken)}, spoken.waveform)

    def find_words(self, key: str) -> str | None:
        return self._read(self._path(key, WORDS), lambda facts, _: str(facts["text"]))

    def keep_words(self, key: str, text: str) -> None:
        """Cache the words recognised in a recording; errors as ``keep``."""
        self._write(self._path(key, WORDS), {"text": text}, NO_SAMPLES)

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

    def _read(self, path: Path, unpack: Callable[[Facts, np.ndarray], T | None]) -> T | None:
        try:
            content = read_limited(path, self.most_bytes)
        except (FileNotFoundError, TooLarge):  # a file too large for the folder goes when the line is cached
            return None
        except OSError as error:
            raise DamagedLine(f"cannot be read ({error.strerror or error})") from error
        with suppress(OSError):  # another user's file, or another process has removed it
            os.utime(path)
        try:
            found = _decode(content)
            return None if found is None else unpack(*found)
        except (SafetensorError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            log.warning("a kept file is damaged and removed: %s (%s)", path.name, error)
            _remove(path)
            raise DamagedLine("is damaged") from error

    def _write(self, path: Path, facts: Facts, waveform: np.ndarray) -> None:
        content = _encode(facts, np.ascontiguousarray(waveform, dtype=np.float32))
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.{secrets.token_hex(8)}{UNFINISHED}")
        try:
            unfinished.write_bytes(content)
            # Another process may remove it before it is renamed: as if it were removed a moment later.
            with suppress(FileNotFoundError):
                unfinished.replace(path)
        finally:
            _remove(unfinished)
        self._free_bytes -= len(content)
        self._free_files -= 1
        if min(self._free_bytes, self._free_files) < 0:
            self._trim()

    def size(self) -> CacheSize:
        return _size(self._files())

    def clear(self) -> CacheSize:
        return _size((path, status) for path, status in list(self._files()) if _remove(path))

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
        self._free_bytes, self._free_files = self.most_bytes - total, ahead


def _size(files: Iterable[tuple[Path, os.stat_result]]) -> CacheSize:
    sizes = [(path.name.endswith(LINE), status.st_size) for path, status in files]
    return CacheSize(sum(is_line for is_line, _ in sizes), sum(size for _, size in sizes))


def _remove(path: Path) -> bool:
    """Remove a file if it exists; return whether it is gone. Windows keeps a file that another process reads."""
    try:
        path.unlink(missing_ok=True)
    except PermissionError as error:
        log.warning("%s cannot be removed: %s", path.name, error)
        return False
    return True


def _encode(facts: Facts, waveform: np.ndarray) -> bytes:
    said = json.dumps(facts)
    metadata = {"format": FORMAT, "version": VERSION, "line": said, "sha256": _digest(said, waveform)}
    return save({"waveform": waveform}, metadata)


def _decode(content: bytes) -> tuple[Facts, np.ndarray] | None:
    """Return what ``_encode`` was given; None for another version. Raises one of the errors that ``_read`` catches."""
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    metadata: dict[str, str] = header["__metadata__"]
    if metadata["format"] != FORMAT:
        raise ValueError("it has another format")
    if metadata["version"] != VERSION:
        return None
    waveform = load(content)["waveform"]
    if metadata["sha256"] != _digest(metadata["line"], waveform):
        raise ValueError("its checksum does not match")
    return json.loads(metadata["line"]), waveform


def _digest(said: str, waveform: np.ndarray) -> str:
    digest = hashlib.sha256(said.encode() + b"\0")
    digest.update(waveform.data)  # without a copy: a line may be hours long
    return digest.hexdigest()


def _facts(spoken: Spoken) -> Facts:
    report = spoken.report
    return {
        "sample_rate": spoken.sample_rate,
        "engine": spoken.engine,
        "spans": [
            [span.text, span.start, span.end, span.trimmed, span.trace and span.trace.to_lists()]
            for span in spoken.spans
        ],
        "words": [astuple(word) for word in spoken.words],
        "counts": {name: getattr(report, name) for name in COUNTS},
        "ended": report.ended,
        "text": report.spoken or shown_text(report.text),
        "notes": report.notes,
    }


def _unpack(line: Line, facts: Facts, waveform: np.ndarray) -> Spoken:
    """Return a line from its facts; raises one of the errors that ``_read`` catches for what is no line."""
    rate, ended, notes = facts["sample_rate"], facts["ended"], tuple(facts["notes"])
    if waveform.dtype != np.float32 or waveform.ndim != 1 or not np.isfinite(waveform).all():
        raise ValueError("its samples are not float32 of one channel, or not finite")
    spans = tuple(
        PieceSpan(text, start, end, None if trace is None else Trace.from_lists(trace), trimmed)
        for text, start, end, trimmed, trace in facts["spans"]
    )
    if ended not in ENDS or not all(0 <= span.start <= span.end <= len(waveform) for span in spans):
        raise ValueError("a piece of it is not in its sound, or its end is none")
    report = LineReport(
        line.name,
        str(line.text),
        seconds=len(waveform) / rate,
        ended=ended,
        spoken=text_as_spoken(line, SpokenText(facts["text"])),
        notes=notes,
        from_before=True,
        readings=line.find_readings(str(line.text)),
        **facts["counts"],
    )
    return Spoken(waveform, rate, report, spans, facts["engine"], words=read_words(facts["words"]))
