"""The quality study from its command line: a run on a tiny checkpoint with fake judges, then its rules."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from qwen3_tts_morph.morph.decode.decoded import Decoded
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.text.duration import held_frames
from qwen3_tts_morph.morph.text.profile import TextProfile
from qwen3_tts_morph.morph.voice.create import clone_voice
from qwen3_tts_morph.morph.voice.prompt import MIN_FRAMES

from lab.benchmarks.quality import __main__ as command
from lab.benchmarks.quality import judging, speak
from lab.benchmarks.quality.conditions import random_tail, select, zero_tail
from lab.benchmarks.quality.folder import About, RunFolder
from lab.benchmarks.quality.lines import Cast, cast_own, cast_recordings, read_texts

FIGURES = ("wer", "cer", "similarity", "mos", "ended")
TEXTS = ("One line.", "And another line.", "A third, to be sure.")


class LoudnessJudge:
    """A fake judge whose scores depend on the samples, so that sums can be checked."""

    def __init__(self, name: str, heard: list[str]):
        self.name = name
        self.heard = heard

    def judge(self, audio: np.ndarray, text: str) -> dict[str, Any]:
        self.heard.append(self.name)
        level = float(np.abs(audio).mean())
        if self.name == "words":
            return {"word_errors": 1, "words": 4, "letter_errors": 2, "letters": len(text) + 1}
        if self.name == "voice":
            return {"embedding": [1.0, level, level**2]}
        return {"distillmos": 3.0 + level, "dnsmos_overall": 2.0 + level}


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Install fake judges; return the list of the calls they got."""
    asked: list[str] = []
    judges = {name: LoudnessJudge(name, asked) for name in ("words", "voice", "opinion")}
    monkeypatch.setattr(command, "make_judges", lambda *_: judges)
    return asked


@pytest.fixture
def world(tiny: Path, tmp_path: Path, short_lines: None, heard: list[str]) -> Callable[..., int]:
    """``world(*more)``: run the study on two recordings and three lines, into ``tmp_path / "run"``."""
    torch.set_num_threads(1)
    folder = tmp_path / "voices" / "beth"
    folder.mkdir(parents=True)
    for number, pitch in enumerate((130, 140, 220)):
        tone = 0.3 * np.sin(2 * np.pi * pitch * np.arange(36000) / 24000)
        path = tmp_path / "voices" / "adam.flac" if number == 2 else folder / f"{number}.wav"
        soundfile.write(path, tone, 24000)
    (tmp_path / "lines.txt").write_text("\n\n".join(TEXTS), encoding="utf-8")
    options = [
        *("--checkpoint", str(tiny), "--out", str(tmp_path / "run"), "--device", "cpu"),
        *("--voices", str(tmp_path / "voices"), "--lines", str(tmp_path / "lines.txt")),
        *("--seq-groups", "1", "15"),
    ]
    return lambda *more: command.main([*options, *more])


def files(root: Path) -> dict[str, int]:
    """Return the modification time of every file in a folder, by name."""
    return {
        path.relative_to(root).as_posix(): path.stat().st_mtime_ns
        for path in root.rglob("*")
        if path.is_file()
    }


@pytest.mark.slow
def test_one_command_writes_rows_and_a_report(
    world: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world("--name", "mine") == 0
    run = tmp_path / "run"
    document = json.loads((run / "quality_mine.json").read_text(encoding="utf-8"))
    rows = {(row["strategy"], row["seq_groups"]): row for row in document["rows"]}
    assert list(rows) == [("crossbar", 1), ("crossbar", 15), ("tail-zeroed", 5), ("tail-random", 5)]
    for (_, groups), row in rows.items():
        for figure in FIGURES:
            value, low, high = row[figure]
            assert low <= value <= high
        assert row["wer"][0] == 0.25
        assert (row["against_exact"]["mos"] is None) == (groups == 15)
    assert document["power"]["wer"] == {"tail-zeroed": False, "tail-random": False}
    report = (run / "quality.md").read_text(encoding="utf-8")
    assert document["machine"] in report
    assert report in capsys.readouterr().out
    assert "| crossbar | 1 | 25.00 [25.00, 25.00] |" in report and "**WER % has no power here**" in report
    page = (run / "quality.html").read_text(encoding="utf-8")
    assert page.count("<audio") == 3 * len(rows) and "And another line." in page


@pytest.mark.slow
def test_an_interrupted_run_resumes(
    world: Callable[..., int], tmp_path: Path, heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It repeats nothing, and ends with the same files as an uninterrupted run."""
    kept = speak.keep_codes

    def interrupt(*arguments: Any) -> None:
        if len(list((tmp_path / "run").rglob("codes/*/*.json"))) == 4:
            raise KeyboardInterrupt
        kept(*arguments)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(speak, "keep_codes", interrupt)
        world("--batch-size", "1")
    before = files(tmp_path / "run")
    assert len([name for name in before if name.startswith("codes/")]) == 4 and not heard
    assert world("--batch-size", "1") == 0
    after = files(tmp_path / "run")
    assert before.items() <= after.items()
    references = len(list((tmp_path / "run" / "references").rglob("*.wav")))
    assert (len(after) - len(before) > 0) and references == 2
    assert heard.count("words") == heard.count("opinion") == 4 * 3
    assert heard.count("voice") == 4 * 3 + references
    assert world("--batch-size", "1") == 0 and heard.count("words") == 4 * 3
    complete = tmp_path / "complete"
    assert world("--batch-size", "1", "--out", str(complete)) == 0
    for path in complete.rglob("codes/*/*.json"):
        assert path.read_bytes() == (tmp_path / "run" / path.relative_to(complete)).read_bytes()


def test_steps_can_run_separately_and_the_last_ones_need_no_checkpoint(
    world: Callable[..., int], tmp_path: Path, heard: list[str]
) -> None:
    assert world("--steps", "codes", "wavs") == 0 and not heard
    run = tmp_path / "run"
    assert not (run / "quality.md").exists()
    assert command.main(["--out", str(run), "--seq-groups", "1,15", "--steps", "judge", "report"]) == 0
    [path] = run.glob("quality_*.json")
    row = json.loads(path.read_text(encoding="utf-8"))["rows"][0]
    assert row["mos"] is not None and row["ended"] is not None


@pytest.mark.slow
def test_a_folder_with_another_run_is_refused(
    world: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world("--steps", "codes", "--limit", "2") == 0
    assert world("--steps", "codes", "--seed", "9") == 2
    assert "choose another --out" in capsys.readouterr().err
    assert world("--steps", "codes") == 0, "more lines of the same run are welcome"
    assert len(list((tmp_path / "run").glob("codes/crossbar-01/*.json"))) == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--strategies", "crosbar"], "unknown: choose one of crossbar"),
        (["--strategies", "tail-zeroed:4"], "supports only SEQ_GROUPS"),
        (["--strategies", "trained:5"], "no trained tail for SEQ_GROUPS 5"),
        (["--strategies", "crossbar:16"], "SEQ_GROUPS is 16"),
        (["--seq-groups", "one"], "write e.g."),
        (["--steps", "report", "--out", "nowhere"], "contains no run"),
    ],
)
def test_bad_input_prints_one_sentence(
    world: Callable[..., int], options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world(*options) == 2
    assert said in capsys.readouterr().err


def test_judges_that_are_not_installed_leave_their_columns_empty(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Missing:
        def __init__(self, *_: Any):
            raise ModuleNotFoundError("No module named 'judge'")

    for name in ("WordJudge", "OpinionJudge"):
        monkeypatch.setattr(judging, name, Missing)
    monkeypatch.setattr(judging, "VoiceJudge", lambda: LoudnessJudge("voice", []))
    assert list(judging.make_judges(tmp_path, "english")) == ["voice"]
    assert len(caplog.records) == 2 and all("pip install" in record.message for record in caplog.records)


def test_a_judge_installed_later_adds_to_the_verdicts(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.full(1600, 0.5), 16000)
    clip = judging.Clip(tmp_path / "a.wav", "text", tmp_path / "a.json")
    asked: list[str] = []
    one, two = LoudnessJudge("voice", asked), LoudnessJudge("opinion", asked)
    judging.judge_all([clip], {"voice": one})
    judging.judge_all([clip], {"voice": one, "opinion": two})
    assert asked == ["voice", "opinion"]
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")).keys() == {"voice", "opinion"}


def test_words_are_not_judged_in_other_languages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("WordJudge", "OpinionJudge", "VoiceJudge"):
        monkeypatch.setattr(judging, name, lambda *_: LoudnessJudge("any", []))
    assert "words" not in judging.make_judges(tmp_path, "german")
    assert "words" in judging.make_judges(tmp_path, "auto")


def test_controls_spoil_only_the_last_ten_groups() -> None:
    codes = torch.randint(1, 64, (20, 16), generator=torch.Generator().manual_seed(1))
    zeroed, other = zero_tail(codes, 64, 3), random_tail(codes, 64, 3)
    for spoiled in (zeroed, other):
        assert torch.equal(spoiled[:, :6], codes[:, :6])
    assert not zeroed[:, 6:].any() and other.max() < 64
    assert torch.equal(other, random_tail(codes, 64, 3))
    assert not torch.equal(other, random_tail(codes, 64, 4)) and not torch.equal(other, codes)


class Recorded:
    """An engine that decodes nothing, and remembers the options."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str]] = []

    def decode(self, model: Model, requests: list[Any], options: Any) -> list[Decoded]:
        self.asked.append((options.seq_groups, options.tail))
        return [Decoded(torch.zeros(1, 16, dtype=torch.int64), "eos") for _ in requests]


def test_stock_heads_and_trained_tails_are_the_products_own(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cast, engine = clone(model), Recorded()
    tasks = command.assign_voices(list(TEXTS), list(cast.voices), 5)
    speaker = speak.Speaker.prepare(Synthesizer(model, engine), tasks, cast.voices, "auto")
    monkeypatch.setattr(Model, "tails", lambda self: {5: None})
    for condition in select(["crossbar:5", "trained:5"], []):
        speak.make_codes(speaker, RunFolder(tmp_path), condition, batch_size=2)
    assert engine.asked == [(5, "stock")] * 2 + [(5, "auto")] * 2, "three lines are two batches"


def test_lines_are_prepared_as_the_product_does(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    cast, synthesizer = clone(model), Synthesizer(model)

    def speaker(text: str) -> speak.Speaker:
        tasks = command.assign_voices([text], list(cast.voices), 5)
        return speak.Speaker.prepare(synthesizer, tasks, cast.voices, "auto")

    assert speaker(TEXTS[0]).prompts[0].min_frames == MIN_FRAMES
    monkeypatch.setattr(model, "profile", TextProfile(hold_end=True))
    line, [prompt] = speaker(TEXTS[0]).request(0), speaker(TEXTS[0]).prompts
    assert line.prompt.min_frames == prompt.min_frames == held_frames(TEXTS[0], after_reference=False)
    with pytest.raises(ValueError, match="text"):
        speaker(" ")


def test_a_run_of_other_weights_is_not_continued(tmp_path: Path) -> None:
    folder, about = RunFolder(tmp_path), About("a", "b", "c", "d", "e", "f", 24000, ())
    folder.start(about)
    folder.start(replace(about, machine="another"))
    with pytest.raises(ValueError, match="contains a run with other weights"):
        folder.start(replace(about, weights="c"))


def clone(model: Model) -> Cast:
    """Return a voice cloned from a tone: the tiny Base checkpoint has no presets."""
    with pytest.raises(ValueError, match="--voices"):
        cast_own(model)
    tone = (0.3 * np.sin(np.arange(48000) / 20)).astype(np.float32)
    return Cast({"tone": clone_voice(model, tone, 24000)})


def test_voices_come_from_files_and_folders(model: Model, tmp_path: Path) -> None:
    tone = 0.3 * np.sin(np.arange(36000) / 20)
    (tmp_path / "beth").mkdir()
    for name in ("adam.wav", "beth/1.wav", "beth/2.flac", "beth/3.wav"):
        soundfile.write(tmp_path / name, tone, 24000)
    (tmp_path / "notes.txt").write_text("not a recording")
    cast = cast_recordings(model, tmp_path)
    assert {name: len(known) for name, known in cast.references.items()} == {"adam": 1, "beth": 2}
    (tmp_path / "carl.wav").write_bytes(b"RIFF?")
    with pytest.raises(ValueError, match=r"carl\.wav"):
        cast_recordings(model, tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no recordings"):
        cast_recordings(model, tmp_path / "empty")


def test_built_in_lines_and_ranges_can_be_read(tmp_path: Path) -> None:
    assert len(set(read_texts(command.OWN_LINES))) == 50
    (tmp_path / "none.txt").write_text("\n \n")
    with pytest.raises(ValueError, match="no line of text"):
        read_texts(tmp_path / "none.txt")
    assert command.parse_range("1-3,15") == command.parse_range("15 1-3") == [1, 2, 3, 15]


def test_a_condition_is_chosen_once() -> None:
    chosen = select(["crossbar", "crossbar:5", "crossbar:15"], [5])
    assert [one.key for one in chosen] == ["crossbar-05", "crossbar-15"]
    assert [one.is_exact for one in chosen] == [False, True]
