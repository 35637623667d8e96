"""Texts in parts: whole sentences, however they are cut."""

import random

import pytest
from qwen3_tts_morph.morph.text import pieces
from qwen3_tts_morph.morph.text.pieces import Sentences
from qwen3_tts_morph.morph.text.split import split_sentences

WORDS = [
    *["Hello", "he", "said", "Dr.", "U.S.", "e.g.", "3.", "14", "z.B", "A", "x", "\u4f60\u597d", "\u00bb"],
    *["no", "can't", "ok", "d", "sat", "She", "It's", "p.m"],
    *["\xab", "[1]", "\u4f60!", "\u597d?\u201d"],
    *[
        ". ",
        ".",
        "! ",
        "?",
        "\u2026",
        "...",
        "\u3002",
        "\u300d",
        '"',
        ".\u201d ",
        " \u00bb ",
        "\n",
        " ",
        "  \n",
        ", ",
    ],
]
TEXTS = [
    'Dr. Smith said "Stop!" he ran. It cost 3.14 at most. No full stop',
    "\u4f60\u597d\u3002\u300c\u5b83\uff01\u300d\u5b83\u8d70\u4e86\u3002",
    "Non. \u00bb Oui ! \n\n End\u2026 and so on... \u2026 yes",
    "Er kommt, d. h. am Montag. Das kostet 3 Mio. Euro. See No. 5 on Sat. at 6. I can't. Go. i went. it was late.",
    "",
    " \n ",
]


def made_texts() -> list[str]:
    draws = random.Random(3)
    return [*TEXTS, *("".join(draws.choices(WORDS, k=draws.randint(1, 25))) for _ in range(400))]


def in_parts(text: str, draws: random.Random) -> list[str]:
    cuts = sorted(draws.choices(range(len(text) + 1), k=draws.randint(0, 8)))
    return [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def test_sentences_are_those_of_the_whole_text_however_it_is_cut():
    draws = random.Random(4)
    for text in made_texts():
        for parts in (list(text), in_parts(text, draws), [text]):
            cutter = Sentences()
            found = [sentence for part in parts for sentence in cutter.add(part)] + cutter.end()
            assert found == split_sentences(text), (text, parts)


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("Hello there. H", ["Hello there."]),
        ("Hello there. ", []),
        ("It is 3.", []),
        ("One\n", ["One"]),
        ("\u4f60\u597d\u3002\u5b83", ["\u4f60\u597d\u3002"]),
        ('"Stop!" ', []),
        ("We meet on Mar. ", []),
        ("We meet on Mar. 5", []),
        ("We went to the mar. T", ["We went to the mar."]),
        ("Er kommt, d. h. a", []),
        ("\xbbHalt!\xab \xbbW", ["\xbbHalt!\xab"]),
        ("In 1920.[1] H", ["In 1920.[1]"]),
        ("In 1920.[1", []),
        ("\u4f60\u597d\u3002[1", []),
        ("\u4f60\u597d!", []),
        ("\u4f60\u597d!\u5b83", ["\u4f60\u597d!"]),
        ("Made in the U.S. I", []),
        ("Made in the U.S. It ", ["Made in the U.S."]),
        ("Made in the U.S. Items ", []),
        ("Number 5 among 6. The", []),
        ("Number 5 and 6. The next", ["Number 5 and 6."]),
        ("So do I. He ", ["So do I."]),
        ("It was 25. M", ["It was 25."]),
        ("1. The next ", []),
    ],
)
def test_a_sentence_is_given_when_the_next_begins(text, complete):
    assert Sentences().add(text) == complete


@pytest.mark.parametrize("row", ["5. ", "A. ", "Dr. ", "word ", "word. ", ".", " ", '"', ". \u00bb", "[1", "\u4f60!"])
def test_a_text_in_small_parts_is_looked_at_in_linear_time(row, monkeypatch) -> None:
    """In characters that are looked at, not in seconds."""
    looked: list[int] = []
    original = pieces.sentence_marks

    def count(text, first):
        looked.append(len(text) - first)
        return original(text, first)

    monkeypatch.setattr(pieces, "sentence_marks", count)
    totals = []
    for length in (8_000, 16_000):
        looked.clear()
        text, sentences = (row * length)[:length], Sentences()
        for at in range(0, length, 4):
            sentences.add(text[at : at + 4])
        totals.append(sum(looked))
    assert totals[1] <= 2.5 * totals[0] + 1000
