"""Takes that say words of their reference before their text."""

import numpy as np
import pytest
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech import pieces
from qwen3_tts_morph.morph.speech.lines import ECHO, Line
from qwen3_tts_morph.morph.synthesizer import Engine, Synthesizer
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice
from qwen3_tts_morph.morph.words.alignment import Trace
from qwen3_tts_morph.morph.words.guard import begins_elsewhere

from lab.streams import render_lines

FRAME = 1920


def take(weights: list[float], loud: list[bool]) -> tuple[Trace, np.ndarray]:
    """Return the trace of a take with these weights on the text, and its sound, loud or silent in each frame."""
    column = np.array(weights, dtype=np.float32)
    noise = np.random.default_rng(0).normal(0, 0.1, len(weights) * FRAME)
    wave = (noise * np.repeat(np.where(loud, 1.0, 1e-4), FRAME)).astype(np.float32)
    return Trace(np.zeros(len(column), dtype=np.int32), column, column), wave


@pytest.mark.parametrize(
    ("before", "is_loud", "echoes"),
    [
        ([], True, False),
        ([0.05], True, False),
        ([0.0, 0.0], True, False),
        ([0.0, 0.02, 0.0], True, True),
        ([0.0] * 9, True, True),
        ([0.0] * 9, False, False),  # silence before the text
    ],
)
def test_sound_before_the_text_is_an_echo(before: list[float], is_loud: bool, echoes: bool) -> None:
    said = [0.9, 0.99, 0.7, 0.2] * 6
    assert begins_elsewhere(*take(before + said, [is_loud] * len(before) + [True] * len(said))) == echoes


def test_nothing_is_known_without_a_head_that_follows_the_text() -> None:
    trace, wave = take([0.0] * 5 + [0.2] * 20, [True] * 25)
    assert not begins_elsewhere(trace, wave)
    assert not begins_elsewhere(None, wave)
    assert not begins_elsewhere(*take([0.0] * 20, [True] * 20))


@pytest.mark.parametrize(("mode", "takes"), [("icl", 2), ("x_vector", 1)])
def test_a_line_after_a_reference_that_echoes_is_spoken_again(load, recording, monkeypatch, mode, takes) -> None:
    model = load("tiny", "base")
    voice = clone_voice(model, recording, 24000, CloneOptions(mode, "a tone that rises"))
    found = iter([True])
    monkeypatch.setattr(pieces, "judge_end", lambda *_: "eos")
    monkeypatch.setattr(pieces, "begins_elsewhere", lambda *_: next(found, False))
    options = GenerateOptions(5, Sampling(max_new_tokens=9), retries=1)
    [spoken] = render_lines(Synthesizer(model, Engine("graph")), [Line("Hello.", voice)], options)
    assert (spoken.report.takes, spoken.report.ended) == (takes, "eos")
    monkeypatch.setattr(pieces, "begins_elsewhere", lambda *_: True)
    [spoken] = render_lines(Synthesizer(model, Engine("graph")), [Line("Hello.", voice)], options)
    assert spoken.report.ended == (ECHO if mode == "icl" else "eos")
