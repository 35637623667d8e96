"""Captions of words: what is in each, and that other programs read the files."""

import json
import re

import pysubs2
import pytest
from qwen3_tts_morph.morph.text.scripts.captions import read_captions
from qwen3_tts_morph.morph.words.captions import CaptionOptions, LineWords, cut_cues, write_captions
from qwen3_tts_morph.morph.words.timing import WordTime
from qwen3_tts_morph.morph.words.written import find_words

TEXT = "Hello, Dr. Lee! It costs $5 & <more> than that, as I said before. 你好，世界。"


def spoken(text: str, start: float = 0.5, length: float = 0.25, gap: float = 0.05) -> tuple[WordTime, ...]:
    words = []
    for word in find_words(text):
        words.append(WordTime(word.text, start, start + length, word.first, word.last))
        start += length + gap
    return tuple(words)


def captions(text: str, unit: str, most_chars: int = 42) -> list[str]:
    return [cue.text for cue in cut_cues([LineWords(spoken(text))], CaptionOptions("srt", unit, most_chars))]


@pytest.mark.parametrize(
    ("text", "unit", "most_chars", "expected"),
    [
        ("One, two.", "word", 42, ["One,", "two."]),
        (
            TEXT,
            "phrase",
            42,
            ["Hello, Dr. Lee!", "It costs $5 & <more> than that,", "as I said before. 你好，世界。"],
        ),
        (
            TEXT,
            "sentence",
            42,
            ["Hello, Dr. Lee!", "It costs $5 & <more> than that, as I said before.", "你好，世界。"],
        ),
        ("Donaudampfschifffahrt is long", "phrase", 10, ["Donaudampfschifffahrt", "is long"]),
        ("one two three four five six", "phrase", 13, ["one two three", "four five six"]),
        ("这是一个没有标点的很长的句子", "phrase", 5, ["这是一个没", "有标点的很", "长的句子"]),
        ("wait\u2014what [pause 0.2] now", "phrase", 42, ["wait\u2014what now"]),
    ],
)
def test_captions_are_cut_at_punctuation(text, unit, most_chars, expected) -> None:
    assert captions(text, unit, most_chars) == expected


def test_no_caption_stays_over_a_long_silence_or_two_lines() -> None:
    lines = [
        LineWords((WordTime("One", 0, 1, 0, 3), WordTime("two", 2, 3, 4, 7)), "A"),
        LineWords((WordTime("three", 3, 4, 0, 5),), "B"),
    ]
    cues = cut_cues(lines, CaptionOptions())
    assert [(cue.text, cue.name) for cue in cues] == [("One", "A"), ("two", "A"), ("three", "B")]


def test_an_srt_file_by_phrases_and_by_words() -> None:
    lines = [LineWords(spoken("Hi there."), "BOB")]
    assert write_captions(lines, CaptionOptions()) == "1\n00:00:00,500 --> 00:00:01,050\nBOB: Hi there.\n"
    assert write_captions(lines, CaptionOptions(unit="word")) == (
        "1\n00:00:00,500 --> 00:00:00,750\nHi\n\n2\n00:00:00,800 --> 00:00:01,050\nthere.\n"
    )


def test_a_webvtt_file_whose_words_light_up() -> None:
    lines = [LineWords(spoken("A <b> & 你好"), "B & C")]
    assert write_captions(lines, CaptionOptions("vtt")) == (
        "WEBVTT\n\n00:00:00.500 --> 00:00:01.950\n<v B &amp; C>A <00:00:00.800>&lt;b&gt; <00:00:01.100>&amp; "
        "<00:00:01.400>你<00:00:01.700>好\n"
    )


def test_the_times_of_webvtts_words_increase_within_their_cue() -> None:
    times = [(0, 0), (0, 0), (0.5, 0.5), (0.5, 1), (1.5, 1.5)]
    words = tuple(WordTime("w", start, end, 2 * n, 2 * n + 1) for n, (start, end) in enumerate(times))
    written = write_captions([LineWords(words)], CaptionOptions("vtt"))
    assert written.splitlines()[-1] == "w w <00:00:00.500>w w w"


def test_json_has_words_and_captions() -> None:
    lines = [LineWords(spoken("Hi you."), "BOB"), LineWords(spoken("Bye", 2.0))]
    told = json.loads(write_captions(lines, CaptionOptions("json")))
    assert told["words"][1] == {
        "word": "you.",
        "start": 0.8,
        "end": 1.05,
        "line": 0,
        "first_char": 3,
        "last_char": 7,
    }
    assert [word["line"] for word in told["words"]] == [0, 0, 1]
    assert told["segments"][0] == {"start": 0.5, "end": 1.05, "text": "Hi you.", "speaker": "BOB"}


LINES = [
    LineWords(spoken(TEXT), "ANN"),
    LineWords(spoken("Curly {b} and \\N, [x].", 9.123456, 0.333, 0.011), "Bo, jr"),
]


@pytest.mark.parametrize("unit", ["word", "phrase", "sentence"])
@pytest.mark.parametrize("kind", ["srt", "vtt"])
def test_captions_are_read_with_the_same_texts_and_times(kind, unit) -> None:
    text = TEXT if kind == "vtt" else TEXT.replace("<more>", "more")  # SRT has no way to write what looks like a mark
    lines, options = (
        [LineWords(spoken(text), "ANN"), LineWords(spoken("Bye.", 9.1234), "Bo")],
        CaptionOptions(kind, unit),
    )
    cues = cut_cues(lines, options)
    read = read_captions(
        write_captions(lines, options)
    )  # by pysubs2, without the times of words, which it takes for cues
    named = kind == "srt" and unit != "word"
    assert [(one.start_ms, one.end_ms, one.text) for one in read] == [
        (cue.start_ms, cue.end_ms, f"{cue.name}: {cue.text}" if named else cue.text) for cue in cues
    ]
    assert [one.name for one in read] == [cue.name if kind == "vtt" else "" for cue in cues]


@pytest.mark.parametrize("unit", ["word", "phrase", "sentence"])
def test_another_program_reads_srt(unit) -> None:
    options = CaptionOptions("srt", unit)
    read = pysubs2.SSAFile.from_string(write_captions(LINES, options), format_="srt")
    assert [(event.start, event.end) for event in read] == [
        (cue.start_ms, cue.end_ms) for cue in cut_cues(LINES, options)
    ]


@pytest.mark.parametrize("unit", ["word", "phrase", "sentence"])
def test_another_program_reads_karaoke(unit) -> None:
    options = CaptionOptions("ass", unit)
    cues = cut_cues(LINES, options)
    read = pysubs2.SSAFile.from_string(write_captions(LINES, options), format_="ass")
    assert len(read) == len(cues) and read.events[-1].name == "Bo jr"
    for event, cue in zip(read, cues, strict=True):
        assert abs(event.start - cue.start_ms) <= 5 and abs(event.end - cue.end_ms) <= 5
        shown = event.plaintext.replace("\u2060", "").replace("(", "{").replace(")", "}")
        assert shown == cue.text
        lengths = [int(length) for length in re.findall(r"\{\\k(\d+)\}", event.text)]
        assert 10 * sum(lengths) == event.duration
    assert write_captions(LINES[:1], CaptionOptions("ass")).count("{\\k25}Hello,{\\k5} {\\k25}Dr.") == 1


def test_captions_are_in_the_order_of_their_starts() -> None:
    lines = [LineWords(spoken("Late.", 5)), LineWords(spoken("Early."))]
    assert [event.text for event in pysubs2.SSAFile.from_string(write_captions(lines, CaptionOptions()))] == [
        "Early.",
        "Late.",
    ]


@pytest.mark.parametrize("kind", ["srt", "vtt", "json", "ass"])
def test_without_words_there_are_no_captions(kind) -> None:
    written = write_captions([LineWords(())], CaptionOptions(kind))
    assert "-->" not in written and "Dialogue" not in written


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"format": "sub"}, "format is 'sub': choose one of srt"),
        ({"unit": "line"}, "unit is 'line': choose one of word"),
        ({"most_chars": 0}, "most_chars is 0: choose a whole number from 1 to 500"),
        ({"most_chars": True}, "most_chars is True"),
    ],
)
def test_options_are_checked(fields, said) -> None:
    with pytest.raises(ValueError, match=said):
        CaptionOptions(**fields)
