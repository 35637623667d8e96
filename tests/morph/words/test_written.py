"""The words of texts as their writers see them, in any language."""

import random

import pytest
from qwen3_tts_morph.morph.text.split import PAUSE
from qwen3_tts_morph.morph.words.written import find_words, said_span


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, world!", ["Hello,", "world!"]),
        ('He said: "It\'s $5."', ["He", "said:", "\"It's", '$5."']),
        (
            "Yes \u2014 no\u2026 Wait\u2014what? a--b",
            ["Yes \u2014", "no\u2026", "Wait\u2014", "what?", "a--", "b"],
        ),
        ("\u2026 so 2 + 2 = 4 - really", ["\u2026 so", "2", "+", "2", "=", "4 -", "really"]),
        ("\xab Bonjour \xbb, dit-il. \xbfQu\xe9?", ["\xab Bonjour \xbb,", "dit-il.", "\xbfQu\xe9?"]),
        ("\u201cNo,\u201d she said. (Quietly.)", ["\u201cNo,\u201d", "she", "said.", "(Quietly.)"]),
        ("你好，世界！5G网络。", ["你", "好，", "世", "界！", "5G", "网", "络。"]),
        ("「東京」は、キャッシュレス。", ["「東", "京」", "は、", "キャッ", "シュ", "レ", "ス。"]),
        ("안녕하세요, 여러분.", ["안녕하세요,", "여러분."]),
        ("One. [pause 0.4] Two [pause 1]three.", ["One.", "Two", "three."]),
        ("Nice \U0001f642 day \u2764\ufe0f.", ["Nice \U0001f642", "day \u2764\ufe0f."]),
        ("Она сказала: «Нет».", ["Она", "сказала:", "«Нет»."]),
        ("End (", ["End ("]),
        ("...", []),
        ("", []),
    ],
)
def test_words_have_their_punctuation(text, words) -> None:
    found = find_words(text)
    assert [word.text for word in found] == words
    assert all(" ".join(text[word.first : word.last].split()) == word.text for word in found)


PARTS = [
    "ab", "1", ",", ".", "(", ")", "\u201c", "\u2026", "--", "-", "&", "你", "ー", "。", "「", "[pause 0.5]", "\n",
    "\xbf",
]  # fmt: skip
PARTS += ["\U0001f642", "\u2014", "\xe9", "e\u0301", " ", " ", " "]


def test_every_character_is_in_one_word() -> None:
    chance = random.Random(1)
    for _ in range(500):
        text = "".join(chance.choice(PARTS) for _ in range(chance.randrange(1, 30)))
        words = find_words(text)
        if not words:
            continue
        places = [index for word in words for index in range(word.first, word.last)]
        assert places == sorted(set(places))
        shown = PAUSE.sub(lambda match: " " * len(match[0]), text)
        assert all(index in set(places) for index, char in enumerate(shown) if not char.isspace())


def test_what_is_heard_of_a_word_has_no_punctuation_around_it() -> None:
    text = '("Don\'t," & so'
    words = find_words(text)
    assert [text[slice(*said_span(word, text))] for word in words] == ["Don't", "&", "so"]
