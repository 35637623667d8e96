"""``speak``: into files, to stdout while it is made, and text that comes while it is spoken."""

import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.file import save_voice
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.serve import cli
from qwen3_tts_morph.serve.commands import speak
from qwen3_tts_morph.serve.terminal.folders import OWN, VOICE_FOLDER

import pack
from tests.morph.adapters import write_adapter
from tests.patience import PATIENCE


def test_the_speaker_is_the_first_unless_one_is_named(run: Callable, tiny: list[str], tmp_path: Path) -> None:
    def speech(*words: str) -> bytes:
        done = run("Yes.", "--out", tmp_path / "speech.wav", "--overwrite", *tiny, *words)
        assert done.code == 0 and done.lines == [str(tmp_path / "speech.wav")], done.err
        return (tmp_path / "speech.wav").read_bytes()

    unnamed = speech()
    assert unnamed == speech("--speaker", "serena")
    assert unnamed != speech("--speaker", "eric")
    assert unnamed != speech("--temperature", "0.2")
    assert len(speech("--trim-ends")) <= len(unnamed)


def test_a_line_is_spoken_with_an_adapter_and_the_report_names_it(run, tiny, checkpoints, tmp_path) -> None:
    adapter = write_adapter(tmp_path / "anna", checkpoints())

    def speech(*words: str) -> tuple[bytes, str]:
        done = run("Yes.", "--out", tmp_path / "speech.wav", "--overwrite", *tiny, *words)
        assert done.code == 0, done.err
        return (tmp_path / "speech.wav").read_bytes(), done.err

    plain, (trained, report) = speech(), speech("--lora", f"{adapter}:0.7")
    assert plain[0] != trained and "LoRA anna at 0.7" in report and "LoRA" not in plain[1]
    assert plain[0] == speech("--lora", f"{adapter}:0")[0]


def test_a_reference_that_is_not_a_recording_is_refused_before_the_model_is_loaded(
    run: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Synthesizer, "load", lambda *_, **__: pytest.fail("the model was loaded"))
    noise = tmp_path / "noise.wav"
    noise.write_bytes(bytes(range(256)) * 10)
    done = run("Yes.", "--reference", noise, "--out", tmp_path / "a.wav")
    assert done.code == 2 and f"{noise} cannot be read as a recording: give a wav" in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("speak", "{}"),
        ("speak", "{}", "--out", "-"),
        ("sweep", "{}"),
        ("voices", "preview", "Ryan", "--text", "{}"),
    ],
)
def test_text_and_language_are_checked_before_the_model_is_loaded(run, tiny, monkeypatch, words) -> None:
    library = Path.home() / OWN / VOICE_FOLDER
    save_voice(Voice("preset", "0b6", "Ryan", speaker="ryan"), library / "Ryan.safetensors")
    monkeypatch.setattr(Synthesizer, "load", lambda *_, **__: pytest.fail("the model was loaded"))
    mute = run(*(word.format("...") for word in words), *tiny[:2])
    assert mute.code == 2 and "text '...' has no letter and no digit to speak" in mute.err
    other = run(*(word.format("Yes.") for word in words), "--language", "klingon", *tiny[:2])
    assert other.code == 2 and "language 'klingon' is unknown to tiny-custom_voice: choose one of auto" in other.err
    if "voices" not in words:
        nobody = run(*(word.format("Yes.") for word in words), "--speaker", "nobody", *tiny[:2])
        assert nobody.code == 2 and "speaker 'nobody' is unknown to tiny-custom_voice: choose" in nobody.err
    device = run(*(word.format("Yes.") for word in words), "--device", "toaster", *tiny[:2])
    assert device.code == 2 and device.err == (
        "speak.py: device is 'toaster', which torch does not know: choose cpu, cuda, cuda:N or auto\n"
    )


def test_voice_and_transcript_are_checked_before_the_model_is_loaded(run, recording, monkeypatch) -> None:
    monkeypatch.setattr(Synthesizer, "load", lambda *_, **__: pytest.fail("the model was loaded"))
    nobody = run("Yes.", "--voice", "Nobody")
    assert nobody.code == 2 and "voice 'Nobody' is not in the library" in nobody.err
    long = run("Yes.", "--reference", recording, "--transcript", "word " * 1000)
    assert long.code == 2 and "transcript has 4999 characters and 2000 are allowed" in long.err


def test_a_file_has_the_take_whose_words_are_right(run, tiny, spoken, hears) -> None:
    hears("no", "yes")
    done = run("Yes.", "--check-words", *tiny)
    assert done.code == 0 and spoken == ["Yes.", "Yes."] and "is take 2, with seed" in done.err, done.err
    live = run("Yes.", "--check-words", "base", "--out", "-", *tiny)
    assert live.code == 2 and "--check-words hears a line when it is complete: leave out --stdin" in live.err


@pytest.mark.parametrize("kind", ["wav", "flac", "pcm"])
def test_stdout_gets_the_sound_and_nothing_else(run, tiny, tmp_path, kind) -> None:
    done = run("Yes.", "--out", "-", "--format", kind, *tiny)
    assert done.code == 0 and "times real time" in done.err, done.err
    raw = {"samplerate": 24000, "channels": 1, "subtype": "PCM_16", "format": "RAW", "endian": "LITTLE"}
    heard, _ = soundfile.read(io.BytesIO(done.out), dtype="int16", **(raw if kind == "pcm" else {}))
    run("Yes.", "--out", tmp_path / "a.wav", *tiny)
    written, _ = soundfile.read(tmp_path / "a.wav", dtype="int16")
    assert len(heard) == len(written) > 0
    assert np.abs(heard.astype(int) - written).max() <= 4  # rounding of the chunks


@pytest.mark.slow
def test_a_reader_that_leaves_ends_the_run_quietly(checkpoints: Callable[..., Path]) -> None:
    command = [sys.executable, "speak.py", "--here", "A long line. " * 20, "--out", "-", "--format", "pcm"]
    command += ["--checkpoint", str(checkpoints())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=pack.ROOT) as process:
        assert process.stdout is not None and process.stderr is not None
        assert len(process.stdout.read(1920)) == 1920
        process.stdout.close()
        told = process.stderr.read().decode()
    assert process.returncode == 141 and "Traceback" not in told and "Error" not in told


def test_text_on_stdin_is_spoken_while_it_comes(tiny, tmp_path, monkeypatch) -> None:
    """The first sentence is heard before the second is there."""
    (stdin, typed), (heard, stdout) = os.pipe(), os.pipe()
    parts: list[bytes] = []

    def type_and_hear() -> None:
        with os.fdopen(typed, "wb", buffering=0) as keys, os.fdopen(heard, "rb") as sound:
            keys.write("Guten Tag. Sch\u00f6n".encode()[:-3])  # between the bytes of a letter
            parts.append(sound.read(1920 * 2))
            keys.write("\u00f6n, dass du da bist.".encode())
            keys.close()
            parts.append(sound.read())

    person = threading.Thread(target=type_and_hear, daemon=True)
    with os.fdopen(stdin) as given, os.fdopen(stdout, "w") as out, (tmp_path / "err").open("w+") as err:
        for name, stream in (("stdin", given), ("stdout", out), ("stderr", err)):
            monkeypatch.setattr(sys, name, stream)
        person.start()
        code = cli.main(["--stdin", "--out", "-", "--format", "pcm", *tiny], "speak.py")
        monkeypatch.undo()
    person.join(PATIENCE)
    told = (tmp_path / "err").read_text()
    assert code == 0 and "2 pieces" in told, told
    assert [len(parts[0]), len(parts[1]) > 0] == [3840, True]


def test_text_on_stdin_must_be_utf_8(run: Callable, tiny: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"\xff\xfe")
    os.close(writer)
    with os.fdopen(reader) as source:
        monkeypatch.setattr(sys, "stdin", source)
        done = run("--stdin", *tiny)
    assert done.code == 2 and "the text on stdin is not UTF-8" in done.err


def test_text_is_read_as_it_comes() -> None:
    reader, writer = os.pipe()
    parts = speak.read_text(reader)
    os.write(writer, "\ufeffOne \u00e9".encode())
    assert next(parts) == "One \u00e9"
    os.write(writer, b"\xc3")
    threading.Timer(0.05, lambda: (os.write(writer, b"\xa9 two"), os.close(writer))).start()
    assert "".join(parts) == "\u00e9 two"
    os.close(reader)
