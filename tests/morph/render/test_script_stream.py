"""Scripts as one continuous sound: the chunks joined are the track, and each line says where it begins."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pytest
from qwen3_tts_morph.morph.engine import Engine
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.render.dialogue import ScriptRequest, render_script
from qwen3_tts_morph.morph.render.script_stream import SceneChunk, stream_script
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.text.script import ScriptError
from qwen3_tts_morph.morph.voice.create import preset_voice

from tests.morph.codec_lines import FLOAT32_DB, signal_to_noise
from tests.morph.render.test_stream import ENGINES, wait_until_free

SCRIPT = """
[pause 1.25]
ANNA: Hello there. This is the first of two pieces.
BOB: [gain -6] It is late.
[pause 0.5]
ANNA: Yes.
[pause 0.7]
"""
LINES = [("Anna", "Hello there. This is the first of two pieces."), ("Bob", "It is late."), ("Anna", "Yes.")]
SHORT = GenerateOptions(5, Sampling(max_new_tokens=15), split_chars=40, retries=0, batch_size=2)


@pytest.fixture
def model(load):
    return load("tiny", "custom_voice")


@pytest.fixture
def cast(model):
    return {"Anna": preset_voice(model, "vivian"), "Bob": preset_voice(model, "ryan")}


def joined(chunks: list[SceneChunk]) -> np.ndarray:
    """The samples of chunks, after checks of how they follow each other."""
    starts = np.cumsum([0, *(len(chunk.samples) for chunk in chunks)])
    assert [chunk.start for chunk in chunks] == starts[:-1].tolist()
    assert [chunk.last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    return np.concatenate([chunk.samples for chunk in chunks])


@pytest.mark.parametrize("gap_s", [0.3, 0.0])
@pytest.mark.parametrize("engine", ENGINES)
def test_the_chunks_joined_are_the_track(model, cast, engine, gap_s) -> None:
    synthesizer, script = Synthesizer(model, Engine(engine)), ScriptRequest(SCRIPT, cast, gap_s=gap_s)
    stream = stream_script(synthesizer, script, SHORT)
    chunks = list(stream)
    scene, whole = stream.dialogue, render_script(synthesizer, script, SHORT)
    assert joined(chunks).tobytes() == scene.joined.tobytes()
    assert len(scene.joined) == len(whole.joined) and scene.srt == whole.srt
    assert signal_to_noise(whole.joined, scene.joined) > FLOAT32_DB
    assert [one.report for one in scene.lines] == [one.report for one in whole.lines]


@pytest.mark.parametrize("complete", [False, True])
def test_pauses_inside_lines_are_in_the_track(model, cast, complete) -> None:
    text = "ANNA: Hello [pause 0.4] there.\n[pause 1]\nBOB: [gain -6] It [pause 0.2] is late. [pause 0.5]"
    synthesizer, script = Synthesizer(model), ScriptRequest(text, cast, gap_s=0.3)
    with stream_script(synthesizer, script, SHORT, None, complete) as stream:
        chunks, scene = list(stream), stream.dialogue
    whole = render_script(synthesizer, script, SHORT)
    assert joined(chunks).tobytes() == scene.joined.tobytes() and len(scene.joined) == len(whole.joined)
    frames = sum(one.report.frames for one in scene.lines)
    assert len(scene.joined) == 1920 * frames + round((0.4 + 1.3 + 0.2 + 0.5) * 24000)
    assert (
        scene.srt == whole.srt and "Anna: Hello there.\n" in scene.srt and "Bob: It is late.\n" in scene.srt
    )


@pytest.mark.parametrize("batch_size", [1, 2])
def test_complete_lines_in_groups_are_the_same_track(model, cast, batch_size) -> None:
    text = SCRIPT + "\n".join(f"BOB: Number {number}." for number in range(4))
    synthesizer, script = Synthesizer(model), ScriptRequest(text, cast, gap_s=0.25)
    options, seen = replace(SHORT, batch_size=batch_size), []
    with stream_script(synthesizer, script, options, lambda *two: seen.append(two), complete=True) as stream:
        chunks = list(stream)
        scene = stream.dialogue
    whole = render_script(synthesizer, script, options)
    assert joined(chunks).tobytes() == scene.joined.tobytes() and scene.srt == whole.srt
    assert [one.report for one in scene.lines] == [one.report for one in whole.lines]
    assert signal_to_noise(whole.joined, scene.joined) > FLOAT32_DB
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert sum(chunk.in_line for chunk in chunks) > len(whole.lines), (
        "the first line was not heard while it was made"
    )


def test_groups_end_when_the_stream_is_closed(model, cast) -> None:
    stream = stream_script(Synthesizer(model), ScriptRequest(SCRIPT, cast), SHORT, None, complete=True)
    next(chunk for chunk in stream if chunk.in_line)
    stream.close()
    assert list(stream) == []
    with pytest.raises(RuntimeError):
        _ = stream.dialogue


def test_each_line_says_where_it_begins(model, cast) -> None:
    stream = stream_script(Synthesizer(model), ScriptRequest(SCRIPT, cast, gap_s=0.25), SHORT)
    chunks = list(stream)
    marks = [chunk.mark for chunk in chunks if chunk.mark is not None]
    assert [(mark.index, mark.name, mark.text) for mark in marks] == [
        (index, *line) for index, line in enumerate(LINES)
    ]
    lengths, at = [len(one.waveform) for one in stream.dialogue.lines], 0
    for mark, length, pause in zip(marks, lengths, [1.25, 0.25, 0.75], strict=True):
        at += round(pause * stream.sample_rate)
        assert mark.start == at
        at += length
    assert all(chunk.mark is None or chunk.mark.start == chunk.start for chunk in chunks)


def test_a_pause_is_zeros_in_portions(model, cast) -> None:
    with stream_script(Synthesizer(model), ScriptRequest("[pause 60]\nBOB: Yes.", cast), SHORT) as stream:
        pause = [next(stream) for _ in range(3)]
    assert all(len(chunk.samples) == stream.sample_rate and not chunk.samples.any() for chunk in pause)


def test_lines_are_decoded_in_the_order_they_are_heard(model, cast, monkeypatch) -> None:
    """Not the longest first, nor the second pieces after the first pieces of all lines."""
    synthesizer, spoken = Synthesizer(model), []
    original = synthesizer.engine.decode

    def decode(model, lines, *others):
        spoken.extend(line.prompt.text_tokens for line in lines.ready)
        return original(model, lines, *others)

    monkeypatch.setattr(synthesizer.engine, "decode", decode)
    first, second, other = (
        "One, two.",
        "Three words are here, and some more.",
        "A line of some more words here.",
    )
    script = f"ANNA: {first} {second}\nBOB: {other}"
    list(stream_script(synthesizer, ScriptRequest(script, cast), SHORT))
    assert spoken == [model.tokenize_line(text).shape[1] - 8 for text in (first, second, other)]


def test_errors_come_before_the_first_frame(model, cast) -> None:
    synthesizer = Synthesizer(model)
    with pytest.raises(ScriptError, match="CAROL"):
        stream_script(synthesizer, ScriptRequest("CAROL: Hi.", cast))
    with pytest.raises(ValueError, match="gap_s"):
        stream_script(synthesizer, ScriptRequest("ANNA: Hi.\nBOB: Yes.", cast, gap_s=-1))
    silence = "\n".join(["[pause 60]"] * 61)
    with pytest.raises(ValueError, match=r"of silence|lead_s"):
        stream_script(synthesizer, ScriptRequest(f"{silence}\nBOB: Yes.", cast))


def test_a_scene_that_is_left_frees_the_model(model, cast) -> None:
    synthesizer, script = Synthesizer(model), ScriptRequest(SCRIPT, cast)
    for _ in stream_script(synthesizer, script, SHORT):
        break
    gc.collect()
    wait_until_free(synthesizer)
    with stream_script(synthesizer, script, SHORT) as stream:
        next(stream)
    wait_until_free(synthesizer)
    assert list(stream) == []
    with pytest.raises(RuntimeError, match="closed before its end"):
        _ = stream.dialogue
