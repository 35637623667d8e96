"""Kept lines: what comes back equals what was kept, damage is noticed, and the bytes stay within their bound."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from qwen3_tts_morph.morph.kept import cache as line_cache
from qwen3_tts_morph.morph.kept.cache import CacheSize, DamagedLine, LineCache
from qwen3_tts_morph.morph.speech.lines import Line, LineReport, PieceSpan, Spoken
from qwen3_tts_morph.morph.text.normalize import NormalizedText
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.morph.words.alignment import Trace

VOICE = Voice("preset", "0b6", speaker="ryan")
LINE = Line("It costs $5.", VOICE, name="ANNA")
TEXT = NormalizedText("It costs five dollars.", ("A note.",))
SAMPLES = np.array([0.0, -0.0, 1e-42, 1.0, -1.0, 1 / 3], dtype=np.float32)


def key(digit: str) -> str:
    return digit * 64


def spoken(samples: np.ndarray = SAMPLES, ended: str = "eos", takes: int = 1) -> Spoken:
    report = LineReport("ANNA", LINE.text, 7, len(samples) / 24000, ended, 2, TEXT.text, takes, TEXT.notes)
    spans = (PieceSpan("It costs", 0, 4), PieceSpan("five dollars. é", 3, 6))
    return Spoken(samples, 24000, report, spans, "engine: eager (as chosen)")


@pytest.fixture
def cache(tmp_path: Path) -> LineCache:
    return LineCache(tmp_path / "lines", 10**6)


def test_a_kept_line_comes_back_to_the_bit(cache) -> None:
    assert cache.find(key("a"), LINE, 1) is None and cache.size() == CacheSize(0, 0)
    cache.keep(key("a"), spoken(), 3)
    found = cache.find(key("a"), LINE, 1)
    assert found.waveform.tobytes() == SAMPLES.tobytes()
    assert found.report == replace(spoken().report, from_before=True)
    assert replace(found, waveform=SAMPLES, report=spoken().report) == replace(spoken(), waveform=SAMPLES)
    assert cache.find(key("b"), LINE, 1) is None


def test_name_and_text_are_those_of_the_line_that_asks(cache) -> None:
    cache.keep(key("a"), spoken(), 1)
    other = Line("It costs five dollars.", VOICE, name="BEN")
    report = cache.find(key("a"), other, 1).report
    assert (report.name, report.text, report.spoken, report.notes) == ("BEN", other.text, "", TEXT.notes)


def test_the_trace_of_a_piece_is_kept_and_lines_without_one_are_found(cache) -> None:
    trace = Trace(np.array([0, 2, -1]), np.array([0.5, 0.25, 0.0]), np.array([0.75, 0.5, 0.0]))
    first, second = spoken().spans
    cache.keep(key("a"), replace(spoken(), spans=(replace(first, trace=trace, trimmed=12), second)), 3)
    kept, other = cache.find(key("a"), LINE, 1).spans
    assert kept == first and kept.trimmed == 12 and kept.trace.to_lists() == trace.to_lists()
    assert other == second and other.trace is None


def flip(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


DAMAGE = {
    "nothing": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "one bit of the samples": flip,
    "one bit of the words": lambda content: content.replace(b'frames\\": 7', b'frames\\": 8'),
    "a header that is too long": lambda content: b"\xff" * 8 + content[8:],
    "another format": lambda content: content.replace(b"qwen3-tts-line", b"qwen3-tts-lime"),
    "noise": lambda content: os.urandom(len(content)),
    "nested": lambda content: (10**5).to_bytes(8, "little") + b"[" * 10**5,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_noticed_and_the_file_removed(cache, damage, caplog) -> None:
    cache.keep(key("a"), spoken(), 1)
    [file] = cache.folder.iterdir()
    content = file.read_bytes()
    file.write_bytes(DAMAGE[damage](content))
    assert file.read_bytes() != content
    with pytest.raises(DamagedLine, match="is damaged"):
        cache.find(key("a"), LINE, 1)
    assert list(cache.folder.iterdir()) == [] and "damaged" in caplog.text
    assert cache.find(key("a"), LINE, 1) is None


def test_words_are_kept_beside_lines_and_checked(cache) -> None:
    assert cache.find_words(key("a")) is None
    cache.keep_words(key("a"), "Grüße, 早上好 \U0001f600")
    cache.keep(key("a"), spoken(), 1)
    assert cache.find_words(key("a")) == "Grüße, 早上好 \U0001f600" and cache.size().lines == 1
    [file] = cache.folder.glob("*.words.*")
    file.write_bytes(file.read_bytes().replace(b"Gr", b"gr"))
    assert cache.find_words(key("a")) is None
    assert not file.exists() and cache.find(key("a"), LINE, 1)


def test_a_file_that_cannot_be_read_is_said(cache, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    cache.keep(key("a"), spoken(), 1)
    monkeypatch.setattr(os, "utime", fail)
    assert cache.find(key("a"), LINE, 1)  # it may be read: that is all that is needed
    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(DamagedLine, match=r"cannot be read \(Permission denied\)"):
        cache.find(key("a"), LINE, 1)


def test_a_line_may_be_cleared_by_another_process_while_it_is_kept(cache, monkeypatch) -> None:
    rename = Path.replace

    def cleared(unfinished: Path, path: Path) -> Path:
        assert replace(cache).clear().bytes > 0
        return rename(unfinished, path)

    monkeypatch.setattr(Path, "replace", cleared)
    cache.keep(key("a"), spoken(), 1)
    assert list(cache.folder.iterdir()) == []


def test_a_file_that_is_larger_than_the_folder_may_be_is_not_read(cache) -> None:
    cache.keep(key("a"), spoken(), 1)
    assert replace(cache, most_bytes=100).find(key("a"), LINE, 1) is None and cache.find(key("a"), LINE, 1)


def test_a_line_in_the_format_of_another_version_is_not_found_and_is_replaced(cache, monkeypatch) -> None:
    with monkeypatch.context() as before:
        before.setattr(line_cache, "VERSION", "1")
        cache.keep(key("a"), spoken(), 1)
    assert cache.find(key("a"), LINE, 1) is None and cache.size().lines == 1
    cache.keep(key("a"), spoken(), 1)
    assert cache.find(key("a"), LINE, 1) and cache.size().lines == 1


@pytest.mark.parametrize("full", [False, True])
def test_the_folder_is_looked_at_for_few_of_many_lines(cache, monkeypatch, full) -> None:
    for number in range(400):
        cache.keep_words(f"{number:064x}", "words")
    size = cache.size().bytes
    looks, look = [], os.listdir
    monkeypatch.setattr(os, "listdir", lambda folder: looks.append(folder) or look(folder))
    others = [replace(cache, most_bytes=size if full else 2 * size) for _ in range(2)]  # as two processes
    for number in range(400, 500):
        others[number % 2].keep_words(f"{number:064x}", "words")
    assert len(looks) <= 100 / 3
    assert cache.size().bytes <= (1.02 * size if full else 1.25 * size)


def test_the_least_recently_used_lines_go_first(cache) -> None:
    cache.keep(key("a"), spoken(), 1)
    one = cache.size().bytes
    small = replace(cache, most_bytes=3 * one)
    for digit in "bc":
        small.keep(key(digit), spoken(), 1)
    for age, digit in enumerate("abc"):  # c is the oldest
        os.utime(cache.folder / f"{key(digit)}.line.safetensors", (1000 - age, 1000 - age))
    assert small.find(key("c"), LINE, 1) is not None  # used now
    small.keep(key("d"), spoken(), 1)
    assert [digit for digit in "abcd" if small.find(key(digit), LINE, 1)] == ["a", "c", "d"]
    assert small.size() == CacheSize(3, 3 * one)


def test_a_line_that_is_too_large_is_not_kept(cache) -> None:
    replace(cache, most_bytes=1).keep(key("a"), spoken(), 1)
    assert cache.size() == CacheSize(0, 0)


@pytest.mark.parametrize("name", ["", f"{'b' * 64}.line.safetensors"])  # 0.2.0 had the second
def test_unfinished_files_of_a_killed_process_are_removed_and_nothing_else_is(cache, name) -> None:
    cache.keep(key("a"), spoken(), 1)
    left = cache.folder / f"{name}.{'0' * 16}.part"
    left.write_bytes(b"half")
    os.utime(left, (1, 1))
    mine = cache.folder / "mine.txt"
    mine.write_text("mine")
    replace(cache, most_bytes=cache.size().bytes).keep(key("a"), spoken(), 1)
    assert left.exists()
    replace(cache, most_bytes=cache.size().bytes - 1).keep(key("a"), spoken(), 1)
    assert not left.exists() and cache.find(key("a"), LINE, 1)
    assert cache.clear().lines == 1 and list(cache.folder.iterdir()) == [mine]
    assert cache.clear() == CacheSize(0, 0)


def test_a_line_that_cannot_be_written_leaves_no_file(cache, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        cache.keep(key("a"), spoken(), 1)
    assert list(cache.folder.iterdir()) == []


def test_lines_of_another_sound_are_named_once(cache, caplog) -> None:
    cache.keep(key("a"), spoken(), 1)  # 0.2.0 wrote no version
    for version in (1, 1, 2, 2):
        cache.note_version(version)
    assert [one.getMessage() for one in caplog.records] == [
        "lines kept by an earlier version of the pack sound otherwise: they are made again"
    ] * 2
    cache.clear()
    cache.note_version(3)
    assert len(caplog.records) == 2


@pytest.mark.parametrize("bad", ["", "../" + "a" * 61, "A" * 64, "a" * 63])
def test_a_key_cannot_name_another_file(cache, bad) -> None:
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        cache.find(bad, LINE, 1)


@pytest.mark.parametrize(
    ("ended", "takes", "kept", "asked", "fits"),
    [
        ("eos", 1, 1, 1, True),
        ("eos", 1, 0, 5, True),
        ("eos", 2, 1, 5, True),
        ("eos", 2, 1, 0, False),  # the second take would not have been made
        ("cap", 2, 1, 1, True),
        ("cap", 2, 1, 2, False),  # it could be better now
        ("cap", 2, 1, 0, False),
    ],
)
def test_a_line_fits_where_as_many_retries_would_make_the_same(cache, ended, takes, kept, asked, fits) -> None:
    cache.keep(key("a"), spoken(ended=ended, takes=takes), kept)
    assert (cache.find(key("a"), LINE, asked) is not None) is fits
