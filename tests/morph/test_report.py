"""The report: every line, how it ended, and the arithmetic of speed."""

from __future__ import annotations

import numpy as np
import pytest
from qwen3_tts_morph.morph.options import GenerateOptions
from qwen3_tts_morph.morph.render import LineReport, Spoken
from qwen3_tts_morph.morph.report import describe, describe_groups


def spoken(name: str, text: str, frames: int, ended: str = "eos", pieces: int = 1) -> Spoken:
    report = LineReport(name, text, frames, frames * 0.08, ended, pieces)
    return Spoken(np.zeros(frames * 1920, dtype=np.float32), 24000, report)


@pytest.fixture
def model(load):
    return load("tiny", "base")


def test_speed_is_time_over_audio_and_over_frames(model):
    lines = [spoken("", "One.", 25), spoken("", "Two.", 50)]  # 2 s and 4 s
    last = describe(model, lines, GenerateOptions(), 1.5).splitlines()[-1]
    assert last == "6.00 s of audio in 1.50 s: RTF 0.250, 20.0 ms/frame"


def test_every_line_is_told_in_order_with_its_end(model):
    lines = [
        spoken("ANNA", "Hello.", 10),
        spoken("", "x" * 61, 20, "cap", pieces=3),
        spoken("BOB", "y" * 60, 5, "loop"),
    ]
    first, groups, engine, *rows, _ = describe(model, lines, GenerateOptions(seq_groups=15), 1.0).splitlines()
    assert first == model.summary()
    assert groups == "SEQ_GROUPS 15 (exact)"
    assert engine == "engine: eager (no CUDA)"
    assert rows[0] == "1. ANNA: 'Hello.': 10 frames, 0.80 s, ended by itself"
    assert rows[1].startswith(f"2. '{'x' * 57}...': 20 frames, 1.60 s in 3 pieces, RAN INTO ITS LIMIT")
    assert rows[2].startswith(f"3. BOB: '{'y' * 60}': 5 frames, 0.40 s, REPEATED ITSELF")
    assert len(rows) == 3


def test_a_text_of_several_lines_takes_one_row(model):
    report = describe(model, [spoken("", "One.\nTwo.", 10)], GenerateOptions(), 1.0)
    assert len(report.splitlines()) == 5


@pytest.mark.parametrize("groups", range(1, 16))
def test_only_15_is_called_exact(groups):
    said = describe_groups(GenerateOptions(groups))
    assert said.startswith(f"SEQ_GROUPS {groups} (")
    assert ("approximate" in said) == (groups < 15) and ("exact" in said) == (groups == 15)


def test_lossless_is_called_what_it_is():
    said = describe_groups(GenerateOptions(1, decoding="lossless"))
    meaning = "lossless: distributed as 15; groups above it are drafted by the crossbar; stock heads"
    assert said == f"SEQ_GROUPS 1 ({meaning})"
    assert describe_groups(GenerateOptions(15, decoding="lossless")) == "SEQ_GROUPS 15 (exact)"
