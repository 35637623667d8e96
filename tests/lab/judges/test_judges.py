"""The judges' arithmetic: error counts, interval coverage, and strict reading of texts files."""

from functools import partial

import numpy as np
import pytest
from qwen3_tts_morph.morph.text.normalize import Normalizer

from lab.judges.__main__ import Judges, judge_clip, summarise, table
from lab.judges.asr import closest, compare, edit_distance, in_digits, in_words
from lab.judges.clips import Clip
from lab.judges.mos import Opinion
from lab.judges.stats import mean, ratio


def test_words_and_letters_are_counted_separately() -> None:
    heard = compare("the birch canoe slid", "the birch can you slid")
    assert (heard.word_errors, heard.words) == (2, 4)
    assert (heard.letter_errors, heard.letters) == (edit_distance("canoe", "canyou"), 17)
    assert compare("yes", "").word_errors == 1
    with pytest.raises(ValueError, match="without words"):
        compare("", "yes")


def test_figures_count_as_they_are_said_however_they_are_written() -> None:
    said = Normalizer("en")
    forms = (partial(in_words, write_out=lambda text: said.write_out(text).text), in_digits)

    def errors(text: str, transcript: str) -> int:
        return closest((text,), transcript, forms).word_errors

    assert errors("It was sold for £15,495.95.", "It was sold for 15,400 and 95 pounds, 95 pence") == 0
    assert errors("They sold 380,190 horses.", "They sold 380,100 and 90 horses.") == 0
    assert errors("We close at 6:00 am today.", "We close at 6 am today.") == 0
    assert errors("Call 834-510-0015.", "Call 834-5100015.") == 0
    assert errors("Call 834-510-0015.", "Call 834-510-0051.") == 2
    assert errors("They sold 925 books.", "They sold 900 in 25 books.") == 1


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


class FakeJudge:
    """Transcribes every clip as "hello there", embeds the first two samples, gives the same opinion."""

    def embed(self, audio: np.ndarray) -> np.ndarray:
        return audio[:2]

    def judge(self, audio: np.ndarray) -> Opinion:
        return Opinion(4.0, 3.0, 3.5, 3.0)

    def nearest(self, audio: np.ndarray, spellings: tuple[str, ...]) -> object:
        return min((compare(one, "hello there") for one in spellings), key=lambda one: one.word_errors)


def test_every_judgement_of_a_clip_reaches_the_summary(tmp_path, monkeypatch) -> None:
    audio = {"wavs": np.array([1.0, 0.0]), "originals": np.array([3.0, 4.0])}
    monkeypatch.setattr(
        "lab.judges.__main__.load_clip",
        lambda path: audio["originals" if "originals" in path.parts else "wavs"],
    )
    fake = FakeJudge()
    profiles = {"anna": np.array([1.0, 0.0]), "bert": np.array([0.0, 1.0])}
    judges = Judges(fake, fake, fake, profiles)
    clip = Clip("anna/1.wav", "anna", "hello you")
    verdict = judge_clip(clip, tmp_path / "wavs", tmp_path / "originals", judges)
    assert (verdict.identified_as, verdict.similarity_to_reference) == ("anna", 1.0)
    assert verdict.similarity_to_original == pytest.approx(0.6)
    figures = summarise([verdict])
    assert figures["wer"].value == 0.5 and figures["identified"].value == 1.0
    assert figures["similarity_to_original"].value == pytest.approx(0.6)
    assert figures["distillmos"].value == 4.0 and "similarity_to_reference" in table(figures)
    with pytest.raises(ValueError, match="'carl' has no folder in --references"):
        judge_clip(Clip("carl/1.wav", "carl", "hello"), tmp_path, None, judges)
