"""``script``: lines, track, subtitles, and runs that go on where an earlier one stopped."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
import torch
from qwen3_tts_morph.morph.hearing import whisper
from qwen3_tts_morph.morph.speech.lines import LineReport, Spoken
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.file import save_voice
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.serve.commands import script
from qwen3_tts_morph.serve.commands.script import ScriptFolder

SCRIPT = """\
SERENA: Good morning.
[pause 0.5]
RYAN: It is five.
Nobody else was there.
[gain -6] RYAN: It is five.
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "scene.txt"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


def manifest(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))


def test_a_script_becomes_lines_a_track_and_subtitles(run, tiny, file, tmp_path) -> None:
    done = run("script", file, "--out", "out", "--gap", "0.25", *tiny)
    out = tmp_path / "out"
    assert done.code == 0 and done.lines == [str(out / f"scene.{end}") for end in ("wav", "srt", "vtt")], done.err
    told = [name for name in ("1. serena:", "2. ryan:", "3. NARRATOR:", "4. ryan:") if name in done.err]
    assert len(told) == 4, "the report is in the script's order, though long lines are spoken first"
    names = sorted(path.name for path in out.glob("0*.wav"))
    assert [name.split("_")[:2] for name in names] == [
        ["0001", "serena"],
        ["0002", "ryan"],
        ["0003", "NARRATOR"],
        ["0004", "ryan"],
    ]
    waves = [soundfile.read(out / name, dtype="int16")[0] for name in names]
    gap = np.zeros(6000, dtype=np.int16)
    whole = [waves[0], np.zeros(18000, dtype=np.int16), waves[1], gap, waves[2], gap, waves[3]]
    track, rate = soundfile.read(out / "scene.wav", dtype="int16")
    assert rate == 24000 and np.array_equal(track, np.concatenate(whole))
    assert "NARRATOR: Nobody else was there." in (out / "scene.srt").read_text("utf-8")
    assert (out / "scene.vtt").read_text("utf-8").startswith("WEBVTT\n\n00:00:00.")
    about = manifest(out)
    assert about["complete"] and about["source"] == "scene.txt" and len(about["lines"]) == 4
    assert sorted(path.name for path in out.iterdir()) == sorted(
        [*names, "lines", "manifest.json", "scene.wav", "scene.srt", "scene.vtt"]
    )


def interrupt_after(count: int, patch: pytest.MonkeyPatch) -> None:
    """Raise KeyboardInterrupt instead of saving another line than ``count``."""
    save, saved = ScriptFolder.save, []

    def interrupted(self: ScriptFolder, number: int, *more: object) -> None:
        if len(saved) == count:
            raise KeyboardInterrupt
        save(self, number, *more)
        saved.append(number)

    patch.setattr(ScriptFolder, "save", interrupted)


def test_an_interrupted_run_goes_on_where_it_stopped(run, tiny, file, tmp_path, monkeypatch, spoken) -> None:
    whole = run("script", file, "--out", "whole", "--batch-size", "1", *tiny)
    spoken.clear()
    with monkeypatch.context() as patch:
        interrupt_after(2, patch)
        done = run("script", file, "--batch-size", "1", *tiny)
    assert done.code == 130 and not done.out and "interrupted with 3 of 4 lines" in done.err
    assert not manifest(tmp_path / "scene")["complete"]
    spoken.clear()
    assert run("script", file, "--batch-size", "1", *tiny).code == whole.code == 0
    assert len(spoken) == 1, "the third had ended, and was found without a file"
    track = (tmp_path / "scene" / "scene.wav").read_bytes()
    assert track == (tmp_path / "whole" / "scene.wav").read_bytes()


def test_a_line_with_wrong_words_is_spoken_again_and_the_better_take_saved(
    run: Callable, tiny: list[str], tmp_path: Path, spoken: list[str], hears: Callable
) -> None:
    (tmp_path / "one.txt").write_text("RYAN: [speed 2] It is five.", encoding="utf-8")
    sizes = hears("it was", "it is five")
    done = run("script", "one.txt", "--check-words", "small", "--retakes", "2", *tiny)
    assert done.code == 0 and spoken == ["It is five."] * 2 and sizes == ["small"], done.err
    assert "'It is five.' is take 2" in done.err and "0 of 3 words wrong" in done.err
    [entry] = manifest(tmp_path / "one")["saved"].values()
    assert entry["report"]["heard"]["text"] == "it is five" and entry["report"]["heard"]["takes"] == 2
    [line] = (tmp_path / "one").glob("0001_*.wav")
    better = line.read_bytes()
    again = run("script", "one.txt", "--check-words", "small", "--retakes", "2", *tiny)
    assert again.code == 0 and len(spoken) == 2 and line.read_bytes() == better, "words are kept too"
    hears("it was")
    none = run("script", "one.txt", "--again", "--check-words", "--most-errors", "70", *tiny)
    assert none.code == 0 and len(spoken) == 3 and "2 of 3 words wrong" in none.err


@pytest.mark.parametrize("words", [("script", "one.txt"), ("dub", "film.srt"), ("Yes.",)])
def test_a_recogniser_that_is_not_there_is_one_sentence_before_the_model_is_loaded(
    run: Callable, tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(Synthesizer, "load", lambda *_, **__: pytest.fail("the model was loaded"))
    monkeypatch.setattr(whisper, "check_installed", lambda: None)
    (tmp_path / "one.txt").write_text("RYAN: Yes.", encoding="utf-8")
    (tmp_path / "film.srt").write_text("1\n00:00:00,000 --> 00:00:02,000\nRYAN: Yes.\n", encoding="utf-8")

    def unreachable(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setitem(sys.modules, "faster_whisper.utils", SimpleNamespace(download_model=unreachable))
    done = run(*words, "--check-words", *tiny)
    assert done.code == 2 and "Traceback" not in done.err
    assert "the recogniser base is not on this machine and cannot be downloaded (no network): connect" in done.err


def test_a_saved_line_does_not_keep_its_sound_in_memory(tmp_path: Path) -> None:
    folder = ScriptFolder(SimpleNamespace(out=tmp_path, format="wav", again=False), None, {})
    report = LineReport("RYAN", "Yes.", 1, 0.1, "eos", 1)
    folder.save(1, "a" * 64, Spoken(np.full(2400, 0.25, np.float32), 24000, report))
    assert folder.lines[1][1].waveform.base is None and len(folder.read(1).waveform) == 2400


def test_an_edited_script_speaks_only_what_is_new(run, tiny, file, tmp_path, spoken) -> None:
    assert run("script", file, *tiny).code == 0
    spoken.clear()
    file.write_text("ERIC: A new first line.\n" + SCRIPT.replace("five.\nNobody", "six.\nNobody"), encoding="utf-8")
    assert run("script", file, *tiny).code == 0
    assert sorted(spoken) == ["A new first line.", "It is six."], "the second five is the first one, louder"
    numbered = [manifest(tmp_path / "scene")["saved"][key]["file"][:4] for key in manifest(tmp_path / "scene")["lines"]]
    assert numbered == ["0001", "0002", "0003", "0004", "0005"]


def test_each_sentence_has_a_subtitle_on_request_also_from_saved_lines(run, tiny, tmp_path, spoken) -> None:
    text = "RYAN: This is the first. [pause 0.5] This is the second."
    (tmp_path / "one.txt").write_text(text, encoding="utf-8")
    counts = []
    for more in ([], ["--sentence-subtitles"], ["--sentence-subtitles"]):
        assert run("script", "one.txt", *tiny, *more).code == 0
        counts.append((tmp_path / "one" / "one.srt").read_text(encoding="utf-8").count("-->"))
        [line] = (tmp_path / "one").glob("0001_*.wav")
        if len(counts) == 2:
            soundfile.write(line, np.full(2400, 0.25), 24000)  # edited: where its pieces are is not known
    assert counts == [1, 2, 1] and len(spoken) == 1


def test_a_line_edited_by_hand_stays_and_is_in_the_track(run, tiny, tmp_path, spoken) -> None:
    (tmp_path / "one.txt").write_text("RYAN: Yes.", encoding="utf-8")
    assert run("script", "one.txt", *tiny).code == 0
    [line] = (tmp_path / "one").glob("0001_*.wav")
    soundfile.write(line, np.full(2400, 0.25), 24000)
    assert run("script", "one.txt", *tiny).code == 0 and len(spoken) == 1
    track, _ = soundfile.read(tmp_path / "one" / "one.wav")
    assert np.allclose(track, 0.25, atol=1e-4) and len(track) == 2400
    soundfile.write(line, np.full(2400, 0.25), 48000)
    wrong = run("script", "one.txt", *tiny)
    assert wrong.code == 2 and "has 48000 Hz and the track 24000" in wrong.err
    for damage in (line.unlink, lambda: line.write_bytes(b"RIFF")):
        damage()
        assert run("script", "one.txt", *tiny).code == 0 and len(spoken) == 1
        assert soundfile.info(line).frames != 2400, "it is written again as it was spoken"


def test_speed_and_level_of_a_line_speak_nothing(run, tiny, tmp_path, spoken) -> None:
    for text in ("RYAN: Yes.", "RYAN: [gain -6] Yes."):
        (tmp_path / "one.txt").write_text(text, encoding="utf-8")
        assert run("script", "one.txt", *tiny).code == 0
    loud, quiet = sorted((tmp_path / "one").glob("0001_*.wav"), key=lambda one: -level(one))
    assert len(spoken) == 1 and level(quiet) == pytest.approx(level(loud) / 2, rel=0.05)


def level(path: Path) -> float:
    return float(np.abs(soundfile.read(path)[0]).max())


def test_a_list_of_lines_is_spoken(run: Callable, tiny: list[str], tmp_path: Path) -> None:
    rows = [
        {"text": "Good morning."},
        {"text": "Good evening.", "name": "Bob", "voice": "ryan", "pause": 0.5, "seed": 7, "language": "german"},
    ]  # fmt: skip
    (tmp_path / "list.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n", encoding="utf-8")
    done = run("script", "list.jsonl", "--format", "mp3", *tiny)
    assert done.code == 0, done.err
    names = sorted(path.name for path in (tmp_path / "list").iterdir())
    assert [name.split("_")[1] for name in names if name.endswith(".flac")] == ["line", "Bob"]
    assert {"list.mp3", "list.srt", "list.vtt"} <= set(names)
    srt = (tmp_path / "list" / "list.srt").read_text("utf-8").splitlines()
    assert srt[2] == "Good morning." and srt[6] == "Bob: Good evening."


def test_the_cast_has_files_saved_voices_and_speakers(run, checkpoints, tmp_path) -> None:
    embedding = torch.arange(64, dtype=torch.float32) / 64
    save_voice(Voice("x_vector", "0b6", "x", embedding), tmp_path / "file.safetensors")
    library = tmp_path / "home" / ".qwen3-tts-morph" / "qwen3-tts-voices"
    save_voice(Voice("x_vector", "0b6", "x", embedding.flip(0)), library / "Carl.safetensors")
    model = ["--checkpoint", checkpoints("base"), "--max-seconds", "0.3", "--retries", "0"]
    (tmp_path / "a.txt").write_text("ANNA: Yes.\nCARL: No.\nTold.", encoding="utf-8")
    cast = ["--cast", "Anna=file.safetensors", "--voice", "Carl"]
    done = run("script", "a.txt", *cast, *model)
    assert done.code == 0, done.err
    missing = run("script", "a.txt", "--cast", "Anna=nobody", *model)
    assert missing.code == 2 and "line 3: 'Told.' names no character" in missing.err
    unknown = run("script", "a.txt", "--cast", "Anna=nobody", "--voice", "Carl", *model)
    assert unknown.code == 2 and "voice 'nobody' is not in" in unknown.err
    twice = run("script", "a.txt", "--cast", "Anna=Carl", "--cast", "ANNA=Carl", *model)
    assert twice.code == 2 and "--cast has 'ANNA' twice" in twice.err


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.txt", "", "script is empty"),
        ("a.txt", "NOBODY: Hello.", "'NOBODY' is not in the cast"),
        ("a.txt", "RYAN: [pause 99999] x", "is not a pause"),
        ("a.jsonl", "", "there is no line to speak"),
        ("a.jsonl", "{", "line 1: it is not JSON"),
        ("a.jsonl", "[]", "line 1: it has no text"),
        ("a.jsonl", '{"text": "a", "sed": 1}', "line 1: 'sed' is not a key"),
        ("a.jsonl", '{"text": "a", "seed": 1.5}', "seed is 1.5: choose a whole number"),
        ("a.jsonl", '{"text": "a", "gain": true}', "gain is True: choose -40 to 20"),
        ("a.jsonl", '{"text": "a", "voice": "x"}', "voice 'x' is not in the cast"),
        (
            "a.jsonl",
            '{"text": "a", "name": "B", "voice": "ryan"}\n{"text": "a", "name": "B", "voice": "eric"}',
            "line 2: 'B' speaks with 'eric' here and with 'ryan' above",
        ),
    ],
)
def test_what_cannot_be_read_is_one_sentence(run, tiny, tmp_path, name, text, sentence) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    done = run("script", name, *tiny)
    assert done.code == 2 and sentence in done.err and "Traceback" not in done.err and not done.out


@pytest.mark.parametrize(
    ("name", "text", "words", "sentence"),
    [
        ("a.txt", "[lang klingon] RYAN: Yes.", (), "klingon"),
        (
            "a.jsonl",
            '{"text": "Yes.", "language": "klingon"}',
            (),
            "language 'klingon' is unknown to the checkpoint (line 1)",
        ),
        (
            "a.txt",
            "RYAN: Yes.",
            ("--language", "klingon"),
            "language 'klingon' is unknown to tiny-custom_voice",
        ),
        ("a.txt", "NOBODY: Yes.", (), "line 1: 'NOBODY' is not in the cast"),
        ("a.jsonl", '{"text": "Yes.", "voice": "nobody"}', (), "voice 'nobody' is not in the cast"),
        ("a.txt", "Yes.", ("--speaker", "nobody"), "speaker 'nobody' is unknown to tiny-custom_voice"),
        ("a.txt", "A: Yes.", ("--cast", "A=nobody"), "voice 'nobody' is not in the library"),
    ],
)
def test_languages_and_names_are_checked_before_the_model_is_loaded(
    run: Callable,
    tiny: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    text: str,
    words: tuple[str, ...],
    sentence: str,
) -> None:
    monkeypatch.setattr(Synthesizer, "load", lambda *_, **__: pytest.fail("the model was loaded"))
    (tmp_path / name).write_text(text, encoding="utf-8")
    done = run("script", name, *words, *tiny)
    assert done.code == 2 and sentence in done.err


def test_a_folder_with_another_manifest_is_left_alone(run, tiny, file, tmp_path) -> None:
    (tmp_path / "scene").mkdir()
    (tmp_path / "scene" / "manifest.json").write_text("{}", encoding="utf-8")
    done = run("script", file, *tiny)
    assert done.code == 2 and "is not a manifest of this program" in done.err
    assert (tmp_path / "scene" / "manifest.json").read_text("utf-8") == "{}"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["scene.vtt", "--out", "."], "scene.vtt"),
        (["manifest.json", "--out", "."], "manifest.json"),
        (["scene.txt", "--out", ".", "--reference", "scene.wav"], "scene.wav"),
        (["scene.txt", "--out", ".", "--format", "flac", "--reference", "scene.flac"], "scene.flac"),
    ],
)
def test_what_is_read_is_not_overwritten(run, tmp_path, monkeypatch, words, name) -> None:
    monkeypatch.setattr(Synthesizer, "load", lambda *_, **__: pytest.fail("the model was loaded"))
    for one in ("scene.txt", name):
        (tmp_path / one).write_text("RYAN: Yes.", encoding="utf-8")
    done = run("script", *words)
    assert done.code == 2 and f"{name} is read and would be overwritten: choose another" in done.err
    assert (tmp_path / name).read_text(encoding="utf-8") == "RYAN: Yes."


def test_lines_of_another_version_are_spoken_again_and_that_is_said(run, tiny, file, tmp_path) -> None:
    path = tmp_path / "scene" / "manifest.json"
    path.parent.mkdir()
    about = {"format": script.FORMAT, "version": 2, "saved": {"key": {"file": "0001_ryan_aaaaaaaa.wav"}}}
    path.write_text(json.dumps(about), encoding="utf-8")
    done = run("script", file, *tiny)
    assert done.code == 0 and "an earlier version of the program spoke these lines" in done.err
    assert manifest(path.parent)["complete"] and "key" not in manifest(path.parent)["saved"]


@pytest.mark.parametrize(("free", "reason"), [(1000, "the disk is full"), (10**9, "System error.")])
def test_a_track_for_which_there_is_no_room_says_so(tmp_path, monkeypatch, free, reason) -> None:
    monkeypatch.setattr(script.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    with pytest.raises(ValueError) as told, script.open_track(tmp_path / "a.flac", 24000):
        raise soundfile.LibsndfileError(2)
    assert f"a.flac cannot be written ({reason}): choose another folder" in str(told.value)
    assert list(tmp_path.iterdir()) == []
