"""Cache rendered lines and recognised words in a folder: one safetensors file each, never pickle.

A file's modification time is its last use: the least recently used files go first when there are too many bytes.
"""

import hashlib
import json
import logging
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save

from ...postprocess.join import NO_SAMPLES
from ..checkpoint.files import unpack_parts
from ..runtime.atomic_file import TooLarge, file_state, read_limited, write_atomic
from ..speech.lines import ENDS, Line, LineReport, PieceSpan, Spoken
from ..speech.pieces import text_as_spoken
from ..text.normalize import NormalizedText
from ..text.pronunciation import shown_text
from ..words.alignment import Trace
from ..words.timing import WordTime

log = logging.getLogger(__name__)

FORMAT, VERSION = "qwen3-tts-line", "3"
LINE, WORDS = ".line.safetensors", ".words.safetensors"
SOUND = "sound_version"  # the file that says for which version of the pack's sound the lines are
ROOM = 100  # the folder is scanned again after a hundredth of its bytes is written
# 0.2.0 wrote words as JSON, and named unfinished files after the finished ones.
OWN_NAME = re.compile(r"([0-9a-f]{64}\.(line\.safetensors|words\.(safetensors|json)))?(\.[0-9a-f]{16}\.part)?")
COUNTS = ("frames", "pieces", "takes")  # of a report
Facts = dict[str, Any]
CacheFile = tuple[Path, tuple[int, int]]
"""A file, its modification time in ns, and its bytes."""


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
    # How much can be written before the folder is scanned, which takes longer the more files there are.
    _free_bytes: int = field(default=0, init=False, repr=False, compare=False)

    def find(self, key: str, line: Line, retries: int) -> Spoken | None:
        """Return the line cached under ``key`` (64 hexadecimal digits) if ``retries`` would make the same, or None.

        It counts as used now; its report gets the name and text of ``line``. Raises DamagedLine.
        """
        if (cached := self._read(key, LINE)) is None:
            return None
        facts, waveform = cached
        # A good line needs no more retries than it had.
        is_good = facts["ended"] == ENDS[0] and facts["counts"]["takes"] <= retries + 1
        return _unpack(line, facts, waveform) if is_good or facts["retries"] == retries else None

    def keep(self, key: str, spoken: Spoken, retries: int) -> None:
        """Cache a line and trim to ``most_bytes``; OSError if it cannot be written, with nothing half-written left.

        ``retries``: how many its pieces could have (``GenerateOptions.retries``).
        """
        self._write(key, LINE, {"retries": retries, **_facts(spoken)}, spoken.waveform)

    def find_words(self, key: str) -> str | None:
        try:
            cached = self._read(key, WORDS)
            return None if cached is None else cached[0]["text"]
        except DamagedLine as error:
            log.warning("words kept from an earlier run: %s; the line is transcribed again", error)
            return None

    def keep_words(self, key: str, text: str) -> None:
        """Cache the words recognised in a recording, if they can be written."""
        try:
            self._write(key, WORDS, {"text": text}, NO_SAMPLES)
        except OSError as error:
            log.warning("words cannot be kept: %s", error)

    def note_version(self, version: int) -> None:
        """Log once if the lines are of another version of the pack's sound: their keys differ, so none is found."""
        path = self.folder / SOUND
        with suppress(OSError):  # 0.2.0 wrote none
            if path.read_bytes() == b"%d" % version:
                return
        if self.size().lines:
            log.warning("lines kept by an earlier version of the pack sound otherwise: they are made again")
        with suppress(OSError):  # each line says that it cannot be kept
            self.folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"%d" % version)

    def _read(self, key: str, kind: str) -> tuple[Facts, np.ndarray] | None:
        path = self._path(key, kind)
        try:
            content = read_limited(path, self.most_bytes)
        except (FileNotFoundError, TooLarge):  # a file too large for the folder goes when the line is cached
            return None
        except OSError as error:
            raise DamagedLine(f"cannot be read ({error.strerror or error})") from error
        with suppress(OSError):  # another user's file, or another process has removed it
            os.utime(path)
        try:
            return _decode(content)
        except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
            log.warning("a kept file is damaged and removed: %s (%s)", path.name, error)
            _remove(path)
            raise DamagedLine("is damaged") from error

    def _write(self, key: str, kind: str, facts: Facts, waveform: np.ndarray) -> None:
        path, line = self._path(key, kind), json.dumps(facts)
        metadata = {"format": FORMAT, "version": VERSION, "line": line, "sha256": _digest(line, waveform.data)}
        content = save({"waveform": waveform}, metadata)
        self.folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # another process clears the folder
            write_atomic(path, content)
        self._free_bytes -= len(content)
        if self._free_bytes < 0:
            self._trim()

    def size(self) -> CacheSize:
        return _size(self._files())

    def clear(self) -> CacheSize:
        return _size([file for file in self._files() if _remove(file[0])])

    def _path(self, key: str, kind: str) -> Path:
        if not OWN_NAME.fullmatch(f"{key}{kind}"):
            raise ValueError(f"key is {key[:80]!r}: it is 64 hexadecimal digits")
        return self.folder / f"{key}{kind}"

    def _files(self) -> list[CacheFile]:
        names = os.listdir(self.folder) if self.folder.exists() else []
        paths = [self.folder / name for name in filter(OWN_NAME.fullmatch, names)]
        return [(path, state) for path in paths if (state := file_state(path)) is not None]

    def _trim(self) -> None:
        files = sorted(self._files(), key=lambda file: file[1])
        total = sum(size for _, (_, size) in files)
        ahead = total // ROOM if len(files) >= ROOM else 0
        target = self.most_bytes - (ahead if total > self.most_bytes else 0)
        for path, (_, size) in files:
            if total > target and _remove(path):
                total -= size
        self._free_bytes = min(self.most_bytes - total, ahead)


def _size(files: Sequence[CacheFile]) -> CacheSize:
    return CacheSize(sum(path.name.endswith(LINE) for path, _ in files), sum(size for _, (_, size) in files))


def _remove(path: Path) -> bool:
    """Remove a file if it exists; return whether it is gone. Windows keeps a file that another process reads."""
    try:
        path.unlink(missing_ok=True)
    except PermissionError as error:
        log.warning("%s cannot be removed: %s", path.name, error)
        return False
    return True


def _decode(content: bytes) -> tuple[Facts, np.ndarray] | None:
    """Return a file's facts and waveform, None for another version; the errors that ``_read`` catches."""
    parts, metadata = unpack_parts(content)
    if metadata["format"] != FORMAT:
        raise ValueError("it has another format")
    if metadata["version"] != VERSION:
        return None
    samples = parts["waveform"]["data"]
    if metadata["sha256"] != _digest(metadata["line"], samples):
        raise ValueError("its checksum does not match")
    return json.loads(metadata["line"]), np.frombuffer(samples, dtype=np.float32)


def _digest(line: str, samples: memoryview | bytearray) -> str:
    digest = hashlib.sha256(line.encode() + b"\0")
    digest.update(samples)  # without a copy: a line may be hours long
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
    rate = facts["sample_rate"]
    spans = tuple(
        PieceSpan(text, start, end, None if trace is None else Trace.from_lists(trace), trimmed)
        for text, start, end, trimmed, trace in facts["spans"]
    )
    words = tuple(WordTime(*word) for word in facts["words"])
    report = LineReport(
        line.name,
        str(line.text),
        seconds=len(waveform) / rate,
        ended=facts["ended"],
        spoken=text_as_spoken(line, NormalizedText(facts["text"])),
        notes=tuple(facts["notes"]),
        from_before=True,
        readings=line.find_readings(str(line.text)),
        **facts["counts"],
    )
    return Spoken(waveform, rate, report, spans, facts["engine"], words=words)
