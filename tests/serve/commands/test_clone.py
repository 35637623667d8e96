"""``clone`` and ``voices design``: saved voices from a recording and from a description."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
from qwen3_tts_morph.morph.hearing import whisper
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.file import load_voice

from tests.morph.voice.made_speech import RATE, clip, hush, phrase


@pytest.fixture
def base(checkpoints: Callable[..., Path]) -> list[str]:
    return ["--checkpoint", str(checkpoints("base"))]


def test_a_clone_is_saved_and_speaks(run, base, recording, tmp_path, caplog) -> None:
    done = run("clone", recording, "--name", "Anna", *base)
    path = tmp_path / "home" / ".qwen3-tts-morph" / "qwen3-tts-voices" / "Anna.safetensors"
    assert done.code == 0 and done.lines == [str(path)], done.err
    odd = "level hardly changes"
    assert (caplog.text + done.err).count(odd) == 1, "what is odd about the recording is said twice"
    voice = load_voice(path)
    assert (voice.kind, voice.name) == ("x_vector", "Anna")
    spoken = run("Yes.", "--voice", "Anna", "--out", "a.wav", "--max-seconds", "0.3", "--retries", "0", *base)
    assert spoken.code == 0 and (tmp_path / "a.wav").exists(), spoken.err


def test_a_transcript_makes_an_icl_voice(run, base, recording, tmp_path) -> None:
    (tmp_path / "words.txt").write_text("\ufeffa t\u00f6ne\n", encoding="utf-8")
    out = tmp_path / "voice.safetensors"
    done = run("clone", recording, "--transcript-file", "words.txt", "--out", out, *base)
    assert done.code == 0 and done.lines == [str(out)], done.err
    voice = load_voice(out)
    assert (voice.kind, voice.transcript) == ("icl", "a t\u00f6ne")


def test_a_recogniser_writes_the_transcript(run, base, recording, tmp_path, monkeypatch) -> None:
    asked: list[tuple[str, str]] = []

    def load(size: str, root: Path) -> SimpleNamespace:
        asked.append((size, root.name))
        return SimpleNamespace(name="whisper", transcribe=lambda *_: "a tone")

    monkeypatch.setattr(whisper, "load_whisper", load)
    out = tmp_path / "voice.safetensors"
    done = run("clone", recording, "--transcribe", "--pad", "--out", out, *base)
    assert done.code == 0 and "whisper heard: a tone" in done.err
    assert load_voice(out).transcript == "a tone" and asked == [("base", "faster-whisper")]
    both = run("clone", recording, "--transcribe", "--transcript", "a tone", *base)
    assert both.code == 2 and "not allowed with" in both.err


@pytest.fixture
def interview(tmp_path: Path) -> Path:
    """A recording whose first phrase is clipped."""
    path = tmp_path / "interview.wav"
    parts = [hush(1), clip(phrase(2.0) * 4, 0.5), hush(1), phrase(4.0), hush(1)]
    soundfile.write(path, np.concatenate(parts), RATE)
    return path


def test_a_part_is_cloned_and_told_and_nothing_is_cut_unasked(run, base, interview, tmp_path) -> None:
    def clone(*words: str) -> tuple[list[float], str]:
        out = tmp_path / "voice.safetensors"
        done = run("clone", interview, *words, "--out", out, "--overwrite", *base)
        assert done.code == 0, done.err
        return load_voice(out).speaker_embedding.flatten().tolist(), done.err

    whole, said = clone()
    assert "all 9.0 s are taken; 3.90 to 8.25 s make a better voice: add --best" in said
    best, said = clone("--best")
    assert "the best part: 3.90 to 8.25 s of 9.00 s" in said and "not clipped" in said
    same, said = clone("--start", "3.9", "--end", "8.25")
    assert "3.90 to 8.25 s of 9.00 s" in said and "the best part" not in said
    assert best == same != whole
    _, said = clone("--start", "7.5")
    assert "7.50 to 9.00 s of 9.00 s" in said and "--best" not in said


def test_another_voice_is_not_replaced_unasked(run, base, recording, monkeypatch) -> None:
    assert run("clone", recording, *base).code == 0  # named after its file
    with monkeypatch.context() as patch:
        patch.setattr(Synthesizer, "load", lambda *_, **__: pytest.fail("the model was loaded"))
        again = run("clone", recording, "--name", "a tone", *base)
    assert again.code == 2 and "exists already: choose another name, or add --overwrite" in again.err
    assert run("clone", recording, "--overwrite", *base).code == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["{0}", "--name", "../x"], "contains '/'"),
        (["{0}", "--out", "voice.pt"], "does not end in .safetensors"),
        (["{0}", "--pad"], "--pad is for clones with a transcript"),
        (["{0}", "--transcript", "a", "--transcript-file", "{0}"], "not allowed with"),
        (["none.wav"], "is not a file"),
        (["{0}", "--best", "--end", "3"], "--best chooses the part itself: leave out --start and --end"),
        (["{0}", "--start", "-1"], "'-1' is not a number from 0"),
        (["{0}", "--start", "7", "--name", "x"], "start is 7 s and the recording is 2.00 s long"),
        (["{0}", "--end", "0.5", "--name", "x"], "leave 0.50 s: choose at least 1 s"),
        (["{0}", "--name", "x", "--checkpoint", "nowhere"], "checkpoint nowhere is neither a folder nor in"),
    ],
)
def test_bad_input_is_one_sentence(run: Callable, recording: Path, words: list[str], sentence: str) -> None:
    done = run("clone", *(word.format(recording) for word in words))
    assert done.code == 2 and sentence in done.err and "Traceback" not in done.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("\ufeff\n", "words.txt is empty: write what the recording says into it"),
        ("a " * 50_000, "transcript has 99999 characters"),
    ],
)
def test_a_transcript_that_cannot_be_one_is_refused_before_the_model_is_loaded(
    run: Callable,
    recording: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    sentence: str,
) -> None:
    monkeypatch.setattr(Synthesizer, "load", lambda *_, **__: pytest.fail("the model was loaded"))
    (tmp_path / "words.txt").write_text(words, encoding="utf-8")
    done = run("clone", recording, "--transcript-file", "words.txt", "--name", "Anna")
    assert done.code == 2 and sentence in done.err


def test_a_description_is_saved_as_a_voice(run, checkpoints, tmp_path) -> None:
    model = ["--checkpoint", checkpoints("voice_design", "tiny-1.7B")]
    done = run("voices", "design", "Old", "a calm old man", *model)
    assert done.code == 0 and load_voice(Path(done.lines[0])).instruct == "a calm old man", done.err
    before = run("design", "a calm old man", "--out", "old.safetensors", *model)
    assert before.code == 0 and "design is now: speak.py voices design NAME TEXT\n" in before.err
    assert load_voice(tmp_path / "old.safetensors").instruct == "a calm old man"
    assert "has no name" in run("voices", "design", "a calm old man", *model).err
    wrong = run("--here", "design", "a calm old man", "--name", "old", "--checkpoint", checkpoints())
    assert wrong.code == 2 and "load a VoiceDesign checkpoint" in wrong.err
