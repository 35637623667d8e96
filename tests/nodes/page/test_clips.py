"""The recordings that a node lists: their files and names, without ComfyUI."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
from qwen3_tts_morph.morph.words.timing import WordTime
from qwen3_tts_morph.postprocess.convert import to_s16

from tests.nodes.package import load

clips = load("page.clips")
ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("number", "name", "text", "file"),
    [
        (1, "", "Hello there.", "001_Hello-there.flac"),
        (12, "Anna K.", "../../etc/passwd: what?", "012_Anna-K_etc-passwd-what.flac"),
        (3, "SEQ_GROUPS 5", "", "003_SEQ-GROUPS-5.flac"),
        (4, "名前", "你好，世界。", "004_名前_你好-世界.flac"),
        (5, "CON", '<>:"|?*', "005_CON.flac"),
        (6, "", "...", "006.flac"),
        (7, "नमस्ते", "\ud800 x", "007_नमस्ते_x.flac"),
    ],
)
def test_a_clips_file_name_is_safe_and_says_what_it_is(number: int, name: str, text: str, file: str) -> None:
    assert clips.file_name(number, name, text) == file


def test_a_long_text_gives_a_short_name() -> None:
    assert len(clips.file_name(1, "n" * 300, "words " * 300)) < 100
    assert len(clips.file_name(1, "\U00020000" * 300, "\U00020000" * 300).encode()) < 255


def test_clips_are_written_as_they_are_heard(tmp_path: Path) -> None:
    wave = np.sin(np.arange(4800) / 20).astype(np.float32)
    said = [
        clips.Clip(wave, 24000, "Anna", "Hello."),
        clips.Clip(wave / 2, 24000, "Ben", "Hi.", ("is silent",)),
    ]
    shown = clips.write_clips(said, tmp_path)
    assert [(one["name"], one["text"], one["seconds"], one["problems"]) for one in shown] == [
        ("Anna", "Hello.", 0.2, []),
        ("Ben", "Hi.", 0.2, ["is silent"]),
    ]
    for one, clip in zip(shown, said, strict=True):
        path = tmp_path / one["subfolder"] / one["filename"]
        samples, rate = soundfile.read(path, dtype="int16")
        assert rate == 24000 and np.array_equal(samples, to_s16(clip.waveform))


def test_a_clip_with_words_lists_them_as_they_are_shown_with_their_times(tmp_path: Path) -> None:
    own = (
        WordTime("Hi,", 0.0, 0.10001, 0, 3),
        WordTime("\u4f60", 0.2, 0.3, 4, 5),
        WordTime("\u597d", 0.3, 0.4, 5, 6),
    )
    lit = clips.show_words(own)
    assert lit == (("Hi,", 0.0, 0.1), (" \u4f60", 0.2, 0.3), ("\u597d", 0.3, 0.4))
    wave = np.zeros(9600, dtype=np.float32)
    listed = clips.write_clips([clips.Clip(wave, 24000, "", "", (), lit), clips.Clip(wave, 24000, "", "")], tmp_path)
    assert listed[0]["words"] == list(lit) and "words" not in listed[1]
    assert clips.show_words(()) == ()


def test_a_node_shows_a_text_its_clips_and_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "folder_paths", SimpleNamespace(get_temp_directory=lambda: str(tmp_path)))
    clip = clips.Clip(np.zeros(240, dtype=np.float32), 24000, "", "Hello.")
    shown = clips.show("Complete.", [clip], report="1.1 times")
    assert (shown["text"], shown["morph_clips_report"]) == (("Complete.",), ("1.1 times",))
    assert [one["text"] for one in shown["morph_clips"]] == ["Hello."]
    assert clips.show("Complete.", [clip])["morph_clips_report"] == ("",)


def test_the_page_knows_every_template_by_its_id() -> None:
    """It gives each copy of one an id of its own."""
    source = (ROOT / "web" / "js" / "start.js").read_text(encoding="utf-8")
    [prefix] = re.findall(r'TEMPLATE_IDS = "([^"]+)"', source)
    ids = [json.loads(path.read_text(encoding="utf-8"))["id"] for path in (ROOT / "workflows").glob("*.json")]
    assert ids and all(one.startswith(prefix) for one in ids) and len(set(ids)) == len(ids)
