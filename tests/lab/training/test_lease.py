"""The talker's further training on a rented machine: what fits into a call, what is resumed, what comes back."""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from lab.random_checkpoint import write_checkpoint
from lab.training import lease as command
from lab.training import steps
from lab.training.corpus.bundle import unpack_bundle, write_bundle
from lab.training.corpus.plan import Line
from lab.training.corpus.shards import Utterance, write_shard
from lab.training.corpus.voices import Voice
from lab.training.export import ExportOptions, export
from lab.training.lease import NAMES, Lease, run_call, send_back, stages
from lab.training.parallel import ALONE
from lab.training.talker.checkpoint import load_weights
from lab.training.talker.config import DEFAULT, load_config
from lab.training.talker.train import train
from tests.lab.training.talker.tiny_talker import (
    TEXTS,
    VOICES,
    recording,
    tiny_run,
    write_codes,
    write_config,
)

pytestmark = pytest.mark.slow  # this training is finished: --all runs it


def lease(root: Path, **more: object) -> Lease:
    return replace(Lease(root, root / "old", root / "teacher.tar.xz"), **more)  # type: ignore[arg-type]


def options_of(stage: command.Stage) -> dict[str, str]:
    return dict(zip(stage.step.arguments, stage.step.arguments[1:], strict=False))


def test_each_stages_inputs_are_made_by_an_earlier_one(tmp_path: Path) -> None:
    todo = stages(lease(tmp_path), left=9.0)
    assert [stage.name for stage in todo] == list(NAMES)
    dev, speak, encode, learn, voice = map(options_of, todo)
    assert dev["--bundle"] == speak["--bundle"] == str(tmp_path / "teacher.tar.xz")
    assert encode["--corpus"] == str(Path(speak["--root"]) / "shards")
    assert encode["--bundle"] == str(Path(speak["--root"]) / "teacher"), "where the corpus unpacks it"
    assert encode["--codec"] == voice["--codec"] == str(tmp_path / "old" / "speech_tokenizer")
    assert learn["--codes"] == encode["--out"] and voice["--talker"] == learn["--out"]
    assert learn["--start"] == str(tmp_path / "old") and float(learn["--slice"]) < 9.0
    assert len({stage.step.made for stage in todo}) == len(NAMES)


def test_a_further_training_differs_from_the_first_in_its_rate_references_and_noise_only() -> None:
    further, first = load_config(command.CONFIG), load_config(DEFAULT)
    assert further.training.learning_rate < first.training.learning_rate
    assert further.mix.icl > first.mix.icl and further.mix.voice_noise > first.mix.voice_noise == 0
    slower = replace(first.training, learning_rate=further.training.learning_rate)
    mix = replace(first.mix, icl=further.mix.icl, voice_noise=further.mix.voice_noise)
    assert further == replace(first, training=slower, mix=mix)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that were run instead of which only the clock moves, by three minutes each."""
    clock, commands = SimpleNamespace(now=0.0), []

    def attempt(step: steps.Step, until: float = math.inf) -> None:
        commands.append(step.arguments[0])
        clock.now += 180.0

    monkeypatch.setattr(command, "attempt", attempt)
    monkeypatch.setattr(command, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(command, "trained_minutes", lambda _: 60.0)
    return commands


def test_a_call_begins_what_fits_into_its_minutes(begun: list[str], tmp_path: Path) -> None:
    assert not run_call(lease(tmp_path), 9.0)
    assert begun == ["corpus", "corpus"], "encoding does not fit into the last three minutes"
    assert not run_call(lease(tmp_path), 2.0)
    assert begun[2:] == ["talker.encode"], "a call's first stage begins even if it does not fit"
    assert run_call(lease(tmp_path), 9.0, last="train")
    assert begun[3:] == ["talker.train"]
    assert run_call(lease(tmp_path), 9.0)
    assert begun[4:] == ["export"]


def test_a_training_goes_on_in_the_next_call_until_its_minutes_are_over(
    begun: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("dev", "speak", "encode"):
        (tmp_path / f"{name}.done").touch()
    trained = iter([6.0, 6.0, 13.0])
    monkeypatch.setattr(command, "trained_minutes", lambda _: next(trained))
    assert not run_call(lease(tmp_path, minutes=13.0), 9.0)
    assert run_call(lease(tmp_path, minutes=13.0), 9.0)
    assert begun == ["talker.train", "talker.train", "export"]


def test_what_an_interrupted_stage_left_is_removed_and_nothing_else(begun: list[str], tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    for name in ("dev-00-000.safetensors", "train-00-000.safetensors", "train-01-000.part"):
        (tmp_path / "shards" / name).touch()
    (tmp_path / "dev.done").touch()
    run_call(lease(tmp_path), 2.0)
    assert [path.name for path in (tmp_path / "shards").iterdir()] == ["dev-00-000.safetensors"]


def test_a_command_is_killed_when_its_call_is_over() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        steps.watch([sys.executable, "-c", "import time; time.sleep(3600)"], None, until=0.0)


def test_what_is_sent_back_fits_and_has_the_weights_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = lease(tmp_path)
    for index in range(5):
        write(one.talker / "weights" / f"part-{index}.safetensors", 30)
    for name in ("merges.txt", "tokenizer_config.json", "vocab.json"):
        write(one.talker / "tokenizer" / name, 5)
    write(one.talker / "log.jsonl", 1)
    write(one.talker / "state.safetensors", 1)
    everything = [path.name for path in send_back(one, tmp_path / "all")]
    assert len(everything) == command.MOST_FILES and everything[-1] == "vocab.json"
    monkeypatch.setattr(command, "MOST_IN_ALL", 95)
    small = send_back(one, tmp_path / "small")
    assert [path.name for path in small][:3] == [f"part-{index}.safetensors" for index in range(3)]
    assert sum(path.stat().st_size for path in small) == 95


def write(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))


def make_voice(root: Path) -> Path:
    """A voice with a tiny talker, to go on from."""
    write_codes(root / "codes")
    write_config(root / "talker.json")
    train(ALONE, tiny_run(root, steps=1))
    codec = write_checkpoint(root / "random") / "speech_tokenizer"
    export(root / "talker", codec, root / "voice", ExportOptions({}, {}))
    return root / "voice"


def speak(root: Path) -> None:
    """Write what the teacher would have spoken, and its bundle."""
    lines = [spoken(text, number % 2) for number, text in enumerate(TEXTS)]
    (root / "shards").mkdir(parents=True)
    write_shard(root / "shards" / "train-00-000.safetensors", lines, 24000)
    write_shard(root / "shards" / "dev-00-000.safetensors", lines[:2], 24000)
    tables = {name: np.random.default_rng(index).normal(size=(3, 256)) for index, name in enumerate("ab")}
    cast = [Voice(name, "preset", {table: 1.0}) for name, table in zip(VOICES, "ab", strict=True)]
    about = {"vocabulary": {}, "cast": [vars(voice) for voice in cast]}
    write_bundle(root / "teacher.tar.xz", {}, tables, [Line("Hi.", "hI.", "train", "everyday")], about)
    unpack_bundle(root / "teacher.tar.xz", root / "teacher")
    for name in ("dev", "speak"):
        (root / f"{name}.done").touch()


def spoken(text: str, voice: int) -> Utterance:
    audio = (recording(voice) * 16000).astype(np.int16)
    part = len(audio) // 4
    return Utterance(text, "ab", VOICES[voice], audio, np.full(4, part, np.int32))


def config_for(root: Path) -> Path:
    """A tiny config for lines of two seconds."""
    path = write_config(root / "further.json")
    values = json.loads(path.read_text(encoding="utf-8"))
    values["mix"] |= {"positions": 384, "lengths": [96, 128, 192], "rough": 0.5, "short_targets": 0.4}
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def test_three_calls_encode_train_and_export_what_can_also_be_exported_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands themselves, in this process; the teacher has spoken before."""

    def here(arguments: Sequence[str], growing: Path | None, until: float = math.inf) -> None:
        monkeypatch.setattr(sys, "argv", list(arguments[2:]))
        importlib.import_module(arguments[2]).main()

    def call(*more: str) -> None:
        given = ("--root", root, "--voice", old, "--bundle", root / "teacher.tar.xz", "--back", back)
        rest = ("--config", config, "--workers", "0", "--device", "cpu", *more)
        monkeypatch.setattr(sys, "argv", ["lease", *map(str, (*given, *rest))])
        command.main()

    root, back, old = tmp_path / "lease", tmp_path / "back", make_voice(tmp_path / "made")
    config = config_for(tmp_path)
    speak(root)
    monkeypatch.setattr(steps, "watch", here)
    monkeypatch.setattr(command, "start_log", lambda _: None)
    monkeypatch.setattr(command, "signal", SimpleNamespace(SIGTERM=None, signal=lambda *_: None))
    call("--last", "encode")
    assert not back.exists()
    call("--minutes", "0.01", "--talker-minutes", "60")
    first = load_weights(back / "weights")[1]["step"]
    assert first > 0 and not (root / "train.done").exists()
    call("--talker-minutes", "0.00001")
    _, about, _ = load_weights(back / "weights")
    assert about["step"] > first, "it goes on from its state"
    values = load_config(config)
    export(back, old / "speech_tokenizer", tmp_path / "home", ExportOptions(values.presets, values.sampling))
    made = {path.relative_to(root / "voice") for path in (root / "voice").rglob("*.*")}
    assert made and made == {path.relative_to(tmp_path / "home") for path in (tmp_path / "home").rglob("*.*")}
    assert all(
        (root / "voice" / name).read_bytes() == (tmp_path / "home" / name).read_bytes() for name in made
    )
    assert (old / "model.safetensors").read_bytes() != (root / "voice" / "model.safetensors").read_bytes()
