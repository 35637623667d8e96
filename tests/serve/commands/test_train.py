"""``train``: a voice on a folder of recordings, in ComfyUI's folders."""

import pytest
from qwen3_tts_morph.morph.training import train_voice

from tests.morph.training.sounds import speech, write


@pytest.fixture(autouse=True)
def same_speaker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_voice, "check_speaker", lambda *_: None)


def test_a_trained_voice_speaks_by_its_name(run, checkpoints, tmp_path) -> None:
    data = tmp_path / "data"
    for seed in range(3):
        write(data, f"{seed}", speech(1.2, seed))
    model = ["--checkpoint", checkpoints("base"), "--device", "cpu"]
    small = ["--steps", "2", "--rank", "2", "--batch", "1", "--recogniser", "off"]
    without = run("train", data, "--name", "anna", *small, *model)
    assert without.code == 2 and "only if the speaker has agreed: add --consent" in without.err
    done = run("train", data, "--name", "anna", "--consent", *small, *model)
    assert done.code == 0 and "trained anna on 3 recordings" in done.err and "update 2: loss" in done.err
    assert done.lines == [str(tmp_path / "home" / ".qwen3-tts-morph" / "qwen3-tts-loras" / "anna")]
    spoken = run(
        *("speak", "Hello.", "--lora", "anna", "--voice", "anna", "--max-seconds", "0.5", "--out", "a.wav"),
        *model,
    )
    assert spoken.code == 0 and (tmp_path / "a.wav").exists()
    again = run("train", data, "--name", "anna", "--consent", *small, *model)
    assert again.code == 0 and "It was trained before with the same inputs." in again.err


def test_unusable_options_and_folders_are_sentences(run, checkpoints, tmp_path) -> None:
    model = ["--consent", "--recogniser", "off", "--checkpoint", checkpoints("base"), "--device", "cpu"]
    (tmp_path / "empty").mkdir()
    empty = run("train", "empty", "--name", "anna", *model)
    assert empty.code == 2 and "empty has no recordings: put NAME.wav and NAME.txt into it" in empty.err
    wrong = run("train", "empty", "--name", "anna", "--rank", "0", *model)
    assert wrong.code == 2 and "rank is 0: choose a whole number, 1 or more" in wrong.err
    named = run("train", "empty", "--name", "a/b", *model)
    assert named.code == 2 and "Traceback" not in named.err
