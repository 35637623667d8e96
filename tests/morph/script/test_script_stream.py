"""Scripts as one continuous sound: the chunks joined are the track, and each line says where it begins."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace

import numpy as np
import pytest
from qwen3_tts_morph.morph.batch import stream_decoding
from qwen3_tts_morph.morph.engine import Engine
from qwen3_tts_morph.morph.kept.line_cache import LineCache
from qwen3_tts_morph.morph.kept.line_renderer import LineRenderer
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.script.dialogue import ScriptRequest, render_script
from qwen3_tts_morph.morph.script.script_stream import SceneChunk, stream_scene, stream_script
from qwen3_tts_morph.morph.speech import lines as rendering
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.text.scripts.script import ScriptError
from qwen3_tts_morph.morph.voice.create import preset_voice

from tests.morph.batch.test_stream import ENGINES, wait_until_free
from tests.morph.codec_lines import FLOAT32_DB, signal_to_noise
from tests.patience import PATIENCE

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


def test_a_line_with_speed_or_pitch_is_heard_when_it_is_complete(model, cast) -> None:
    text = "ANNA: [speed 1.25] Hello there.\nBOB: [pitch -3] [gain -6] It is late.\nANNA: Yes."
    with stream_script(Synthesizer(model), ScriptRequest(text, cast), SHORT) as stream:
        chunks, scene = list(stream), stream.dialogue
    assert joined(chunks).tobytes() == scene.joined.tobytes()
    in_lines = [chunk for chunk in chunks if chunk.in_line]
    assert [chunk.mark is not None for chunk in in_lines[:2]] == [True, True]
    assert np.array_equal(in_lines[0].samples, scene.lines[0].waveform)
    assert scene.lines[0].report.seconds == len(in_lines[0].samples) / 24000


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
    assert spoken == [len(model.texts.line(text)) - 8 for text in (first, second, other)]


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


@pytest.mark.parametrize("tag", ["", "[speed 1.2] "])
@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("once", [False, True])
def test_a_scene_that_another_thread_closes_just_ends(model, cast, once, complete, tag) -> None:
    synthesizer, frames, closed = Synthesizer(model), [], threading.Event()
    script = ScriptRequest("\n".join(f"ANNA: {tag}This is line number {n}." for n in range(100)), cast)
    options = replace(SHORT, sampling=Sampling(max_new_tokens=60), guard=False, batch_size=1)

    def close() -> None:
        stream.close()
        frames.append("closed")
        closed.set()

    def on_frame(done: int, _: int) -> None:
        frames.append(done)
        if done == 10:
            threading.Thread(target=close).start()

    if once:
        stream = stream_scene(LineRenderer(synthesizer, options), script, on_frame, complete)
    else:
        stream = stream_script(synthesizer, script, options, on_frame, complete)
    assert not any(chunk.last for chunk in stream)
    assert closed.wait(PATIENCE) and frames[-1] == "closed", "frames were made for nobody"
    wait_until_free(synthesizer)
    with pytest.raises(RuntimeError):
        _ = stream.dialogue


@pytest.fixture
def free_judge(monkeypatch):
    """A random model's speech has any length: here every take is good."""
    for module in (rendering, stream_decoding):
        monkeypatch.setattr(module, "judge_end", lambda *_: "eos")


@pytest.fixture
def cache(tmp_path) -> LineCache:
    return LineCache(tmp_path / "lines", 10**8)


class Seeds:
    """Notes the seeds that an engine is asked for, and fails at one."""

    def __init__(self, monkeypatch, synthesizer: Synthesizer):
        self.asked: list[int] = []
        self.failing = -1
        self._original = synthesizer.engine.decode
        monkeypatch.setattr(synthesizer.engine, "decode", self)

    def __call__(self, model, lines, *others):
        requests = getattr(lines, "ready", lines)
        for request in [*requests]:
            self.asked.append(request.seed)
        if self.failing in self.asked:
            raise RuntimeError("broken")
        return self._original(model, lines, *others)

    def made(self) -> list[int]:
        asked, self.asked = sorted(self.asked), []
        return asked


FOUR = "\n".join(f"[seed {100 * number}] ANNA: Number {number}." for number in range(1, 5))


@pytest.mark.parametrize("complete", [False, True])
def test_lines_from_before_are_heard_at_once_and_only_others_are_made(
    model, cast, cache, monkeypatch, free_judge, complete
) -> None:
    synthesizer = Synthesizer(model)
    seeds, renderer = Seeds(monkeypatch, synthesizer), LineRenderer(synthesizer, SHORT, cache)
    with stream_scene(renderer, ScriptRequest(FOUR, cast), None, complete) as stream:
        chunks = list(stream)
        first = stream.dialogue
    assert joined(chunks).tobytes() == first.joined.tobytes() and seeds.made() == [100, 200, 300, 400]
    with stream_scene(renderer, ScriptRequest(FOUR, cast), None, complete) as stream:
        chunks = list(stream)
        again = stream.dialogue
    assert joined(chunks).tobytes() == again.joined.tobytes() == first.joined.tobytes()
    assert seeds.made() == [] and again.srt == first.srt
    assert sum(chunk.in_line for chunk in chunks) == 4 and all(one.report.from_before for one in again.lines)
    edited = FOUR.replace("Number 3", "Another number")
    with stream_scene(renderer, ScriptRequest(edited, cast), None, complete) as stream:
        chunks = list(stream)
        changed = stream.dialogue
    assert joined(chunks).tobytes() == changed.joined.tobytes() and seeds.made() == [300]
    assert [one.report.from_before for one in changed.lines] == [True, True, False, True]
    assert [chunk.mark.index for chunk in chunks if chunk.mark] == [0, 1, 2, 3]


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("failing", [100, 300])
def test_a_line_that_fails_ends_no_others_in_a_stream(
    model, cast, cache, monkeypatch, free_judge, complete, failing
) -> None:
    synthesizer = Synthesizer(model)
    seeds, renderer = Seeds(monkeypatch, synthesizer), LineRenderer(synthesizer, SHORT, cache)
    seeds.failing = failing
    original = seeds.__call__

    def forget_first(*arguments):
        seeds.asked.clear()
        return original(*arguments)

    monkeypatch.setattr(synthesizer.engine, "decode", forget_first)
    with stream_scene(renderer, ScriptRequest(FOUR, cast), None, complete) as stream:
        chunks = list(stream)
        scene = stream.dialogue
    place = failing // 100 - 1
    assert [one.report.ended == "error" for one in scene.lines] == [index == place for index in range(4)]
    assert scene.lines[place].report.error == "RuntimeError: broken" and cache.size().lines == 3
    assert [chunk.last for chunk in chunks].count(True) == 1 and chunks[-1].last
    assert [chunk.mark.index for chunk in chunks if chunk.mark] == [0, 1, 2, 3]


def test_a_line_that_breaks_off_while_it_is_heard_is_made_again(
    model, cast, cache, monkeypatch, free_judge
) -> None:
    synthesizer = Synthesizer(model)
    original, calls = synthesizer.engine.open_codec, []

    def open_codec(*arguments):
        codec = original(*arguments)
        launch = codec.launch

        def launch_some(parts):
            calls.append(parts)
            if len(calls) == 3:
                raise RuntimeError("broken")
            return launch(parts)

        monkeypatch.setattr(codec, "launch", launch_some)
        return codec

    monkeypatch.setattr(synthesizer.engine, "open_codec", open_codec)
    with stream_scene(LineRenderer(synthesizer, SHORT, cache), ScriptRequest(FOUR, cast)) as stream:
        chunks = list(stream)
        scene = stream.dialogue
    assert not any(one.report.ended == "error" for one in scene.lines) and cache.size().lines == 4
    assert len(joined(chunks)) < len(scene.joined), "what was heard of the first line is not its beginning"


def test_a_scene_that_is_left_keeps_the_lines_that_were_whole(model, cast, cache, free_judge) -> None:
    renderer = LineRenderer(Synthesizer(model), replace(SHORT, batch_size=1), cache)
    with stream_scene(renderer, ScriptRequest(FOUR, cast)) as stream:
        for chunk in stream:
            if chunk.mark is not None and chunk.mark.index == 2:
                break
    kept = cache.size().lines
    assert 2 <= kept <= 4
    with stream_scene(renderer, ScriptRequest(FOUR, cast)) as stream:
        list(stream)
        scene = stream.dialogue
    assert [one.report.from_before for one in scene.lines] == [index < kept for index in range(4)]


def test_a_user_who_cancels_ends_the_scene(model, cast, cache) -> None:
    class Cancelled(Exception):
        pass

    def cancel(done: int, _: int) -> None:
        if done > 2:
            raise Cancelled

    renderer = LineRenderer(Synthesizer(model), SHORT, cache)
    with (
        pytest.raises(Cancelled),
        stream_scene(renderer, ScriptRequest(FOUR, cast), cancel) as stream,
    ):
        list(stream)
