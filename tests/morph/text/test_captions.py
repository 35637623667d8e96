"""Captions to dub: reading files as they are found, and what of them is spoken by whom."""

from __future__ import annotations

import builtins
import re

import pytest
from qwen3_tts_morph.morph.text.captions import TimedText, read_captions, read_dub
from qwen3_tts_morph.morph.text.script import ScriptError

SRT = """\
1
00:00:01,000 --> 00:00:02,500
<i>ANNA: Hello</i>
there.

2
00:00:03,000 --> 00:00:04,000
{\\an8}It is 5:30.
"""


def captions(*texts: str) -> list[TimedText]:
    return [
        TimedText(number, 1000 * number, 1000 * number + 900, text) for number, text in enumerate(texts, 1)
    ]


def spoken(text: str, *cast: str) -> list[tuple[str, str]]:
    lines, _ = read_dub(captions(text), cast or ("Anna", "Ben", "NARRATOR"))
    return [(one.line.name.replace("NARRATOR", ""), one.line.text) for one in lines]


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_srt_is_read_without_formatting(line_break: str, mark: str) -> None:
    assert read_captions(mark + SRT.replace("\n", line_break)) == [
        TimedText(1, 1000, 2500, "ANNA: Hello\nthere."),
        TimedText(2, 3000, 4000, "It is 5:30."),
    ]


def test_webvtt_is_read_and_its_voices_are_names() -> None:
    text = (
        "WEBVTT\n\n00:01.000 --> 00:02.500\n<v Anna>Hello.\n\n00:03.000 --> 00:04.000\n<b>It is late.</b>\n"
    )
    assert [(one.start_ms, one.text) for one in read_captions(text)] == [
        (1000, "Anna: Hello."),
        (3000, "It is late."),
    ]


def test_captions_come_in_the_order_of_their_starts_with_their_numbers_in_the_file() -> None:
    text = "1\n00:00:05,000 --> 00:00:06,000\nb\n\n2\n00:00:01,000 --> 00:00:09,000\na\n"
    assert [(one.number, one.start_ms, one.time) for one in read_captions(text)] == [
        (2, 1000, "00:00:01,000"),
        (1, 5000, "00:00:05,000"),
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (" \n", "captions is empty: paste the text of an SRT file"),
        ("Hello.", "captions has no caption: write a number"),
        ("1\n00:00:02,000 --> 00:00:02,000\na\n", "caption 1: it ends at its start (00:00:02,000) or before"),
        ("1\n00:00:02,000 --> 00:00:01,000\na\n", "caption 1: it ends at its start"),
        ("1\n00:00:02,000 --> 12:00:00,001\na\n", "caption 1: it ends after 12 hours"),
        (SRT + "\n3\n00:05 --> x\nb\n", "caption 2: its text has -->"),
        ("1\n00:00:01,000 --> 00:00:02,000\n\ud83d\n", "half a character"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        read_captions(text)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def refuse(name: str, *more):
        if name == "pysubs2":
            raise ImportError("No module named 'pysubs2'")
        return original(name, *more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ValueError, match=r"needs the package pysubs2 .*: run python -m pip install pysubs2"):
        read_captions(SRT)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("anna: Hello\nthere.", [("Anna", "Hello there.")]),
        ("ANNA (softly): Hello.", [("Anna", "Hello.")]),
        ("He said only: go.", [("", "He said only: go.")]),
        ("Note: go.", [("", "Note: go.")]),
        ("It is 5:30.", [("", "It is 5:30.")]),
        ("- Who is it?\n- Me.", [("", "Who is it? Me.")]),
        ("[door slams] Who is it?", [("", "Who is it?")]),
        ("BEN: [sighs] Yes.", [("Ben", "Yes.")]),
        ("\u266a La la \u266a", [("", "La la")]),
        ("# La la #", [("", "La la")]),
        ("Wait (a little).", [("", "Wait (a little).")]),
        ("One [pause 0.3] two.", [("", "One [pause 0.3] two.")]),
    ],
)
def test_who_speaks_what(text: str, lines: list[tuple[str, str]]) -> None:
    assert spoken(text) == lines


def test_with_one_voice_nothing_is_a_name() -> None:
    assert spoken("ANNA: Hello.", "NARRATOR") == [("", "ANNA: Hello.")]


def test_tags_apply_to_their_caption() -> None:
    [first, second], _ = read_dub(
        captions("[speed 1.1] ANNA: [pitch -2] One.", "[gain -3] [seed 7] Two."), ["Anna", "Narrator"]
    )
    assert (first.line.speed, first.line.pitch, first.line.text) == (1.1, -2, "One.")
    assert (second.line.speed, second.line.gain_db, second.line.seed) == (None, -3, 7)


def test_captions_without_words_are_returned_apart() -> None:
    lines, silent = read_dub(captions("[door slams]", "Hi.", "(sighs)", "\u266a", "..."), ["NARRATOR"])
    assert [one.caption.number for one in lines] == [2]
    assert [one.number for one in silent] == [1, 3, 4, 5]


@pytest.mark.parametrize(
    ("text", "cast", "sentence"),
    [
        (
            "ANA: Hello.",
            ["Anna", "Narrator"],
            "caption 7: 'ANA' is not in the cast: choose from Anna, Narrator",
        ),
        ("Hello.", ["Anna"], "caption 7: 'Hello.' names no character"),
        ("Note: Hello.", ["Anna"], "caption 7: 'Note' is not in the cast"),
        ("ANNA: [speed 3] Hello.", ["Anna"], "caption 7: [speed 3] is not a speed"),
        ("ANNA: [lang Klingon] Hello.", ["Anna"], "caption 7: 'Klingon' is not in the languages"),
        ("ANNA: Hello. [pause 1]", ["Anna"], "change the caption's time instead"),
        ("[music]", ["Anna"], "captions have nothing to speak"),
    ],
)
def test_faulty_captions_are_named_by_their_numbers_in_the_file(
    text: str, cast: list[str], sentence: str
) -> None:
    with pytest.raises(ScriptError, match=re.escape(sentence)):
        read_dub([TimedText(7, 0, 1000, text)], cast, ["auto", "english"])
