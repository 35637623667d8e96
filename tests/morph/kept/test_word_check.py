"""Lines are heard: those with too many wrong words get other takes, the best one stays, and nothing is hidden."""

from dataclasses import replace

import numpy as np
import pytest
from qwen3_tts_morph.morph.kept.cache import LineCache
from qwen3_tts_morph.morph.kept.render import WordCheck
from qwen3_tts_morph.morph.options import GenerateOptions
from qwen3_tts_morph.morph.script.dialogue import line_seeds
from qwen3_tts_morph.morph.speech.lines import Line, LineReport, Spoken, take_seed
from qwen3_tts_morph.morph.speech.report import describe, outcome
from qwen3_tts_morph.morph.text.scripts.script import ScriptLine
from qwen3_tts_morph.morph.voice.voice import Voice

VOICE = Voice("preset", "0b6", speaker="ryan")
TEXT = "The quick brown fox jumps."


class Ear:
    """Hears what it is told for a line's seed, which is its first sample; otherwise the right words."""

    name = "ear"

    def __init__(self, **told: str):
        self.told = {int(seed[1:]): text for seed, text in told.items()}
        self.heard: list[int] = []

    def transcribe(self, waveform, sample_rate, language) -> str:
        seed = int(waveform[0])
        self.heard.append(seed)
        if self.told.get(seed) == "broken":
            raise RuntimeError("deaf")
        return self.told.get(seed, TEXT)


def made(line: Line) -> Spoken:
    samples = np.array([line.seed], dtype=np.uint64)
    return Spoken(samples, 24000, LineReport(line.name, line.text, 1, 1.0, "eos", 1))


def check(ear: Ear, lines: list[Line], retakes: int = 2, render=None) -> list[Spoken]:
    render = render or (lambda again: [made(line) for line in again])
    return WordCheck(ear, 0.2, retakes).apply(lines, [made(line) for line in lines], render, lambda _: None)


LINES = [Line(TEXT, VOICE, seed=seed) for seed in (1, 2, 3)]
SECOND, THIRD = take_seed(2, 2), take_seed(2, 3)


def test_only_a_line_that_is_heard_wrong_gets_other_takes() -> None:
    ear = Ear(s2="the")
    spoken = check(ear, LINES)
    assert ear.heard == [1, 2, 3, SECOND] and int(spoken[1].waveform[0]) == SECOND
    assert (spoken[1].report.heard.takes, spoken[1].report.heard.errors) == (2, 0)
    assert [one.take for one in spoken] == [1, 2, 1]
    said = f"{TEXT!r} is take 2, with seed {SECOND}: its words were heard better."
    assert said in outcome(spoken, 1.0), "[seed N] before the line in a script gives it again"


def test_the_best_take_stays_and_what_still_fails_is_named(load) -> None:
    ear = Ear(s2="the", **{f"s{SECOND}": "the quick brown", f"s{THIRD}": "quick quick"})
    spoken = check(ear, LINES)
    assert int(spoken[1].waveform[0]) == SECOND
    heard = spoken[1].report.heard
    assert (heard.text, heard.errors, heard.words, heard.takes, heard.passed) == (
        "the quick brown",
        2,
        5,
        3,
        False,
    )
    said = outcome(spoken, 1.0).splitlines()
    words = "'the quick brown', 2 of 5 words wrong (40%) in the best of 3 takes."
    wanted = f"Line 2 ({TEXT!r}) DOES NOT MATCH ITS TEXT: heard {words}"
    assert said[0] == wanted and "2 of 3 lines match their texts." in said
    report = describe(load("tiny", "base"), spoken, GenerateOptions(), 1.0)
    assert report.count("heard as 'the quick brown', 2 of 5 words wrong (40%)") == 1


def test_a_take_that_fails_and_an_ear_that_fails_are_said() -> None:
    def broken(again) -> list[Spoken]:
        return [replace(made(line), report=replace(made(line).report, ended="error", error="broke")) for line in again]

    spoken = check(Ear(s2="the", s3="broken"), LINES, 1, broken)
    said = outcome(spoken, 1.0)
    assert int(spoken[1].waveform[0]) == 2 and f"Take 2 of {TEXT!r} could not be made: broke" in said
    assert spoken[2].report.heard is None and f"{TEXT!r} could not be heard: deaf" in said


def test_lines_without_words_and_lines_that_were_not_made_are_not_judged() -> None:
    failed = replace(made(LINES[0]), report=replace(made(LINES[0]).report, ended="error"))
    symbol = Line("?", VOICE, seed=9)
    spoken = WordCheck(Ear()).apply([LINES[0], symbol], [failed, made(symbol)], lambda again: [], lambda _: None)
    assert [one.report.heard for one in spoken] == [None, None]


@pytest.mark.parametrize(("name", "value"), [("most_errors", 1.5), ("retakes", 11), ("retakes", 0.5)])
def test_bad_settings_are_refused(name, value) -> None:
    with pytest.raises(ValueError, match=name):
        replace(WordCheck(Ear()), **{name: value})


def test_a_user_can_ask_for_the_take_in_the_script() -> None:
    first, third = (line_seeds([ScriptLine(1, "A", "Hi.", take=take)], 5)[0] for take in (None, 3))
    assert take_seed(first, 3) == third and take_seed(first, 1) == first


def test_a_recording_is_heard_once_by_each_recogniser(tmp_path) -> None:
    check, spoken = WordCheck(Ear(s1="the words"), cache=LineCache(tmp_path, 10**6)), made(LINES[0])

    def heard(check: WordCheck, spoken: Spoken, language: str = "english") -> str:
        return check.transcribe(replace(LINES[0], language=language), spoken).report.heard.text

    ear, other = check.recogniser, Ear()
    assert [heard(check, spoken) for _ in range(2)] == ["the words"] * 2 and ear.heard == [1]
    heard(check, spoken, "german")
    heard(check, replace(spoken, waveform=spoken.waveform + np.uint64(1)))
    other.name = "another"
    heard(replace(check, recogniser=other), spoken)
    assert ear.heard == [1, 1, 2] and other.heard == [1]
    for file in tmp_path.iterdir():
        file.write_bytes(b"{")
    assert heard(check, spoken) == "the words" and len(ear.heard) == 4
