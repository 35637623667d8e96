"""Files of speech without ComfyUI: what they hold, what they say of their speech, and what is refused."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.render.lines import Line, LineReport, Spoken
from qwen3_tts_morph.morph.render.seeds import take_seed
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.postprocess.pcm import to_s16

from tests.nodes.package import load

audio_io, facts, recordings, sound_files = (
    load(name) for name in ("audio_io", "facts", "recordings", "sound_files")
)

RATE = 24000
WAVE = (0.3 * np.sin(np.arange(RATE) / 20)).astype(np.float32)
ODD = 'Größe "你好"\nनमस्ते \\ {x}'
ANNA = facts.Facts(ODD, "Anna K.", 2**64 - 1, 5, "ANNA", {"language": "auto", "sampling": None})
BEN = facts.Facts("Hello there.", "Ben", 7, 15, "BEN")


@pytest.mark.parametrize("kind", list(sound_files.FORMATS))
@pytest.mark.parametrize("channels", [1, 2])
def test_a_file_holds_the_sound_and_says_what_it_was_made_from(
    tmp_path: Path, kind: str, channels: int
) -> None:
    one = recordings.Recording(np.tile(WAVE, (channels, 1)), RATE, (ANNA, BEN), 1)
    path = tmp_path / f"a.{kind}"
    path.write_bytes(sound_files.encode(one.waveform, RATE, kind, 96, one.tags()))
    samples, rate = soundfile.read(path, always_2d=True)
    assert (rate, samples.shape) == (RATE, (RATE, channels))
    if sound_files.FORMATS[kind].lossy:
        assert np.abs(samples[:, 0] - WAVE).mean() < 0.02
    else:
        exact, _ = soundfile.read(path, dtype="int16", always_2d=True)
        assert all(np.array_equal(exact[:, n], to_s16(WAVE)) for n in range(channels))
    assert facts.from_json(sound_files.read_comment(path)) == (ANNA, BEN)


def test_a_higher_bit_rate_makes_a_larger_file() -> None:
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, (1, RATE)).astype(np.float32)
    for kind in ("mp3", "opus"):
        sizes = [len(sound_files.encode(noise, RATE, kind, rate, {})) for rate in (32, 64, 128)]
        assert sizes == sorted(set(sizes))


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("kind", ["mp3", "opus"])
def test_the_highest_bit_rate_is_what_the_encoder_takes(kind: str, channels: int) -> None:
    assert len(sound_files.encode(np.tile(WAVE, (channels, 1)), RATE, kind, 320, {})) > 5000


def test_a_file_whose_tags_are_not_utf_8_says_nothing(tmp_path: Path) -> None:
    """Windows programs write their own encoding."""
    path = tmp_path / "a.wav"
    tagged = sound_files.encode(WAVE[None], RATE, "wav", 96, {"artist": "Mxller", "comment": "hers"})
    path.write_bytes(tagged.replace(b"Mxller", b"M\xfcller"))
    assert sound_files.read_comment(path) == "hers"


@pytest.mark.parametrize(
    ("shape", "rate", "kind", "reason"),
    [
        ((6, 100), RATE, "flac", "audio has 6 channels: mix it to mono or stereo first"),
        ((1, 100), 44100, "opus", "audio has 44100 samples per second, and opus holds 8000, 12000"),
        ((1, 100), 96000, "mp3", "audio has 96000 samples per second, and mp3 holds 8000, 11025"),
    ],
)
def test_sound_that_a_format_cannot_hold_is_refused(
    shape: tuple[int, int], rate: int, kind: str, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        sound_files.encode(np.zeros(shape, dtype=np.float32), rate, kind, 96, {})


@pytest.mark.parametrize(("name", "data"), [("a.wav", b"junk"), ("b.mp3", b""), ("c.opus", b"OggS" * 9)])
def test_a_damaged_file_gets_one_sentence(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=rf"{name} cannot be read as \w+: choose another file"):
        sound_files.read_comment(tmp_path / name)


def test_a_playlist_is_not_opened_whatever_its_name(tmp_path: Path) -> None:
    """FFmpeg would follow what a playlist or a list of files names."""
    (tmp_path / "other.wav").write_bytes(sound_files.encode(WAVE[None], RATE, "wav", 96, {"comment": "x"}))
    for name, text in (
        ("a.wav", "ffconcat version 1.0\nfile other.wav\n"),
        ("b.mp3", "#EXTM3U\nother.wav\n"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match="cannot be read as"):
            sound_files.read_comment(tmp_path / name)
    (tmp_path / "list.m3u8").write_text("#EXTM3U\nother.wav\n")
    with pytest.raises(ValueError, match=r"list.m3u8 is not one of .flac, .wav"):
        sound_files.read_comment(tmp_path / "list.m3u8")


GOOD = asdict(BEN)


@pytest.mark.parametrize("comment", ["", "a comment", "[1]", '"x"', '{"other": 1}', "[" * 100_000])
def test_a_foreign_comment_says_nothing(comment: str) -> None:
    assert facts.from_json(comment) == ()


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], "it has no lines"),
        ("x", "it has no lines"),
        ([{}], "a line does not have exactly name, seed, seq_groups"),
        ([GOOD | {"seed": -1}], "seed is not a whole number"),
        ([GOOD | {"seed": 2**64}], "seed is not a whole number"),
        ([GOOD | {"seed": True}], "seed is not a whole number"),
        ([GOOD | {"seq_groups": 16}], "seq_groups is not a whole number from 1 to 15"),
        ([GOOD | {"text": None}], "text is not text"),
        ([GOOD | {"settings": []}], "settings is not an object"),
        ([GOOD | {"more": 1}], "a line does not have exactly"),
    ],
)
def test_a_forged_comment_is_refused(lines: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        facts.from_json(json.dumps({facts.FILE_KEY: lines}))


def test_a_lines_facts_name_all_that_it_was_spoken_with() -> None:
    voice = Voice("preset", "0b6", "Ryan", speaker="ryan")
    line = Line("Hello.", voice, "english", 7, "softly", "ANNA")
    spoken = Spoken(WAVE, RATE, LineReport("ANNA", "Hello.", 12, 1.0, "eos", 1), engine="engine: eager")
    options = GenerateOptions(seq_groups=3, sampling=Sampling(max_seconds=2.0), retries=0)
    known = facts.facts_of_line(line, spoken, options, "demo")
    assert (known.text, known.voice, known.seed, known.seq_groups, known.name) == (
        "Hello.", "Ryan", 7, 3, "ANNA",
    )  # fmt: skip
    assert known.settings["language"] == "english" and known.settings["instruct"] == "softly"
    assert known.settings["checkpoint"] == "demo" and known.settings["engine"] == "engine: eager"
    assert known.settings["sampling"]["max_seconds"] == 2.0 and known.settings["retries"] == 0
    assert known.settings["pack"].count(".") == 2
    [read] = facts.from_json(facts.to_json([known]))
    assert read == known


def test_a_take_that_a_word_check_kept_has_its_own_seed() -> None:
    line = Line("Hello.", Voice("preset", "0b6", "Ryan", speaker="ryan"), seed=7)
    spoken = Spoken(WAVE, RATE, LineReport("", "Hello.", 12, 1.0, "eos", 1), take=2)
    assert facts.facts_of_line(line, spoken, GenerateOptions(), "demo").seed == take_seed(7, 2)


def test_voices_of_one_name_are_told_apart() -> None:
    voice = Voice("x_vector", "0b6", "Anna", speaker_embedding=torch.arange(4.0))
    other = replace(voice, speaker_embedding=torch.arange(4.0) + 1)
    spoken = Spoken(WAVE, RATE, LineReport("", "Hello.", 12, 1.0, "eos", 1))
    ids = [
        facts.facts_of_line(Line("Hello.", one), spoken, GenerateOptions(), "demo").settings["voice_id"]
        for one in (voice, replace(voice, name="Renamed"), other)
    ]
    assert ids[0] == ids[1] != ids[2] and len(ids[0]) == 16


def test_facts_travel_with_the_pack_s_audio_only() -> None:
    audio = audio_io.to_audio(WAVE, RATE, [ANNA])
    assert facts.facts_of(audio) == (ANNA,)
    assert facts.facts_of(audio_io.to_audio(WAVE, RATE)) == ()
    assert facts.facts_of({**audio, facts.KEY: ["forged"]}) == ()


def test_lines_are_named_by_number_character_and_words_and_a_track_is_called_track() -> None:
    lines = recordings.recordings_of(
        [audio_io.to_audio(WAVE, RATE, [one]) for one in (BEN, replace(BEN, name="", text="../up"))]
    )
    assert [one.file_name("mp3") for one in lines] == ["001_BEN_Hello-there.mp3", "002_up.mp3"]
    [track] = recordings.recordings_of([audio_io.to_audio(WAVE, RATE, [ANNA, BEN])], is_track=True)
    assert track.file_name("wav") == "track.wav" and track.tags()["artist"] == "ANNA, BEN"
    batch = {"waveform": torch.zeros(2, 1, 5), "sample_rate": RATE, facts.KEY: (ANNA,)}
    assert [(one.number, one.facts) for one in recordings.recordings_of([batch])] == [(1, ()), (2, ())]
    with pytest.raises(ValueError, match="track is 2 recordings: connect the audio output"):
        recordings.recordings_of([batch], is_track=True)


def test_runs_are_numbered_and_nothing_is_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "speech"
    first = recordings.write_run(folder, {"001_a.wav": b"1", "track.wav": b"2"})
    assert [path.name for path in first] == ["00001_001_a.wav", "00001_track.wav"]
    (folder / "00041_x.txt").write_text("mine")
    second = recordings.write_run(folder, {"001_a.wav": b"3"})
    assert [path.name for path in second] == ["00042_001_a.wav"] and first[0].read_bytes() == b"1"


def test_a_run_that_cannot_be_written_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        recordings.write_run(tmp_path, {"001_a.wav": b"1", "x" * 300 + ".wav": b"2"})
    assert list(tmp_path.iterdir()) == []
