"""``--words``: when each word is heard in the sound that a command writes."""

import json
from collections.abc import Callable
from pathlib import Path

import pysubs2
import pytest

pytest.importorskip("aiohttp", reason="not run: aiohttp is not installed")
import soundfile
from qwen3_tts_morph.morph.synthesizer import Synthesizer

SCRIPT = """\
[pause 0.5]
SERENA: Good morning, all.
[speed 1.5] RYAN: It is five.
Nobody else was there.
"""


@pytest.fixture
def short(headed: Path) -> list[str]:
    return ["--checkpoint", str(headed), "--max-seconds", "0.5", "--retries", "0"]


def read(path: Path) -> list[dict]:
    return json.loads(path.read_text(encoding="utf-8"))["words"]


def test_a_line_is_written_with_its_words(run: Callable, short: list[str], tmp_path: Path) -> None:
    done = run("Good morning. [pause 0.3] It is $5.", "--out", "a.wav", "--words", "a.json", *short)
    assert done.code == 0 and done.lines == [str(tmp_path / "a.wav"), str(tmp_path / "a.json")], done.err
    found = read(tmp_path / "a.json")
    assert [one["word"] for one in found] == ["Good", "morning.", "It", "is", "$5."]
    times = [time for one in found for time in (one["start"], one["end"])]
    assert times == sorted(times) and found[1]["end"] > 0
    assert found[-1]["end"] <= soundfile.info(tmp_path / "a.wav").duration + 0.001
    refused = run("Yes.", "--out", "b.wav", "--words", "a.json", *short)
    assert refused.code == 2 and "a.json exists already" in refused.err
    live = run("Good morning.", "--out", "-", "--words", "c.ass", "--words-by", "sentence", *short)
    assert live.code == 0 and live.out.startswith(b"RIFF"), live.err
    [cue] = pysubs2.load(str(tmp_path / "c.ass"))
    assert cue.plaintext == "Good morning."


def test_a_track_is_written_with_its_words_also_from_saved_lines(run, short, tmp_path, spoken) -> None:
    (tmp_path / "scene.txt").write_text(SCRIPT, encoding="utf-8")
    command = ("script", "scene.txt", "--words", "w.json", *short)
    done = run(*command)
    assert done.code == 0 and done.lines[-1] == str(tmp_path / "w.json"), done.err
    first = read(tmp_path / "w.json")
    assert [(one["word"], one["line"]) for one in first] == [
        *(("Good", 0), ("morning,", 0), ("all.", 0), ("It", 1), ("is", 1), ("five.", 1)),
        *((word, 2) for word in ("Nobody", "else", "was", "there.")),
    ]
    lengths = [soundfile.info(path).duration for path in sorted((tmp_path / "scene").glob("0*.wav"))]
    starts = [0.5, 0.8 + lengths[0], 1.1 + lengths[0] + lengths[1]]
    for one in first:
        begin = starts[one["line"]]
        assert begin - 0.001 <= one["start"] <= one["end"] <= begin + lengths[one["line"]] + 0.001
    assert run(*command).code == 0 and len(spoken) == 3 and read(tmp_path / "w.json") == first
    longer = run("script", "scene.txt", "--words", "w.vtt", "--words-by", "sentence", "--gap", "1.3", *short)
    assert longer.code == 0 and len(spoken) == 3, longer.err
    vtt = (tmp_path / "w.vtt").read_text(encoding="utf-8")
    assert "<v serena>Good" in vtt and vtt.count(" --> ") == 3
    first_line = next((tmp_path / "scene").glob("0001*.wav"))
    soundfile.write(first_line, soundfile.read(first_line)[0][:-100], 24000)
    edited = run(*command)
    assert edited.code == 0 and "1 of 3 lines have no word times" in edited.err
    assert [one["word"] for one in read(tmp_path / "w.json")] == [one["word"] for one in first[3:]]
    refused = run("script", "scene.txt", "--words", "scene/scene.srt", *short)
    assert refused.code == 2 and "has the subtitles: choose another file with --words" in refused.err


def test_a_dub_is_written_with_its_words(run: Callable, short: list[str], tmp_path: Path) -> None:
    (tmp_path / "film.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nSERENA: Good morning.\n")
    done = run("dub", "film.srt", "--words", "w.srt", "--words-by", "word", *short)
    assert done.code == 0 and done.lines[-1] == str(tmp_path / "w.srt"), done.err
    shown = pysubs2.load(str(tmp_path / "w.srt"))
    assert [one.text for one in shown] == ["Good", "morning."] and shown[0].start >= 1000


@pytest.mark.parametrize("command", ["speak", "script", "dub"])
def test_a_checkpoint_without_a_head_is_refused_before_it_is_loaded(
    run: Callable, tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(Synthesizer, "load", lambda *_, **__: pytest.fail("the model was loaded"))
    (tmp_path / "a.txt").write_text("Yes.")
    (tmp_path / "a.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nYes.\n")
    said = {"speak": "Yes.", "script": "a.txt", "dub": "a.srt"}[command]
    done = run(command, said, "--words", "w.json", *tiny)
    assert done.code == 2 and "find one with python -m lab.check --alignment in a clone of the repository" in done.err


def test_what_cannot_be_written_is_refused(run, short) -> None:
    done = run("Yes.", "--words", "w.txt", *short)
    assert done.code == 2 and "w.txt does not end in one of .srt, .vtt, .json, .ass: rename it" in done.err
