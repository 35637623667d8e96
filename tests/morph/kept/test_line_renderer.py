"""Each line is made once: what is in the cache is not made again, and a line that fails ends no others."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.kept.line_cache import LineCache
from qwen3_tts_morph.morph.kept.line_renderer import GROUPS_OF, LineRenderer
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.script.dialogue import ScriptRequest, render_scene, render_script
from qwen3_tts_morph.morph.speech import lines as rendering
from qwen3_tts_morph.morph.speech.lines import Line, Spoken, render_lines
from qwen3_tts_morph.morph.speech.report import describe, outcome
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice

OPTIONS = GenerateOptions(sampling=Sampling(max_new_tokens=7), batch_size=2, retries=0)


@pytest.fixture(autouse=True)
def free_judge(monkeypatch):
    """A random model's speech has any length: here every take is good."""
    monkeypatch.setattr(rendering, "judge_end", lambda *_: "eos")


@pytest.fixture
def model(load):
    return load("tiny", "custom_voice")


@pytest.fixture
def voice(model):
    return preset_voice(model, "ryan")


@pytest.fixture
def cache(tmp_path: Path) -> LineCache:
    return LineCache(tmp_path / "lines", 10**8)


class Decoder:
    """An engine's ``decode`` that notes the seeds it is asked for, and fails where it is told to."""

    def __init__(self, monkeypatch, synthesizer: Synthesizer):
        self.seeds: list[int] = []
        self.failing: dict[int, BaseException] = {}
        self._original = synthesizer.engine.decode
        monkeypatch.setattr(synthesizer.engine, "decode", self)

    def __call__(self, model, lines, *more):
        asked = [line.seed for line in lines]
        self.seeds += asked
        for seed in asked:
            if seed in self.failing:
                raise self.failing[seed]
        return self._original(model, lines, *more)

    def made(self) -> list[int]:
        """The seeds since the last call, sorted."""
        seeds, self.seeds = sorted(self.seeds), []
        return seeds


@pytest.fixture
def synthesizer(model) -> Synthesizer:
    return Synthesizer(model)


@pytest.fixture
def decoder(monkeypatch, synthesizer) -> Decoder:
    return Decoder(monkeypatch, synthesizer)


def numbered(voice, count: int = 4) -> list[Line]:
    return [Line(f"This is line {number}.", voice, seed=number) for number in range(count)]


def bits(spoken: list[Spoken]) -> list[bytes]:
    return [one.waveform.tobytes() for one in spoken]


def test_only_a_changed_line_is_made_again(synthesizer, decoder, voice, cache) -> None:
    renderer, lines = LineRenderer(synthesizer, OPTIONS, cache), numbered(voice)
    first = renderer.render(lines)
    assert decoder.made() == [0, 1, 2, 3] and not any(one.report.from_before for one in first)
    again = renderer.render(lines)
    assert decoder.made() == [] and bits(again) == bits(first)
    assert [replace(one.report, from_before=False) for one in again] == [one.report for one in first]
    assert [(one.spans, one.engine, one.sample_rate) for one in again] == [
        (one.spans, one.engine, one.sample_rate) for one in first
    ]
    lines[2] = replace(lines[2], text="This is another line.")
    # A new process: nothing is left but the folder.
    changed = LineRenderer(Synthesizer(synthesizer.model, synthesizer.engine), OPTIONS, cache).render(lines)
    assert decoder.made() == [2]
    assert [one.report.from_before for one in changed] == [True, True, False, True]
    assert [*bits(changed)[:2], bits(changed)[3]] == [*bits(first)[:2], bits(first)[3]]
    report = describe(synthesizer.model, changed, OPTIONS, 1.0)
    assert "3 of 4 lines reused from an earlier run." in report and report.count(", reused,") == 3


def test_without_a_cache_every_line_is_made_as_render_lines_does(synthesizer, decoder, voice) -> None:
    renderer, lines = LineRenderer(synthesizer, OPTIONS), numbered(voice)
    for _ in range(2):
        made = renderer.render(lines)
        assert decoder.made() == [0, 1, 2, 3]
    assert bits(made) == bits(render_lines(synthesizer, lines, OPTIONS))


def test_lines_in_the_cache_need_no_frame_and_no_model(synthesizer, voice, cache, monkeypatch) -> None:
    renderer, frames = LineRenderer(synthesizer, OPTIONS, cache), []
    renderer.render(numbered(voice))
    monkeypatch.setattr(Synthesizer, "session", None)
    renderer.render(numbered(voice), lambda *two: frames.append(two))
    assert all(done == 0 for done, _ in frames)


def test_a_damaged_line_is_made_again_and_said(synthesizer, decoder, voice, cache) -> None:
    renderer, lines = LineRenderer(synthesizer, OPTIONS, cache), numbered(voice, 2)
    first = renderer.render(lines)
    decoder.made()
    file = sorted(cache.folder.iterdir())[0]
    file.write_bytes(file.read_bytes()[:-10])
    again = renderer.render(lines)
    assert len(decoder.made()) == 1 and sum(one.report.from_before for one in again) == 1
    said = outcome(again, 1.0).splitlines()
    assert said[0] == "The line kept from an earlier run is damaged: it was made again."
    assert "1 of 2 lines reused from an earlier run." in said
    assert all(np.allclose(a.waveform, b.waveform, atol=1e-5) for a, b in zip(first, again, strict=True))
    assert renderer.render(lines)[0].report.notes == () and decoder.made() == []


def test_a_disk_that_is_full_loses_no_line(synthesizer, voice, cache, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LineCache, "keep", full)
    made = LineRenderer(synthesizer, OPTIONS, cache).render(numbered(voice, 2))
    assert len(made) == 2
    assert outcome(made, 1.0).splitlines()[0] == "Lines could not be kept for later: No space left on device."


def test_a_line_that_fails_ends_no_others(synthesizer, decoder, voice, cache, caplog) -> None:
    renderer, lines = LineRenderer(synthesizer, OPTIONS, cache), numbered(voice, 3)
    decoder.failing[1] = RuntimeError("the codes are not\nfinite.")
    with caplog.at_level(logging.WARNING):
        made = renderer.render(lines)
    assert [one.report.ended for one in made][1] == "error" and not made[1].waveform.any()
    assert len(made[1].waveform) == 12000 and all(one.waveform.any() for one in (made[0], made[2]))
    assert "could not be made" in caplog.text
    said = outcome(made, 1.0)
    assert "COULD NOT BE MADE: RuntimeError: the codes are not finite." in said
    assert cache.size().lines == 2
    decoder.made()
    del decoder.failing[1]
    assert renderer.render(lines)[1].report.ended != "error" and decoder.made() == [1]


def test_where_no_line_can_be_made_the_error_is_raised(synthesizer, decoder, voice, cache) -> None:
    decoder.failing = {seed: RuntimeError(f"broken {seed}") for seed in range(3)}
    with pytest.raises(RuntimeError, match="broken 0"):
        LineRenderer(synthesizer, OPTIONS, cache).render(numbered(voice, 3))


@pytest.mark.parametrize("error", [torch.cuda.OutOfMemoryError("full"), KeyboardInterrupt()])
def test_no_memory_and_the_users_wish_end_all_lines(synthesizer, decoder, voice, cache, error) -> None:
    decoder.failing[1] = error
    with pytest.raises(type(error)):
        LineRenderer(synthesizer, OPTIONS, cache).render(numbered(voice, 3))
    assert len(decoder.made()) == 3


def test_a_run_that_is_cancelled_keeps_what_it_made(synthesizer, decoder, voice, cache) -> None:
    class Cancelled(Exception):
        pass

    groups = []

    def on_phase(words: str) -> None:
        groups.extend([words] if words.startswith("speaking") else [])
        if len(groups) == 2:
            raise Cancelled

    renderer, size = LineRenderer(synthesizer, OPTIONS, cache), GROUPS_OF * OPTIONS.batch_size
    with pytest.raises(Cancelled):
        renderer.render(numbered(voice, size + 2), None, on_phase)
    assert cache.size().lines == size and decoder.made() == list(range(size))
    renderer.render(numbered(voice, size + 2))
    assert decoder.made() == [size, size + 1]


def test_a_wrong_line_is_made_again_only_with_more_retries(
    synthesizer, decoder, voice, cache, monkeypatch
) -> None:
    monkeypatch.setattr(rendering, "judge_end", lambda *_: "silent")
    for retries, seeds in [(1, [5, 6]), (1, []), (2, [5, 6, 7])]:
        renderer = LineRenderer(synthesizer, replace(OPTIONS, retries=retries), cache)
        [made] = renderer.render([Line("Hi.", voice, seed=5)])
        assert made.report.ended == "silent" and decoder.made() == seeds


def test_bad_lines_are_refused_before_any_is_made(synthesizer, decoder, voice, cache) -> None:
    renderer = LineRenderer(synthesizer, OPTIONS, cache)
    with pytest.raises(ValueError, match="language 'klingon' is unknown"):
        renderer.render([*numbered(voice), replace(numbered(voice)[0], language="klingon")])
    long = replace(OPTIONS, split_chars=0)
    with pytest.raises(ValueError, match=r"positions and .* has"):
        LineRenderer(synthesizer, long, cache).render([*numbered(voice), Line("word " * 9000, voice)])
    with pytest.raises(ValueError, match="text is list_iterator, not a string"):
        renderer.render([Line(iter(["Hello."]), voice)])
    with pytest.raises(ValueError, match="no line to speak"):
        renderer.render([])
    assert decoder.made() == []


def test_a_script_is_the_same_track_from_the_cache(synthesizer, decoder, voice, cache) -> None:
    text = "ANNA: Hello.\n[pause 0.5]\nANNA: [gain -6] It is late.\nANNA: Hello."
    script, renderer = ScriptRequest(text, {"Anna": voice}, seed=3), LineRenderer(synthesizer, OPTIONS, cache)
    first, second = render_scene(renderer, script), render_scene(renderer, script)
    assert len(decoder.made()) == 3 and second.joined.tobytes() == first.joined.tobytes()
    assert second.srt == first.srt
    # Gaps and gain are not part of a line.
    louder = ScriptRequest(text.replace("-6", "2"), {"Anna": voice}, seed=3, gap_s=1)
    assert not np.array_equal(render_scene(renderer, louder).joined, first.joined) and decoder.made() == []
    assert np.allclose(render_script(synthesizer, script, OPTIONS).joined, first.joined, atol=1e-5)


def test_a_script_has_no_caption_where_a_line_could_not_be_made(synthesizer, decoder, voice) -> None:
    script = ScriptRequest("[seed 1] ANNA: One.\n[seed 2] ANNA: Two.", {"Anna": voice})
    decoder.failing[1] = RuntimeError("broken")
    scene = render_scene(LineRenderer(synthesizer, OPTIONS), script)
    assert "One." not in scene.srt and "Two." in scene.srt and len(scene.lines) == 2


def test_the_folder_is_bounded(synthesizer, voice, cache) -> None:
    small = replace(cache, most_bytes=60_000)
    LineRenderer(synthesizer, OPTIONS, small).render(numbered(voice))
    assert 0 < sum(file.stat().st_size for file in os.scandir(cache.folder)) <= 60_000
