"""The report: every line, how it ended, and the arithmetic of speed."""

import re
from dataclasses import replace

import numpy as np
import pytest
from qwen3_tts_morph.morph.model.tail import describe_groups
from qwen3_tts_morph.morph.options import GenerateOptions
from qwen3_tts_morph.morph.speech.lines import WRONG, LineReport, Spoken
from qwen3_tts_morph.morph.speech.report import describe, outcome


def spoken(name: str, text: str, frames: int, ended: str = "eos", pieces: int = 1, **more) -> Spoken:
    report = LineReport(name, text, frames, frames * 0.08, ended, pieces, **more)
    return Spoken(np.zeros(frames * 1920, dtype=np.float32), 24000, report, engine="engine: eager (as chosen)")


@pytest.fixture
def model(load):
    return load("tiny", "base")


def test_speed_is_said_in_words_that_anybody_knows():
    lines = [spoken("", "One.", 25), spoken("", "Two.", 50)]  # 2 s and 4 s
    first, speed = outcome(lines, 1.5).splitlines()
    assert first == "All 2 lines complete."
    assert speed == "6.00 s of audio in 1.50 s: 4.0 times real time."


def test_errors_come_first_and_settings_last(model):
    lines = [
        spoken("ANNA", "Hello.", 10),
        spoken("", "x" * 61, 20, "cap", pieces=3),
        spoken("BOB", "y" * 60, 5, "loop", takes=2),
    ]
    report = describe(model, lines, GenerateOptions(seq_groups=15), 1.0)
    outcome_block, rows, settings = (block.splitlines() for block in report.split("\n\n"))
    assert outcome_block[0] == "2 of 3 lines went wrong."
    assert outcome_block[1].startswith(f"Line 2 ('{'x' * 57}...') RAN INTO ITS LIMIT")
    assert outcome_block[2].startswith(f"Line 3 ('{'y' * 60}') REPEATED ITSELF")
    assert outcome_block[3] == "1 of 3 spoken again with another seed: see below."
    assert outcome_block[4].startswith("2.80 s of audio in 1.00 s")
    assert rows[0] == "1. ANNA: 'Hello.': complete, 0.80 s"
    assert rows[1].endswith("try another seed, or a higher max seconds, 1.60 s in 3 pieces")
    assert rows[2].startswith(f"3. BOB: '{'y' * 60}': REPEATED ITSELF") and " at take 2, " in rows[2]
    assert settings == ["- SEQ_GROUPS 15 (exact)", "- engine: eager (as chosen)", f"- {model.summary()}"]


@pytest.mark.parametrize("ended", WRONG)
def test_every_wrong_ending_is_in_capitals_with_advice(ended):
    first = outcome([spoken("", "One.", 10, ended)], 1.0).splitlines()[0]
    assert re.match(r"The line (BEGINS|HAS|RAN|REPEATED|ENDED|IS) ", first) and "try another seed" in first


def test_only_a_few_of_many_wrong_lines_are_named():
    said = outcome([spoken("", f"Line {number}.", 10, "silent") for number in range(30)], 1.0).splitlines()
    assert said[0] == "30 of 30 lines went wrong." and said[-2] == "And 25 more: see below." and len(said) == 8


def test_one_error_of_many_lines_stands_once(model):
    lines = [
        spoken("ANNA", f"{number}", 6, "error" if number > 2 else "eos", error="voice 'x' is gone" * (number > 2))
        for number in range(1, 41)
    ]
    report = describe(model, lines, GenerateOptions(), 1.0)
    assert report.splitlines()[:2] == [
        "38 of 40 lines went wrong.",
        "Line 3 ('3') and 37 lines more COULD NOT BE MADE: voice 'x' is gone.",
    ]
    assert report.count("voice 'x' is gone") == 2 and report.count("COULD NOT BE MADE: as line 3,") == 37


def test_captions_have_their_own_numbers(model):
    lines = [replace(spoken("CLARA", "Yes.", 6, "cap"), number=5), replace(spoken("", "No.", 6), number=7)]
    report = describe(model, lines, GenerateOptions(), 1.0)
    assert "Line 5 ('Yes.') RAN INTO" in report and "\n5. CLARA: " in report and "\n7. 'No.'" in report


def test_the_normalised_text_and_notes_are_shown(model):
    line = spoken("", "It costs $45.", 10, spoken="It costs forty five dollars.", notes=("A note.",))
    report = describe(model, [line, line], GenerateOptions(), 1.0)
    assert report.splitlines()[0] == "A note." and report.count("A note.") == 1
    assert report.count("spoken as 'It costs forty five dollars.'") == 2


@pytest.mark.parametrize("groups", range(1, 16))
def test_only_15_is_called_exact(groups):
    said = describe_groups(GenerateOptions(groups))
    assert said.startswith(f"SEQ_GROUPS {groups} (")
    assert ("approximate" in said) == (groups < 15) and ("exact" in said) == (groups == 15)


def test_lines_from_before_are_counted_and_do_not_count_for_the_speed(model):
    lines = [spoken("", f"Line {number}.", 25, from_before=number != 1) for number in range(40)]
    first, before, speed = outcome(lines, 1.0).splitlines()
    assert first == "All 40 lines complete." and before == "39 of 40 lines reused from an earlier run."
    assert speed == "78.00 s of audio reused, 2.00 s of audio in 1.00 s: 2.0 times real time."
    rows = describe(model, lines, GenerateOptions(), 1.0).split("\n\n")[1].splitlines()
    assert [", reused, 2.00 s" in row for row in rows] == [one != 1 for one in range(40)]


def test_where_nothing_was_made_there_is_no_speed():
    lines = [spoken("", "One.", 25, from_before=True)] * 2
    assert outcome(lines, 0.01).splitlines()[1:] == [
        "2 of 2 lines reused from an earlier run.",
        "4.00 s of audio, none of it made now (0.01 s).",
    ]
    assert outcome(lines[:1], 0.01).splitlines()[:2] == ["Complete.", "Reused from an earlier run."]


def test_a_line_that_could_not_be_made_says_why(model):
    broken = spoken("BEN", "Two.", 0, "error", error="ValueError: it\nbroke.")
    lines = [spoken("ANNA", "One.", 25), broken]
    said = outcome(lines, 1.0).splitlines()
    assert said[:2] == [
        "1 of 2 lines went wrong.",
        "Line 2 ('Two.') COULD NOT BE MADE: ValueError: it broke.",
    ]
    assert "2.00 s of audio in 1.00 s" in said[-1]
    report = describe(model, lines, GenerateOptions(), 1.0)
    assert "2. BEN: 'Two.': COULD NOT BE MADE: ValueError: it broke, " in report
