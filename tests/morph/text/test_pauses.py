"""Pauses inside a text: where they cut it, what people read, and what is refused."""

import pytest
from qwen3_tts_morph.morph.text.split import PausedText, check_spoken, read_pauses, without_pauses


@pytest.mark.parametrize("text", ["", "Hello.", " a [pauses] b ", "[laughs] one [ two", "a pause 0.5", "[pause 1"])
def test_a_text_without_pauses_is_unchanged(text: str) -> None:
    assert read_pauses(text) == PausedText((text,), (0.0, 0.0))
    assert without_pauses(text) == text


@pytest.mark.parametrize(
    ("text", "parts", "pauses", "read"),
    [
        ("One [pause 0.4] two.", ("One ", " two."), (0, 0.4, 0), "One two."),
        ("[pause 1] One[PAUSE .5]two [ pause  2. ]", (" One", "two "), (1, 0.5, 2), "One two"),
        ("One [pause 1][pause 0.5] two", ("One ", " two"), (0, 1.5, 0), "One two"),
        ("One [pause 1], [pause 1] two.", ("One ", " two."), (0, 2, 0), "One, two."),
        ("One [pause 1].", ("One ",), (0, 1), "One."),
        ("你好[pause 0.2]，世界", ("你好", "，世界"), (0, 0.2, 0), "你好，世界"),
        ("[pause 1] ...", (), (1,), "..."),
    ],
)
def test_a_pause_cuts_the_text(text, parts, pauses, read) -> None:
    assert read_pauses(text) == PausedText(parts, pauses)
    assert without_pauses(text) == read


@pytest.mark.parametrize("value", ["", "abc", "-1", "61", "1 s", "0.5 0.5", "-button", "1e3", "nan"])
def test_a_wrong_pause_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r"is not a pause: give 0 to 60 seconds, e.g. \[pause 0.5\]"):
        read_pauses(f"One [pause {value}] two")


def test_pauses_of_more_than_an_hour_are_refused() -> None:
    with pytest.raises(ValueError, match="add up to 3660 s: give at most 3600 seconds"):
        read_pauses("one [pause 60]" * 61)


def test_a_text_of_pauses_cannot_be_spoken() -> None:
    assert check_spoken("[pause 1] One.") == "[pause 1] One."
    with pytest.raises(ValueError, match="words is empty"):
        check_spoken("[pause 1]", "words")
    with pytest.raises(ValueError, match="has no letter and no digit"):
        check_spoken("[pause 1] ...")


@pytest.mark.parametrize(
    ("text", "spoken"),
    [("[pause" * 100_000, "[pause" * 100_000), ("[" + " " * 200_000, "["), ("[pause 1]" * 50_000 + "x", "x")],
)
def test_long_texts_take_no_time(text: str, spoken: str) -> None:
    """A pattern whose time grows with the square of the length would take minutes here."""
    assert without_pauses(text).strip() == spoken
