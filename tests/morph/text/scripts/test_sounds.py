"""Sounds in captions: what describes one, and what is words."""

import pytest
from qwen3_tts_morph.morph.text.scripts.captions import with_sounds, without_sounds


def left(text: str) -> str:
    return " ".join(without_sounds(text).split())


@pytest.mark.parametrize(
    "text",
    [
        "[door slams]", "(laughs)", "\uff08\u7b11\uff09", "\u3010\u62cd\u624b\u3011", "(laughs) [a door]\n(sighs)",
        "\u266a soft music \u266a", "\u266a\u266a soft music \u266a\u266a", "\u266a soft music", "la la la \u266a",
        "\u266a One\n\u266a two", "\u266a One\ntwo \u266a", "\U0001f3b5 humming \U0001f3b5",
        "[\u266a music \u266a]", "(\u266a music \u266a)", "#La la#", "# La la #", "# La la\nla la #", "# La la",
    ],
)  # fmt: skip
def test_a_caption_that_is_a_sound_has_no_words(text: str) -> None:
    assert not any(char.isalnum() for char in without_sounds(text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[door slams] Who is it?", "Who is it?"),
        ("(laughs) Hello.", "Hello."),
        ("Hello. (laughs)", "Hello."),
        ("Hello (laughs)", "Hello"),
        ("Hello, (laughs) my dear.", "Hello, my dear."),
        ("Hello\n(laughs)\nmy dear", "Hello my dear"),
        ("- Hello\n- (laughs) Yes.", "- Hello - Yes."),
        ("\u597d\u7684\uff08\u7b11\uff09", "\u597d\u7684"),
        ("\uff08\u7b11\uff09\u597d\u7684", "\u597d\u7684"),
        ("\u266a La la \u266a Hello.", "Hello."),
        ("Hello. \u266a La la \u266a", "Hello."),
        ("\u266a La la\nHello.", "Hello."),
        ("\u266a One \u266a two \u266a three \u266a", "two"),
        ("Hello. \u266a", "Hello."),
        ("# La la #\nHello.", "Hello."),
        ("Hello.\n#La la#", "Hello."),
        ("ANNA: # La la # Hello.", "ANNA: Hello."),
        ("[speed 1.1] (sighs) Hello.", "[speed 1.1] Hello."),
    ],
)
def test_a_caption_with_a_sound_and_words_keeps_its_words(text: str, words: str) -> None:
    assert left(text) == words


@pytest.mark.parametrize(
    "text",
    [
        "Wait (a little).", "Wait (a little) for me.", "ANNA (softly): Hello.", "(555) 123", "I write C#", "#1 fan",
        "#MeToo is a tag", "Call #4 and #5", "Then press #", "[speed 1.1] Hello.", "One [pause 0.3] two.",
    ],
)  # fmt: skip
def test_what_is_words_is_returned_as_it_was(text: str) -> None:
    assert without_sounds(text) == text


def test_sounds_that_are_read_are_no_tags_and_have_no_notes() -> None:
    assert with_sounds("[door slams] \u266aLa la\u266a [seed 7] (sighs)") == "(door slams) La la [seed 7] (sighs)"


@pytest.mark.parametrize("row", ["\u266a", "\u266aa", "#", "# ", "#a", "(", "(a)", "[", "[a]", " ", "\n", ":#", "a\n"])
def test_a_hundred_thousand_characters_are_read_fast(row: str) -> None:
    """In quadratic time this test would take minutes."""
    without_sounds(row * (100_000 // len(row)))
    without_sounds("a " + row * (100_000 // len(row)) + "\u266a b")
