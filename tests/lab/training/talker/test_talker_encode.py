"""Encoding corpus shards to code shards, compared with upstream's own encoding of the same line."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lab.random_checkpoint import write_checkpoint
from lab.training.corpus.bundle import read_bundle, unpack_bundle, write_bundle
from lab.training.corpus.plan import Line
from lab.training.corpus.shards import Corpus, Utterance, write_shard
from lab.training.corpus.voices import Voice, mean_styles
from lab.training.talker.codes import ROUGH, UNKNOWN_PHONE, Codes, load_codes, unpack_mel
from lab.training.talker.encode import (
    EncodeOptions,
    Pieces,
    Take,
    clean_audio,
    encode,
    load_codec,
    phone_labels,
)
from lab.training.talker.pitch import WEIGHT, voice_pitches, with_pitch
from lab.training.talker.rough import RoughOptions, roughen
from lab.training.talker.speaker import speaker_mels

pytestmark = pytest.mark.slow  # this training is finished: --all runs it

ROOT = Path(__file__).resolve().parents[4]
LEAD = 3840  # two frames


def spoken(number: int, samples: int) -> Utterance:
    audio = np.random.default_rng(number).normal(0, 3000, samples).astype(np.int16)
    durations = np.array([600, samples // 2, samples - samples // 2 - 1200, 600], np.int32)
    return Utterance(f"Line {number}.", "ab", f"voice_{number % 2}", audio, durations)


LINES = [spoken(number, samples) for number, samples in enumerate((9600, 25000, 14401))]


@pytest.fixture(scope="module")
def codec_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("random")) / "speech_tokenizer"


@pytest.fixture(scope="module")
def codes(codec_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Codes:
    root = tmp_path_factory.mktemp("corpus")
    write_shard(root / "train-00-000.safetensors", LINES[:2], 24000)
    write_shard(root / "dev-00-000.safetensors", LINES[2:], 24000)
    encode(EncodeOptions(root, codec_folder, root / "codes", device="cpu"))
    with pytest.raises(ValueError, match="already"):
        encode(EncodeOptions(root, codec_folder, root / "codes", device="cpu"))
    return load_codes(root / "codes")


def row_of(codes: Codes, line: Utterance) -> int:
    return codes.texts.index(line.text)


def test_lines_keep_their_text_voice_and_split(codes: Codes) -> None:
    for line, split in zip(LINES, ("train", "train", "dev"), strict=True):
        row = row_of(codes, line)
        assert codes.names[codes.speakers[row]] == line.speaker
        assert codes.splits[row] == split
        assert codes.frames()[row] == -(-(len(line.audio) + LEAD) // 1920)


def test_codes_in_a_padded_batch_equal_those_of_the_line_alone(codes: Codes, codec_folder: Path) -> None:
    codec = load_codec(codec_folder, torch.device("cpu"))
    for line in LINES:
        audio = torch.from_numpy(line.audio.astype(np.float32) / 32768)
        alone = torch.nn.functional.pad(audio, (LEAD, 0))[None]
        with torch.inference_mode():
            expected = codec.encode(alone, torch.ones_like(alone).long(), return_dict=True).audio_codes[0]
        found = codes.utterance_codes(row_of(codes, line))
        # The last frame contains padding, which upstream's convolutions add differently.
        assert found[:-1].tolist() == expected[:-1].tolist()


def test_later_takes_have_different_codes_and_no_mels(codec_folder: Path, tmp_path: Path) -> None:
    write_shard(tmp_path / "train-00-000.safetensors", LINES[:2], 24000)
    write_shard(tmp_path / "dev-00-000.safetensors", LINES[2:], 24000)
    encode(EncodeOptions(tmp_path, codec_folder, tmp_path / "codes", takes=3, device="cpu"))
    codes = load_codes(tmp_path / "codes")
    assert sorted(codes.texts) == ["Line 0."] * 3 + ["Line 1."] * 3 + ["Line 2."]
    takes = [row for row, text in enumerate(codes.texts) if text == "Line 1."]
    heard = np.diff(codes.mel_starts) > 0
    assert heard[takes].tolist() == [True, False, False]
    first, second, third = (codes.utterance_codes(row)[5:10].tolist() for row in takes)
    assert first != second != third
    assert codes.utterance_phones(takes[1]).max() == 2  # the labels shift with the sound


def test_flawed_recordings_are_a_split_of_their_own_with_mels_and_without_phones(
    codec_folder: Path, tmp_path: Path
) -> None:
    write_shard(tmp_path / "train-00-000.safetensors", LINES[:2], 24000)
    write_shard(tmp_path / "dev-00-000.safetensors", LINES[2:], 24000)
    encode(EncodeOptions(tmp_path, codec_folder, tmp_path / "codes", device="cpu", rough=RoughOptions()))
    codes = load_codes(tmp_path / "codes")
    rough = codes.rows(ROUGH)
    assert sorted(codes.texts[row] for row in rough) == ["Line 0.", "Line 1."]
    assert codes.first_takes(ROUGH).tolist() == rough.tolist() and len(codes.rows("train")) == 2
    assert all((codes.utterance_phones(row) == UNKNOWN_PHONE).all() for row in rough)
    assert all(len(codes.utterance_codes(row)) >= 5 for row in rough)


@pytest.mark.skipif(os.name == "nt", reason="worker processes inherit the shards' open files")
def test_worker_processes_make_the_same_recordings(codec_folder: Path, tmp_path: Path) -> None:
    write_shard(tmp_path / "train-00-000.safetensors", LINES, 24000)
    found = []
    for workers in (0, 2):
        out = tmp_path / f"codes{workers}"
        options = EncodeOptions(tmp_path, codec_folder, out, ("train",), 2, device="cpu", workers=workers)
        encode(replace(options, rough=RoughOptions()))
        found.append(load_codes(out))
    assert torch.equal(found[0].codes, found[1].codes) and torch.equal(found[0].mels, found[1].mels)
    assert found[0].texts == found[1].texts and found[0].splits == found[1].splits

    def draw(line: Utterance, rng: np.random.Generator) -> Take:
        return Take(line, int(rng.integers(10**9)), clean_audio(line), "train")

    some, every = (Pieces(Corpus(tmp_path, "train"), rows, 7, draw)[0] for rows in (range(1, 3), range(3)))
    assert [take.lead for take in some] == [take.lead for take in every[1:]], (
        "whoever makes it draws the same"
    )


def test_the_voices_styles_are_recorded_from_the_bundle(codec_folder: Path, tmp_path: Path) -> None:
    write_shard(tmp_path / "train-00-000.safetensors", LINES, 24000)
    tables = {name: np.random.default_rng(index).normal(size=(3, 256)) for index, name in enumerate("ab")}
    cast = [Voice(f"voice_{index}", "original", {name: 1.0}) for index, name in enumerate("ab")]
    about = {"vocabulary": {}, "cast": [vars(voice) for voice in cast]}
    write_bundle(tmp_path / "b.tar.xz", {}, tables, [Line("Hi.", "hI.", "train", "everyday")], about)
    unpack_bundle(tmp_path / "b.tar.xz", tmp_path / "bundle")
    options = EncodeOptions(tmp_path, codec_folder, tmp_path / "codes", ("train",), device="cpu")
    encode(replace(options, bundle=tmp_path / "bundle"))
    codes = load_codes(tmp_path / "codes")
    wanted = mean_styles(cast, read_bundle(tmp_path / "bundle").styles)
    assert codes.names == ["voice_0", "voice_1"] and codes.styles.shape == (2, 257)
    assert all(
        np.array_equal(style[:-1], wanted[name])
        for name, style in zip(codes.names, codes.styles.numpy(), strict=True)
    )


def test_a_voices_pitch_is_heard_and_counts_as_much_as_many_numbers_of_its_style(tmp_path: Path) -> None:
    times = np.arange(24000) / 24000

    def line(name: str, hertz: float) -> Utterance:
        wave = sum(np.sin(2 * np.pi * hertz * number * times) / number for number in range(1, 9))
        audio = np.round(8000 * wave).astype(np.int16) if hertz else np.zeros(24000, np.int16)
        return Utterance("Ah.", "ab", name, audio, np.array([600, 11400, 11400, 600], np.int32))

    spoken = [line("low", 100), line("high", 200), line("low", 100), line("mute", 0), line("low", 300)]
    write_shard(tmp_path / "train-00-000.safetensors", spoken, 24000)
    pitches = voice_pitches([Corpus(tmp_path, "train")], torch.device("cpu"))
    assert pitches.keys() == {"low", "high"}, "nothing is voiced in the third"
    assert np.exp(pitches["low"]) == pytest.approx(100, rel=0.01), "by its first two lines"
    assert np.exp(pitches["high"]) == pytest.approx(200, rel=0.01)
    styles = {name: np.full(4, 0.5, np.float32) for name in ("low", "high", "mute")}
    found = with_pitch(styles, pitches)
    assert {name: style[:4].tolist() for name, style in found.items()} == dict.fromkeys(styles, [0.5] * 4)
    assert [float(found[name][4]) for name in styles] == pytest.approx([-WEIGHT, WEIGHT, 0.0], rel=1e-3)
    assert with_pitch(styles, {})["low"][4] == 0


def tone(seconds: float) -> np.ndarray:
    times = np.arange(round(24000 * seconds)) / 24000
    return (0.1 * (np.sin(2 * np.pi * 300 * times) + np.sin(2 * np.pi * 9000 * times))).astype(np.float32)


def band(audio: np.ndarray, low: float, high: float) -> float:
    """Energy between two frequencies."""
    power = np.abs(np.fft.rfft(audio)) ** 2
    at = np.fft.rfftfreq(len(audio), 1 / 24000)
    return float(power[(at >= low) & (at < high)].sum())


NO_FLAWS = RoughOptions(0.0, 0.0, 0.0, (10, 35), 0.0, (0.1, 0.4), 0.0, (3500, 8000), (1.0, 1.0))


def test_each_flaw_of_a_recording_is_heard() -> None:
    clean, rng = tone(1.0), np.random.default_rng(0)
    as_it_was = roughen(clean, rng, 24000, NO_FLAWS)
    assert np.allclose(as_it_was, clean[:-1], atol=1e-6)
    louder = roughen(clean, rng, 24000, replace(NO_FLAWS, gain_db=8.0))
    assert abs(20 * np.log10(louder.std() / clean.std())) <= 8.01 and louder.std() != clean.std()
    narrow = roughen(clean, rng, 24000, replace(NO_FLAWS, narrow=1.0))
    assert band(narrow, 8900, 9100) < 0.1 * band(clean, 8900, 9100)
    assert band(narrow, 200, 400) == pytest.approx(band(clean, 200, 400), rel=0.1)
    noisy = roughen(clean, rng, 24000, replace(NO_FLAWS, noisy=1.0, noise_db=(20.0, 20.0)))
    noise = noisy - clean[:-1]
    assert 20 * np.log10(clean.std() / noise.std()) == pytest.approx(20, abs=0.1)
    longer = roughen(clean, rng, 24000, replace(NO_FLAWS, silence_s=0.6))
    assert len(clean) < len(longer) <= len(clean) + 2 * 0.6 * 24000
    click = np.zeros(24000, np.float32)
    click[1000] = 0.5
    room = roughen(click, rng, 24000, replace(NO_FLAWS, echoing=1.0))
    assert np.abs(room[:1000]).max() < 1e-9 < band(room[1100:3000], 0, 12000), (
        "nothing before the click, and then an echo"
    )
    slower = roughen(clean, rng, 24000, replace(NO_FLAWS, speed=(0.92, 0.92)))
    assert len(slower) == pytest.approx(len(clean) / 0.92, abs=2)


def test_loud_recordings_stay_within_one_and_silence_is_finite() -> None:
    rng = np.random.default_rng(0)
    for audio in (9 * tone(0.5), np.zeros(12000, np.float32)):
        for _ in range(20):
            found = roughen(audio, rng, 24000, RoughOptions())
            assert found.dtype == np.float32 and np.isfinite(found).all() and np.abs(found).max() <= 1


def test_mels_exclude_the_leading_silence(codes: Codes) -> None:
    line = LINES[1]
    row = row_of(codes, line)
    mel = unpack_mel(codes.mels[codes.mel_starts[row] : codes.mel_starts[row + 1]])
    expected = speaker_mels(torch.from_numpy(line.audio.astype(np.float32) / 32768)[None])[0]
    # The last frames see the padding to the length of the batch's longest line.
    assert torch.allclose(mel[:-2], expected[: len(mel)][:-2], atol=0.04)


def test_phone_labels_follow_the_durations() -> None:
    audio = np.zeros(9600, np.int16)
    line = Utterance("Ab.", "ab", "voice", audio, np.array([960, 2880, 4800, 960], np.int32))
    labels = phone_labels(line, {"a": 1, "b": 2}, lead=1920, frames=7)
    # Samples 480 and 1440 of each frame; a lead of one frame, an edge of half a frame, then a, b, an edge.
    assert labels.tolist() == [[0, 0], [0, 1], [1, 1], [2, 2], [2, 2], [2, 0], [-1, -1]]


def test_two_processes_encode_the_same_as_one(codec_folder: Path, tmp_path: Path) -> None:
    write_shard(tmp_path / "train-00-000.safetensors", LINES[:2], 24000)
    write_shard(tmp_path / "dev-00-000.safetensors", LINES[2:], 24000)
    command = [sys.executable, "-m", "lab.training.talker.encode", "--device", "cpu", "--processes", "2"]
    folders = ("--corpus", tmp_path, "--codec", codec_folder, "--out", tmp_path / "both")
    ended = subprocess.run(
        [*command, *map(str, folders)], cwd=ROOT, capture_output=True, text=True, timeout=1200
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    encode(EncodeOptions(tmp_path, codec_folder, tmp_path / "one", device="cpu"))
    both, one = load_codes(tmp_path / "both"), load_codes(tmp_path / "one")
    assert sorted(both.texts) == sorted(one.texts)
    for row, text in enumerate(both.texts):
        same = one.texts.index(text)
        assert both.splits[row] == one.splits[same]
        assert both.utterance_codes(row)[:-1].tolist() == one.utterance_codes(same)[:-1].tolist()
        assert both.utterance_phones(row).tolist() == one.utterance_phones(same).tolist()
