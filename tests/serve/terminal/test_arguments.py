"""Arguments that are refused before anything is installed or loaded."""

import argparse
from pathlib import Path

import pytest
from qwen3_tts_morph.serve.cli import parse
from qwen3_tts_morph.serve.terminal import arguments


def test_only_the_text_is_required(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, read = parse("speak", ["Hello."])
    assert (read.text, read.checkpoint, read.speaker, read.reference) == ("Hello.", None, None, None)
    assert read.out == Path("speech.wav") and not read.here


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--out", "{}"], "is a folder: name a file"),
        (["--out", "{}/speech.txt"], "does not end in one of .flac, .wav, .mp3, .opus, .ogg"),
        (["--out", "{}/none/speech.wav"], "does not exist: create it"),
        (["--out", "{}/" + 300 * "x" + ".wav"], "cannot be written"),
        (["--out", "{}/\x1b[2J.txt"], r"\x1b[2J.txt does not end in"),
        (["--out", "{}/speech.wav", "--format", "mp3"], "differ: leave one out"),
        (["--format", "pcm"], "write it to stdout with --out -"),
        (["--stdin"], "not both"),
        (["--reference", "{}/none.wav"], "is not a file"),
        (["--comfyui", "{}/none"], "is not a folder"),
        (["--transcript", "Yes."], "give the recording with --reference"),
        (["--speaker", "emma", "--describe", "a voice"], "not allowed with"),
        (["--voice", "Anna", "--speaker", "emma"], "not allowed with"),
        (["--voice", ""], "argument --voice: it is empty: give a value, or leave the option out"),
        (["--speaker", " "], "argument --speaker: it is empty"),
        (["--describe", ""], "argument --describe: it is empty"),
        (["--reference", "{}/none.wav", "--transcript", ""], "is not a file"),
        (["--transcript", ""], "argument --transcript: it is empty"),
        (["--checkpoint", ""], "argument --checkpoint: it is empty"),
        (["--seq-groups", "99"], "is not a whole number from 1 to 15"),
        (["--seq-groups", "5.0"], "is not a whole number from 1 to 15"),
        (["--temperature", "nan"], "is not a number from 0.01 to 10"),
        (["--seed", "-1"], "is not a whole number from 0 to 18446744073709551615"),
        (["--seed", str(2**64)], "is not a whole number from 0 to"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_installed_or_loaded(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse("speak", ["Yes.", *(word.format(tmp_path) for word in words)])
    told = capsys.readouterr()
    assert sentence in told.err and not told.out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "words", "option"),
    [
        ("script", ["{}", "--server", ""], "--server"),
        ("script", ["{}", "--out", ""], "--out"),
        ("sweep", ["Yes.", "--out", ""], "--out"),
        ("clone", ["{}", "--name", ""], "--name"),
        ("clone", ["{}", "--transcript", " "], "--transcript"),
        ("voices", ["design", "A voice.", "--name", ""], "--name"),
        ("voices", ["import", "{}", "--name", ""], "--name"),
        ("voices", ["preview", ""], "NAME"),
        ("serve", ["--voices", ""], "--voices"),
        ("serve", ["--checkpoint", ""], "--checkpoint"),
    ],
)
def test_an_empty_value_is_refused(command, words, option, tmp_path, capsys) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match="2"):
        parse(command, [word.format(tmp_path / "file") for word in words])
    assert f"argument {option}: it is empty: give a value" in capsys.readouterr().err


def test_a_reference_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "anna.wav").write_bytes(b"her voice")
    words = ["--reference", str(tmp_path / "anna.wav"), "--out", f"{tmp_path}/../{tmp_path.name}/anna.wav"]
    with pytest.raises(SystemExit, match="2"):
        parse("speak", ["Yes.", *words])
    assert "is read and would be overwritten: choose another place with --out" in capsys.readouterr().err


def test_out_replaces_no_file_without_a_word(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.wav", "groups_05.wav", "scene.txt", "scene.srt"):
        (tmp_path / name).write_bytes(b"a user's")
    for words in (
        ("speak", "Yes.", "--out", "a.wav"),
        ("speak", "Yes.", "--out", "a.wav", "--play"),
        ("voices", "preview", "Anna", "--out", "a.wav"),
        ("sweep", "Yes.", "--out", "."),
    ):
        with pytest.raises(SystemExit, match="2"):
            parse(words[0], words[1:])
        assert "exists already: choose another with --out, or add --overwrite" in capsys.readouterr().err
        parse(words[0], [*words[1:], "--overwrite"])
    with pytest.raises(SystemExit, match="2"):
        parse("script", ["scene.txt", "--out", "."])
    assert "scene.srt is no earlier run's: choose another folder with --out, or move it away" in capsys.readouterr().err
    (tmp_path / "manifest.json").touch()
    parse("script", ["scene.txt", "--out", "."])


def test_without_out_the_next_free_name_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's first command works twice."""
    monkeypatch.chdir(tmp_path)
    for number in ("", "-2", "-3"):
        out = parse("speak", ["Yes."])[1].out
        assert out == Path(f"speech{number}.wav")
        out.touch()
    assert parse("speak", ["Yes.", "--format", "flac"])[1].out == Path("speech.flac")


def test_an_empty_text_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse("speak", [])
    assert "there is no text" in capsys.readouterr().err
    with pytest.raises(ValueError, match="text is empty"):
        parse("speak", ["  "])


def test_an_option_that_was_removed_is_ignored_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser(prog="speak")
    arguments.add_settings(parser)
    assert vars(parser.parse_args(["--decoding", "lossless", "--continuity"])) == vars(parser.parse_args([]))
    said = [f"speak: {name} is ignored: it was removed" for name in ("--decoding", "--continuity")]
    assert capsys.readouterr().err.splitlines() == said
    assert "--decoding" not in parser.format_help() and "--continuity" not in parser.format_help()
