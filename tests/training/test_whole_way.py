"""The command that makes the demo voice: its steps fit each other, and are not done twice."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from qwen3_tts_morph.training import __main__ as whole
from qwen3_tts_morph.training.codec.train import parse_arguments as codec_arguments


def steps(root: Path, *more: str) -> list[whole.Step]:
    return whole.steps(whole.parse_arguments(["--root", str(root), *more]))


def test_each_step_takes_what_an_earlier_one_made(tmp_path: Path) -> None:
    todo = steps(tmp_path)
    assert [step.arguments[0] for step in todo] == [
        *("corpus", "corpus", "codec.train", "codec.export", "talker.encode", "talker.train", "export")
    ]
    taken = {
        flag: step.arguments[place + 1] for step in todo for place, flag in enumerate(step.arguments[:-1])
    }
    assert taken["--checkpoint"] == str(tmp_path / "codec" / "weights")
    assert taken["--codec"] == str(tmp_path / "speech_tokenizer")
    assert taken["--codes"] == str(tmp_path / "codes")
    codec = codec_arguments(list(todo[2].arguments[1:]))
    assert codec.processes == 0 and codec.fast and codec.minutes == codec.whole_minutes == 25.0
    assert not codec_arguments(list(steps(tmp_path, "--device", "cpu")[2].arguments[1:])).fast


def test_what_is_done_is_not_done_again_and_a_failure_ends_it(tmp_path: Path) -> None:
    version = whole.Step(("corpus", "--help"), tmp_path / "one")
    wrong = whole.Step(("corpus", "no such step"), tmp_path / "two")
    never = whole.Step(("corpus", "--help"), tmp_path / "three")
    with pytest.raises(subprocess.CalledProcessError):
        whole.run([version, wrong, never])
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    (tmp_path / "two").touch()
    whole.run([version, wrong, never])
    assert (tmp_path / "three").exists()
