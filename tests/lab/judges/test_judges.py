"""The judges' arithmetic: error counts, interval coverage, and strict reading of texts files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lab.judges.asr import compare, edit_distance
from lab.judges.clips import Clip, load_clip, read_texts
from lab.judges.speaker import cosine, identify, profile
from lab.judges.stats import mean, ratio, share


@pytest.mark.parametrize(
    ("wanted", "given", "edits"),
    [
        ("", "", 0),
        ("abc", "", 3),
        ("", "ab", 2),
        ("kitten", "sitting", 3),
        ("flaw", "lawn", 2),
        ("ab", "ba", 2),
    ],
)
def test_edit_distance(wanted: str, given: str, edits: int) -> None:
    assert edit_distance(wanted, given) == edits
    assert edit_distance(given, wanted) == edits


def test_words_and_letters_are_counted_separately() -> None:
    heard = compare("the birch canoe slid", "the birch can you slid")
    assert (heard.word_errors, heard.words) == (2, 4)
    assert (heard.letter_errors, heard.letters) == (edit_distance("canoe", "canyou"), 17)
    assert compare("yes", "").word_errors == 1
    with pytest.raises(ValueError, match="without words"):
        compare("", "yes")


def test_an_error_rate_weights_lines_by_their_words() -> None:
    figure = ratio([1, 0], [1, 9])
    assert figure.value == pytest.approx(0.1)
    assert figure.lines == 2
    with pytest.raises(ValueError, match="sum above 0"):
        ratio([], [])


def test_intervals_cover_the_true_value_as_often_as_stated() -> None:
    rng = np.random.default_rng(5)
    held = 0
    for trial in range(200):
        figure = mean(rng.random(100).tolist(), seed=trial)
        held += figure.low <= 0.5 <= figure.high
    assert 180 <= held <= 199
    assert mean([0.0, 1.0] * 50) == mean([0.0, 1.0] * 50)


def test_a_share_of_all_lines_still_has_an_interval() -> None:
    every, most = share([True] * 60), share([True] * 45 + [False] * 15)
    assert (every.value, every.high) == (1.0, pytest.approx(1.0))
    assert every.low == pytest.approx(0.9398, abs=1e-4)
    assert (most.low, most.high) == (pytest.approx(0.6277, abs=1e-4), pytest.approx(0.8422, abs=1e-4))


def test_the_nearest_profile_names_the_speaker() -> None:
    profiles = {
        "low": profile([np.array([1.0, 0.1]), np.array([9.0, 0.0])]),
        "high": profile([np.array([0.0, 2.0])]),
    }
    assert identify(np.array([0.2, 0.1]), profiles) == "low"
    assert identify(np.array([0.1, 0.2]), profiles) == "high"
    assert cosine(np.array([3.0, 0.0]), np.array([1.0, 1.0])) == pytest.approx(np.sqrt(0.5))
    with pytest.raises(ValueError, match="no references"):
        profile([])


def test_texts_name_wavs_and_speakers(tmp_path: Path) -> None:
    file = tmp_path / "texts.tsv"
    file.write_text("anna/1.wav\tHello there.\nx.wav\tYes.\n", encoding="utf-8")
    assert read_texts(file) == [Clip("anna/1.wav", "anna", "Hello there."), Clip("x.wav", "", "Yes.")]
    file.write_text("anna/1.wav\tHello.\nanna/2.wav Hello.\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 2"):
        read_texts(file)


def test_a_clip_is_loaded_at_16_khz_in_mono(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile", reason="not run: the package soundfile is not installed")
    pytest.importorskip("librosa", reason="not run: the package librosa is not installed")
    time = np.arange(24000) / 24000
    soundfile.write(tmp_path / "a.wav", np.stack([np.sin(2 * np.pi * 440 * time), 0 * time], axis=1), 24000)
    audio = load_clip(tmp_path / "a.wav")
    assert audio.shape == (16000,)
    spectrum = np.abs(np.fft.rfft(audio))
    assert spectrum.argmax() == 440
    assert np.abs(audio).max() == pytest.approx(0.5, abs=0.02)
