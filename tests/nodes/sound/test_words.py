"""The value of the words socket, without ComfyUI."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
from qwen3_tts_morph.morph.words.captions import LineWords
from qwen3_tts_morph.morph.words.timing import WordTime

from tests.nodes.package import load

words = load("sound.values")
HELLO = (WordTime("Hello,", 0.5, 0.75, 0, 6), WordTime("you.", 0.75, 1.25, 7, 11))


class Told:
    """What has spoken lines, and knows when their words are heard."""

    def check_words(self) -> None:
        """It knows that."""

    def words(self, spoken: Any) -> tuple[WordTime, ...]:
        return spoken.words


class Silent(Told):
    def check_words(self) -> None:
        raise ValueError("tiny does not say when words are heard: choose another, or do without them")


def line(name: str, *own: WordTime) -> SimpleNamespace:
    return SimpleNamespace(report=SimpleNamespace(name=name), words=own)


def test_words_are_at_the_times_of_their_lines_in_the_track() -> None:
    own = words.words_of(Told(), [line("ANN", *HELLO), line("BEN"), line("ANN", *HELLO)])
    assert own.lines == (LineWords(HELLO, "ANN"), LineWords((), "BEN"), LineWords(HELLO, "ANN"))
    assert words.check_words(own) is own and words.words_of(Told(), [line("ANN", *HELLO)]).describe() == ""
    assert own.describe() == f"No word times for 1 of 3 lines: {words.WITHOUT}."
    heard = own.at([0, 24000, 48000], 24000)
    assert [[(one.start_s, one.end_s) for one in each.words] for each in heard.lines] == [
        [(0.5, 0.75), (0.75, 1.25)],
        [],
        [(2.5, 2.75), (2.75, 3.25)],
    ]


def test_where_there_are_none_the_report_and_the_error_say_what_to_do() -> None:
    none = words.words_of(Silent(), [line("ANN", *HELLO)])
    assert none.lines == (LineWords((), "ANN"),) and none.at([0], 24000) == none
    why = "tiny does not say when words are heard: choose another, or do without them"
    assert none.describe() == f"No word times: {why}."
    failed = words.words_of(Told(), [line("ANN"), line("BEN")])
    for given, message in (
        (none, f"words is empty: {why}"),
        (failed, f"words is empty: no line has word times: {re.escape(words.WITHOUT)}"),
        (
            "x",
            "words is 'x': connect the words of Generate Speech, Render Script, Dub Captions or Transcribe",
        ),
        (None, "words is None: connect the words of .*"),
    ):
        with pytest.raises(ValueError, match=f"^{message}$"):
            words.check_words(given)
