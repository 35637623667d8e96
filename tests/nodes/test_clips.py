"""The recordings that a node lists: their files and names, without ComfyUI."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from qwen3_tts_morph.postprocess.pcm import to_s16

from tests.nodes.package import load

clips = load("clips")


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
