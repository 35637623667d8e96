"""Captions to dub: reading files as they are found, and what of them is spoken by whom."""

import re
from dataclasses import replace

import pytest
from qwen3_tts_morph.morph.text.scripts.captions import read_captions, read_dub
from qwen3_tts_morph.morph.text.scripts.cues import Cue, write_cues
from qwen3_tts_morph.morph.text.scripts.script import ScriptError

SRT = """\
1
00:00:01,000 --> 00:00:02,500
<i>ANNA: Hello</i>
there.

2
00:00:03,000 --> 00:00:04,000
{\\an8}It is 5:30.
"""


ASS = """\
[Script Info]
Title: a film

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
Dialogue: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,Hello {\\i1}you
"""


def caption(number: int, start_ms: int, end_ms: int, text: str, name: str = "") -> Cue:
    return Cue(start_ms, end_ms, text, name, number)


def captions(*texts: str) -> list[Cue]:
    return [caption(number, 1000 * number, 1000 * number + 900, text) for number, text in enumerate(texts, 1)]


def spoken(text: str, *cast: str, read_sounds: bool = False) -> list[tuple[str, str]]:
    lines, _ = read_dub(captions(text), cast or ("Anna", "Ben", "NARRATOR"), read_sounds=read_sounds)
    return [(one.line.name.replace("NARRATOR", ""), one.line.text) for one in lines]


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_srt_is_read_without_formatting(line_break: str, mark: str) -> None:
    assert read_captions(mark + SRT.replace("\n", line_break)) == [
        caption(1, 1000, 2500, "ANNA: Hello\nthere."),
        caption(2, 3000, 4000, "It is 5:30."),
    ]


def test_signs_of_html_are_read_in_srt_too() -> None:
    text = "1\n00:00:01,000 --> 00:00:02,000\nQ&amp;A: 5 &lt; 6 &#38; R&D, AT&region\n"
    assert read_captions(text)[0].text == "Q&A: 5 < 6 & R&D, AT&region"


def test_webvtt_is_read_and_its_voices_are_marks() -> None:
    text = "WEBVTT\n\n00:01.000 --> 00:02.500\n<v Anna>Hello.\n\n00:03.000 --> 00:04.000\n<b>It is late.</b>\n"
    assert read_captions(text) == [
        caption(1, 1000, 2500, "Hello.", "Anna"),
        caption(2, 3000, 4000, "It is late."),
    ]


VTT = """\
WEBVTT - a film
Kind: captions

STYLE
::cue { color: red }

REGION
id:left

NOTE this is a comment
of two lines

first part
00:01.000 --> 00:02.500 align:start
<v.loud Anna>Good <c.red>morning</c> to <00:01.900>you!</v>
NOTE is a word here

NOTE

second part
00:03.000 --> 00:04.000
It is 5 &lt; 6 &amp; late.
 \t
NOTE one more
3
00:05.000 --> 00:06.000
Bye, 1 < 2.

NOTE the end
"""


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
def test_comments_styles_identifiers_and_tags_of_webvtt_are_not_spoken(line_break: str) -> None:
    assert read_captions(VTT.replace("\n", line_break)) == [
        caption(1, 1000, 2500, "Good morning to you!\nNOTE is a word here", "Anna"),
        caption(2, 3000, 4000, "It is 5 < 6 & late."),
        caption(3, 5000, 6000, "Bye, 1 < 2."),
    ]


@pytest.mark.parametrize("words", range(1, 7))
def test_the_times_of_words_are_no_captions(words: int) -> None:
    """YouTube writes them. A line with exactly two of them was taken for the times of a caption."""
    timed = "".join(f"<00:00:01.{n}00><c> w{n}</c>" for n in range(1, words))
    text = f"WEBVTT\n\n00:00:01.000 --> 00:00:04.000\nw0{timed}\n\n00:05.000 --> 00:06.000\nBye.\n"
    said = " ".join(f"w{n}" for n in range(words))
    assert read_captions(text) == [caption(1, 1000, 4000, said), caption(2, 5000, 6000, "Bye.")]


@pytest.mark.parametrize(
    "said",
    [
        "It leaves at 10:15:00,000 and arrives at 11:20:00,000",
        "10:15:00.000 or 11:20:00.000?",
        "How many?\n5",
        "5\n6",
        "The set {one, two} has {x}",
        "{a\nb}",
    ],
)
@pytest.mark.parametrize("kind", ["srt", "vtt"])
def test_times_numbers_and_braces_in_words_are_words(said: str, kind: str) -> None:
    texts = [said, "Then.", said]
    cues = [f"{n}\n00:00:0{n}.000 --> 00:00:0{n}.900\n{text}\n" for n, text in enumerate(texts, 1)]
    read = read_captions("\n".join([*(["WEBVTT\n"] if kind == "vtt" else []), *cues]))
    assert [(one.start_ms, one.text) for one in read] == [(1000, said), (2000, "Then."), (3000, said)]


@pytest.mark.parametrize("arrow", ["-->", "->", "\u2192", "-", ""])
def test_times_with_another_arrow_are_times(arrow: str) -> None:
    text = f"1\n00:00:01,000 {arrow} 00:00:02,000\n\n2\n00:00:03,000 {arrow} 00:00:04,000  X1:0 Y1:9\nHi.\n"
    assert read_captions(text) == [caption(1, 1000, 2000, ""), caption(2, 3000, 4000, "Hi.")]


def test_two_voices_of_a_caption_share_its_time_in_turn() -> None:
    text = (
        "WEBVTT\n\n00:01.000 --> 00:04.000\n- <v Anna>Hi there.</v>\n- <v Bob>Hi <00:02.000>there.</v>\n"
        "\n00:05.000 --> 00:06.000\n<v Anna>One <v ANNA>two.\n"
    )
    assert read_captions(text) == [
        caption(1, 1000, 2500, "- Hi there.", "Anna"),
        caption(1, 2500, 4000, "- Hi there.", "Bob"),
        caption(2, 5000, 6000, "One two.", "Anna"),
    ]


def test_two_names_in_a_caption_share_its_time_in_turn() -> None:
    text = "ANNA: Hi\nthere.\n[sighs]\n- ben (low): Good morning, dear.\n-5 degrees"
    [first, second], silent = read_dub([caption(7, 0, 6000, text)], ["Anna", "Ben", "Narrator"])
    assert (first.line.name, first.line.text, first.left_out) == ("Anna", "Hi there.", True)
    assert (second.line.name, second.line.text) == ("Ben", "Good morning, dear. 5 degrees")
    assert first.caption.number == second.caption.number == 7 and silent == []
    assert (first.caption.start_ms, second.caption.end_ms) == (0, 6000)
    assert 0 < first.caption.end_ms == second.caption.start_ms < 3000


def test_a_caption_of_two_speakers_stays_in_order_with_one_that_overlaps() -> None:
    given = [caption(1, 0, 4000, "ANNA: Hello.\nBEN: Hello."), caption(2, 1000, 3000, "Yes.")]
    lines, _ = read_dub(given, ["Anna", "Ben", "Narrator"])
    assert [one.line.name for one in lines] == ["Anna", "Narrator", "Ben"]
    starts = [one.caption.start_ms for one in lines]
    assert starts == sorted(starts)


def test_what_is_written_as_webvtt_is_read_again() -> None:
    written = write_cues([Cue(1000, 2000, "Salt & <pepper>.", "Anna & Co")], "vtt")
    assert read_captions(written) == [caption(1, 1000, 2000, "Salt & <pepper>.", "Anna & Co")]


GREETING = caption(4, 0, 900, "Good morning to you!", "Anna")


@pytest.mark.parametrize(
    ("caption", "cast", "name"),
    [
        (GREETING, ["NARRATOR"], "NARRATOR"),
        (GREETING, ["ANNA"], "ANNA"),
        (GREETING, ["ANNA", "Ben", "Narrator"], "ANNA"),
        (GREETING, ["Ben", "Narrator"], "Narrator"),
        (replace(GREETING, text="BEN: Good morning to you!"), ["ANNA", "Ben"], "Ben"),
    ],
)
def test_a_mark_chooses_the_voice_and_is_not_spoken(caption: Cue, cast: list[str], name: str) -> None:
    [dubbed], _ = read_dub([caption], cast)
    assert (dubbed.line.name, dubbed.line.text) == (name, "Good morning to you!")


def test_a_speaker_that_nobody_can_speak_for_is_named() -> None:
    with pytest.raises(ScriptError, match="caption 4: 'Anna' is not in the cast: choose from Ben"):
        read_dub([GREETING], ["Ben"])


def test_a_speaker_with_signs_of_scripts_is_no_tag() -> None:
    text = "WEBVTT\n\n00:01.000 --> 00:02.000\n<v #Dr: [seed 7]\nWho>Hello."
    assert read_captions(text)[0].name == "Dr seed 7 Who"


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
        ("1\n-00:00:01,000 --> 00:00:02,000\na\n", "captions has the time -00:00:01,000: give times from"),
        ("1\n00:00:01,000 --> -00:00:02,000\na\n", "captions has the time -00:00:02,000: give times from"),
        ("WEBVTT\n\n-00:01.000 --> 00:02.000\na\n", "captions has the time -00:01.000: give times from"),
        ("1\n100:00:01,000 --> 100:00:02,000\na\n", "caption 1: it ends after 12 hours"),
        (ASS, "captions is ASS or SSA, not SRT or WebVTT: save it as SRT"),
        (ASS.partition("[Events]")[2], "captions is ASS or SSA, not SRT or WebVTT: save it as SRT"),
        (SRT + "\n3\n00:05 --> x\nb\n", "caption 2: its text has -->"),
        ("1\n00:00:01,000 --> 00:00:02,000\n\ud83d\n", "half a character"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        read_captions(text)


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
        ("BEN: Yes. \u266a la la \u266a", [("Ben", "Yes.")]),
        ("(sighs) BEN: (laughs) Yes.", [("Ben", "Yes.")]),
        ("La la ##", [("", "La la")]),
        ("I write C#", [("", "I write C#")]),
        ("BEN: It works.\n#1 is here.", [("Ben", "It works. #1 is here.")]),
        ("ANNA: #1 is here.", [("Anna", "#1 is here.")]),
        ("-5 degrees", [("", "-5 degrees")]),
        ("It was\n-5 degrees", [("", "It was -5 degrees")]),
        ("-5 minutes?\n-Yes.", [("", "5 minutes? Yes.")]),
        ("- 5 minutes?", [("", "5 minutes?")]),
        ("[door slams]\nANNA: Hi\nthere: you.", [("Anna", "Hi there: you.")]),
        ("[speed 1.1]\nANNA: Hi\n(sighs)", [("Anna", "Hi")]),
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
    texts = (
        "[door slams]", "Hi.", "(sighs)", "\u266a", "...", "\u266a la la \u266a", "ANNA: [sighs]", "(he) sighs",
    )  # fmt: skip
    lines, silent = read_dub(captions(*texts), ["NARRATOR"])
    assert [(one.caption.number, one.line.text, one.left_out) for one in lines] == [
        (2, "Hi.", False),
        (8, "sighs", True),
    ]
    assert [one.number for one in silent] == [1, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("cast", [("NARRATOR",), ("Anna", "NARRATOR"), ("Anna", "Ben", "NARRATOR")])
def test_a_name_whose_words_are_all_sounds_is_not_spoken(cast: tuple[str, ...]) -> None:
    lines, silent = read_dub(captions("ANNA: [sighs]", "He said: [bleep]"), cast)
    assert [one.line.text for one in lines] == ["He said:"] and [one.number for one in silent] == [1]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[door slams]", ("", "(door slams)")),
        ("(laughs) Hello.", ("", "(laughs) Hello.")),
        ("\u266a soft music \u266a", ("", "soft music")),
        ("# La la #", ("", "La la")),
        ("BEN: [sighs] Yes.", ("Ben", "(sighs) Yes.")),
        ("[door slams]\nANNA: Hi\nthere: you.", ("Anna", "(door slams) Hi there: you.")),
        ("[speed 1.1] ANNA: [sighs]", ("Anna", "(sighs)")),
    ],
)
def test_sounds_are_read_where_that_is_wanted(text: str, line: tuple[str, str]) -> None:
    assert spoken(text, read_sounds=True) == [line]


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
        ("ANNA: Hi\nBEN: [speed 3] Ho", ["Anna", "Ben"], "caption 7: [speed 3] is not a speed"),
        ("[music]", ["Anna"], "captions have nothing to speak"),
    ],
)
def test_faulty_captions_are_named_by_their_numbers_in_the_file(text, cast, sentence) -> None:
    with pytest.raises(ScriptError, match=re.escape(sentence)):
        read_dub([caption(7, 0, 1000, text)], cast, ["auto", "english"])


@pytest.mark.parametrize("row", ["<v", "<v ", "<v.", "<a", "\n", "\n ", "NOTE\n\n", "x\n\n", " "])
def test_a_hundred_thousand_characters_are_read_fast(row: str) -> None:
    """In quadratic time this test would take minutes."""
    begin = "WEBVTT\n\n00:01.000 --> 00:02.000\nHello <v "
    assert read_captions(begin + row * (100_000 // len(row)))[0].start_ms == 1000
    begin = "1\n00:00:01,000 --> 00:00:02,000\nHello <v "
    assert read_captions(begin + row * (100_000 // len(row)) + "end")[0].start_ms == 1000


def test_what_begins_like_a_tag_of_srt_and_is_none_is_words() -> None:
    text = "1\n00:00:01,000 --> 00:00:02,000\n3 <4 and <i>a\n</ i> <b\n\n\n\n\n<font\nsize=3>c <d\n"
    assert [one.text.split() for one in read_captions(text)] == [["3", "<4", "and", "a", "<b", "c", "<d"]]
