"""Files of cues, as they are written."""

from qwen3_tts_morph.morph.text.scripts.cues import Cue, read_cues, write_cues

CUES = [
    Cue(0, 1500, "Hello\nthere. ", "BOB\nB"),
    Cue(3661500, 3662002, "1 < 2 & no\n\n--> name\r\n\u2028."),
]


def test_an_srt_file_word_for_word() -> None:
    assert write_cues(CUES, "srt") == (
        "1\n00:00:00,000 --> 00:00:01,500\nBOB B: Hello there.\n\n"
        "2\n01:01:01,500 --> 01:01:02,002\n1 < 2 & no --> name .\n"
    )
    assert write_cues([], "srt") == ""


def test_a_webvtt_file_word_for_word() -> None:
    assert write_cues(CUES, "vtt") == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\n<v BOB B>Hello there.\n\n"
        "01:01:01.500 --> 01:01:02.002\n1 &lt; 2 &amp; no --&gt; name .\n"
    )


def test_srt_becomes_webvtt_with_the_same_times() -> None:
    cues = [Cue(0, 1500, "A & B < 3", "ANNA"), Cue(3_600_000, 3_600_000, "Two\n\nlines")]
    assert write_cues(read_cues(write_cues(cues, "srt")), "vtt") == (
        "WEBVTT\n\n1\n00:00:00.000 --> 00:00:01.500\nANNA: A &amp; B &lt; 3\n\n"
        "2\n01:00:00.000 --> 01:00:00.000\nTwo lines\n"
    )
