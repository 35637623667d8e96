"""Files of speech without ComfyUI: what they hold, what they say of their speech, and what is refused."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from qwen3_tts_morph.morph.audio.formats import TAGGED, read_comment
from qwen3_tts_morph.morph.audio.writer import check_fits, encode_tagged
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line, LineReport, Spoken, take_seed
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.postprocess.convert import to_s16

from tests.nodes.package import load

values, recordings = load("sound.values"), load("saving.recordings")

RATE = 24000
WAVE = (0.3 * np.sin(np.arange(RATE) / 20)).astype(np.float32)
ODD = 'Größe "你好"\nनमस्ते \\ {x}'
ANNA = values.Facts(ODD, "Anna K.", 2**64 - 1, 5, "ANNA", {"language": "auto", "sampling": None})
BEN = values.Facts("Hello there.", "Ben", 7, 15, "BEN")


@pytest.mark.parametrize("kind", list(TAGGED))
@pytest.mark.parametrize("channels", [1, 2])
def test_a_file_holds_the_sound_and_says_what_it_was_made_from(tmp_path, kind, channels) -> None:
    one = recordings.RecordedFile(np.tile(WAVE, (channels, 1)), RATE, (ANNA, BEN), 1)
    path = tmp_path / f"a.{kind}"
    path.write_bytes(encode_tagged(one.waveform, RATE, kind, 96, one.tags()))
    samples, rate = soundfile.read(path, always_2d=True)
    assert (rate, samples.shape) == (RATE, (RATE, channels))
    if TAGGED[kind].lossy:
        assert np.abs(samples[:, 0] - WAVE).mean() < 0.02
    else:
        exact, _ = soundfile.read(path, dtype="int16", always_2d=True)
        assert all(np.array_equal(exact[:, n], to_s16(WAVE)) for n in range(channels))
    assert values.from_json(read_comment(path)) == (ANNA, BEN)


def test_a_higher_bit_rate_makes_a_larger_file() -> None:
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, (1, RATE)).astype(np.float32)
    for kind in ("mp3", "opus"):
        sizes = [len(encode_tagged(noise, RATE, kind, rate, {})) for rate in (32, 64, 128)]
        assert sizes == sorted(set(sizes))


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("kind", ["mp3", "opus"])
def test_the_highest_bit_rate_is_what_the_encoder_takes(kind: str, channels: int) -> None:
    assert len(encode_tagged(np.tile(WAVE, (channels, 1)), RATE, kind, 320, {})) > 5000


def test_a_file_whose_tags_are_not_utf_8_says_nothing(tmp_path: Path) -> None:
    """Windows programs write their own encoding."""
    path = tmp_path / "a.wav"
    tagged = encode_tagged(WAVE[None], RATE, "wav", 96, {"artist": "Mxller", "comment": "hers"})
    path.write_bytes(tagged.replace(b"Mxller", b"M\xfcller"))
    assert read_comment(path) == "hers"


@pytest.mark.parametrize(
    ("shape", "rate", "kind", "reason"),
    [
        ((6, 100), RATE, "flac", "audio has 6 channels: mix it to mono or stereo first"),
        ((1, 100), 44100, "opus", "audio has 44100 samples per second, and opus holds 8000, 12000"),
        ((1, 100), 96000, "mp3", "audio has 96000 samples per second, and mp3 holds 8000, 11025"),
    ],
)
def test_sound_that_a_format_cannot_hold_is_refused(shape, rate, kind, reason) -> None:
    with pytest.raises(ValueError, match=reason):
        encode_tagged(np.zeros(shape, dtype=np.float32), rate, kind, 96, {})


@pytest.mark.parametrize("sample", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", list(TAGGED))
def test_sound_that_is_no_sound_is_refused(kind: str, sample: float) -> None:
    """flac and wav would be silent there, mp3 and opus loud noise."""
    odd = WAVE[None].copy()
    odd[0, 100] = sample
    with pytest.raises(ValueError, match="audio contains NaN or infinity: render or record it again"):
        check_fits(odd, RATE, kind)


@pytest.mark.parametrize(("name", "data"), [("a.wav", b"junk"), ("b.mp3", b""), ("c.opus", b"OggS" * 9)])
def test_a_damaged_file_gets_one_sentence(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=rf"{name} cannot be read as \w+: choose another file"):
        read_comment(tmp_path / name)


def test_a_playlist_is_not_opened_whatever_its_name(tmp_path: Path) -> None:
    """FFmpeg would follow what a playlist or a list of files names."""
    (tmp_path / "other.wav").write_bytes(encode_tagged(WAVE[None], RATE, "wav", 96, {"comment": "x"}))
    for name, text in (
        ("a.wav", "ffconcat version 1.0\nfile other.wav\n"),
        ("b.mp3", "#EXTM3U\nother.wav\n"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match="cannot be read as"):
            read_comment(tmp_path / name)
    (tmp_path / "list.m3u8").write_text("#EXTM3U\nother.wav\n")
    with pytest.raises(ValueError, match=r"list.m3u8 is not one of .flac, .wav"):
        read_comment(tmp_path / "list.m3u8")


GOOD = asdict(BEN)


@pytest.mark.parametrize("comment", ["", "a comment", "[1]", '"x"', '{"other": 1}', "[" * 100_000])
def test_a_foreign_comment_says_nothing(comment: str) -> None:
    assert values.from_json(comment) == ()


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], "at least 1 item"),
        ("x", "a valid list"),
        ([{}], "0: text: Field required"),
        ([GOOD | {"seed": -1}], "seed: Input should be greater than or equal to 0"),
        ([GOOD | {"seed": 2**64}], "seed: Input should be less than or equal to"),
        ([GOOD | {"seed": True}], "seed: Input should be a valid integer"),
        ([GOOD | {"seq_groups": 16}], "seq_groups: Input should be less than or equal to 15"),
        ([GOOD | {"text": None}], "text: Input should be a valid string"),
        ([GOOD | {"settings": []}], "settings: Input should be a valid dictionary"),
        ([GOOD | {"more": 1}], "more: Unexpected keyword argument"),
    ],
)
def test_a_forged_comment_is_refused(lines: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        values.from_json(json.dumps({values.FILE_KEY: lines}))


def test_a_lines_facts_name_all_that_it_was_spoken_with() -> None:
    voice = Voice("preset", "0b6", "Ryan", speaker="ryan")
    line = Line("Hello.", voice, "english", 7, "softly", "ANNA")
    spoken = Spoken(WAVE, RATE, LineReport("ANNA", "Hello.", 12, 1.0, "eos", 1), engine="engine: eager")
    options = GenerateOptions(seq_groups=3, sampling=Sampling(max_seconds=2.0), retries=0)
    known = values.facts_of_line(line, spoken, options, "demo")
    assert (known.text, known.voice, known.seed, known.seq_groups, known.name) == (
        "Hello.", "Ryan", 7, 3, "ANNA",
    )  # fmt: skip
    assert known.settings["language"] == "english" and known.settings["instruct"] == "softly"
    assert known.settings["checkpoint"] == "demo" and known.settings["engine"] == "engine: eager"
    assert known.settings["sampling"]["max_seconds"] == 2.0 and known.settings["retries"] == 0
    assert known.settings["pack"].count(".") == 2
    [read] = values.from_json(values.to_json([known]))
    assert read == known


def test_a_take_that_a_word_check_kept_has_its_own_seed() -> None:
    line = Line("Hello.", Voice("preset", "0b6", "Ryan", speaker="ryan"), seed=7)
    spoken = Spoken(WAVE, RATE, LineReport("", "Hello.", 12, 1.0, "eos", 1), take=2)
    assert values.facts_of_line(line, spoken, GenerateOptions(), "demo").seed == take_seed(7, 2)


def test_voices_of_one_name_are_told_apart() -> None:
    voice = Voice("x_vector", "0b6", "Anna", speaker_embedding=torch.arange(4.0))
    other = replace(voice, speaker_embedding=torch.arange(4.0) + 1)
    spoken = Spoken(WAVE, RATE, LineReport("", "Hello.", 12, 1.0, "eos", 1))
    ids = [
        values.facts_of_line(Line("Hello.", one), spoken, GenerateOptions(), "demo").settings["voice_id"]
        for one in (voice, replace(voice, name="Renamed"), other)
    ]
    assert ids[0] == ids[1] != ids[2] and len(ids[0]) == 16


def test_facts_travel_with_the_pack_s_audio_only() -> None:
    audio = values.to_audio(WAVE, RATE, [ANNA])
    assert values.facts_of(audio) == (ANNA,)
    assert values.facts_of(values.to_audio(WAVE, RATE)) == ()
    assert values.facts_of({**audio, values.KEY: ["forged"]}) == ()


def test_lines_are_named_by_number_character_and_words_and_a_track_is_called_track() -> None:
    lines = recordings.recordings_of(
        [values.to_audio(WAVE, RATE, [one]) for one in (BEN, replace(BEN, name="", text="../up"))]
    )
    assert [one.file_name("mp3") for one in lines] == ["001_BEN_Hello-there.mp3", "002_up.mp3"]
    [track] = recordings.recordings_of([values.to_audio(WAVE, RATE, [ANNA, BEN])], is_track=True)
    assert track.file_name("wav") == "track.wav" and track.tags()["artist"] == "ANNA, BEN"
    batch = {"waveform": torch.zeros(2, 1, 5), "sample_rate": RATE, values.KEY: (ANNA,)}
    assert [(one.number, one.facts) for one in recordings.recordings_of([batch])] == [(1, ()), (2, ())]
    with pytest.raises(ValueError, match="track is 2 recordings: connect the audio output"):
        recordings.recordings_of([batch], is_track=True)


def test_runs_are_numbered_and_nothing_is_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "speech"
    first = recordings.write_run(folder, {"001_a.wav": b"1", "track.wav": b"2"}).paths
    assert [path.name for path in first] == ["00001_001_a.wav", "00001_track.wav"]
    (folder / "00041_x.txt").write_text("mine")
    second = recordings.write_run(folder, {"001_a.wav": b"3"}).paths
    assert [path.name for path in second] == ["00042_001_a.wav"] and first[0].read_bytes() == b"1"


def test_a_run_that_cannot_be_written_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        recordings.write_run(tmp_path, {"001_a.wav": b"1", "x" * 300 + ".wav": b"2"})
    assert list(tmp_path.iterdir()) == []


def encoded(lines: list[Any], kind: str, workflow: str, wave: np.ndarray = WAVE) -> dict[str, bytes]:
    """Return the files of a run by their names, with a workflow inside if there is one."""
    made = recordings.recordings_of([values.to_audio(wave, RATE, [line]) for line in lines])
    more = {"workflow": workflow} if workflow else {}
    return {one.file_name(kind): encode_tagged(one.waveform, RATE, kind, 96, {**more, **one.tags()}) for one in made}


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_ino, path.read_bytes()) for path in folder.iterdir()}


@pytest.mark.parametrize("kind", list(TAGGED))
def test_only_files_of_changed_lines_are_written_again(tmp_path: Path, kind: str) -> None:
    """The workflow changes with any line: it is in every file."""
    folder = tmp_path / "scene"
    lines = [replace(BEN, text=f"Line {number}.") for number in (1, 2, 3)]
    first = recordings.replace_run(folder, encoded(lines, kind, "one"))
    assert (first.unchanged, first.older) == (0, ()) and first.summary == "wrote 3 of 3 files in output/scene"
    assert [path.name for path in first.paths] == [f"00{n}_BEN_Line-{n}.{kind}" for n in (1, 2, 3)]
    before = state(folder)
    changed = [lines[0], replace(lines[1], seed=8), lines[2]]
    second = recordings.replace_run(folder, encoded(changed, kind, "two"))
    assert second.unchanged == 2 and second.summary == "wrote 1 of 3 files in output/scene, 2 unchanged"
    assert [name for name, one in state(folder).items() if one != before[name]] == [f"002_BEN_Line-2.{kind}"]
    assert values.from_json(read_comment(second.paths[1]))[0].seed == 8
    again = recordings.replace_run(folder, encoded(changed, kind, "three"))
    assert again.unchanged == 3 and again.paths == second.paths


@pytest.mark.parametrize("kind", list(TAGGED))
def test_other_sound_other_facts_and_a_workflow_less_are_not_the_same(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    data = encoded([BEN], kind, "one")[f"001_BEN_Hello-there.{kind}"]
    path.write_bytes(data)
    others = {
        "nothing": ([BEN], "one", WAVE, True),
        "workflow": ([BEN], "two", WAVE, True),
        "sound": ([BEN], "one", 0.9 * WAVE, False),
        "length": ([BEN], "one", WAVE[:-100], False),
        "seed": ([replace(BEN, seed=8)], "one", WAVE, False),
        "no workflow": ([BEN], "", WAVE, kind == "wav"),  # wav holds none
    }
    for name, (lines, workflow, wave, same) in others.items():
        [other] = encoded(lines, kind, workflow, wave).values()
        assert recordings.is_same(path, other) == same, name
    for junk in (b"", b"junk", data[:100]):
        path.write_bytes(junk)
        assert not recordings.is_same(path, data)
    assert not recordings.is_same(tmp_path / f"missing.{kind}", data)


def test_an_older_text_of_the_same_number_is_named_and_stays(tmp_path: Path) -> None:
    folder = tmp_path / "scene"
    recordings.write_run(folder, encoded([BEN, ANNA], "wav", ""))
    recordings.replace_run(folder, encoded([BEN, BEN], "wav", "") | {"track.wav": b"old"})
    for name in ("001_notes.txt", "track_mine.wav", "009_x.wav"):
        (folder / name).write_text("mine")
    before = state(folder)
    run = recordings.replace_run(folder, encoded([replace(BEN, text="New words."), BEN], "wav", ""))
    assert run.older == ("001_BEN_Hello-there.wav",) and run.unchanged == 1
    assert run.summary.splitlines() == [
        "wrote 1 of 2 files in output/scene, 1 unchanged, 1 with earlier words left",
        "left from an earlier run, with the same number but other words: 001_BEN_Hello-there.wav",
    ]
    after = state(folder)
    assert {name: after.pop(name) for name in before} == before and list(after) == ["001_BEN_New-words.wav"]
    many = recordings.Run(run.paths, 1, tuple(f"{n:03}_x.wav" for n in range(12)))
    assert many.summary.endswith("009_x.wav and 2 more")


def test_files_that_cannot_all_be_written_change_none(tmp_path, monkeypatch) -> None:
    recordings.replace_run(tmp_path, {"001_a.wav": b"1", "002_b.wav": b"2"})
    write, seen = recordings.write_new, []

    def fill_the_disk(path: Path, data: bytes) -> None:
        seen.append(path)
        if len(seen) == 2:
            raise OSError(28, "No space left on device")
        write(path, data)

    monkeypatch.setattr(recordings, "write_new", fill_the_disk)
    with pytest.raises(OSError, match="No space left"):
        recordings.replace_run(tmp_path, {"001_a.wav": b"3", "002_b.wav": b"4"})
    assert {name: data for name, (_, data) in state(tmp_path).items()} == {
        "001_a.wav": b"1",
        "002_b.wav": b"2",
    }


def test_a_folder_or_a_link_is_not_written_over(tmp_path: Path) -> None:
    folder, other = tmp_path / "scene", tmp_path / "mine.wav"
    (folder / "001_a.wav").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"001_a.wav is a folder in scene: rename it"):
        recordings.replace_run(folder, {"000_x.wav": b"1", "001_a.wav": b"1"})
    other.write_bytes(b"mine")
    (folder / "002_b.wav").symlink_to(other)
    with pytest.raises(ValueError, match="outside the folder"):
        recordings.replace_run(folder, {"000_x.wav": b"1", "002_b.wav": b"1"})
    assert other.read_bytes() == b"mine" and not (folder / "000_x.wav").exists()


def test_the_track_is_told_from_the_lines(tmp_path: Path) -> None:
    lines = recordings.recordings_of([values.to_audio(WAVE, RATE, [one]) for one in (ANNA, BEN)])
    track = recordings.recordings_of([values.to_audio(WAVE, RATE, [ANNA, BEN])], is_track=True)
    run = recordings.write_run(tmp_path / "x", {one.file_name("wav"): b"1" for one in lines + track})
    shown = recordings.listed(lines + track, run)
    assert [one["track"] for one in shown["morph_clips"]] == [False, False, True]
    assert [one["version"] for one in shown["morph_clips"]] == [str(path.stat().st_mtime_ns) for path in run.paths]
    assert shown["text"] == ("saved 3 files in output/x",)
