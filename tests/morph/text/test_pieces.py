"""The pieces of a text that comes in parts are those of the whole text, and come as early as they can."""

import random
from collections.abc import Iterable, Iterator

import pytest
from qwen3_tts_morph.morph.text.pieces import ArrivingPieces, split_text

WORDS = ["one", "twenty-two", "three,", "Dr. Four", "five;", "“Six”", "sevenfold" * 6, "3.14", "p.m.", "U.S."]
ENDS = (".", ".", ".", "!", '."', " Dr.", " B.", " p.m.", "", ",", "…", "?”")


def arriving(parts: Iterable[tuple[str, bool]], limit: int) -> Iterator[str]:
    pieces = ArrivingPieces(limit)
    for text, ends in parts:
        yield from filter(None, map(str.strip, pieces.add(text, ends)))
    yield from filter(None, map(str.strip, pieces.end()))


def sentence(draws: random.Random, words: list[str], longest: int) -> str:
    made = " ".join(draws.choices(words, k=draws.randrange(1, longest)))
    return f"{made[0].upper()}{made[1:]}{draws.choice(ENDS)}"


def in_parts(text: str, draws: random.Random) -> Iterator[tuple[str, bool]]:
    """Give a sentence in parts that end between words."""
    words, at = text.split(), 0
    while at < len(words):
        count = draws.randrange(1, 12)
        yield " ".join(words[at : at + count]), at + count >= len(words)
        at += count


@pytest.mark.parametrize("limit", [0, 40, 60, 100, 400])
@pytest.mark.parametrize("longest", [30, 150])
def test_sentences_that_come_one_after_another_are_cut_as_their_whole_text(limit: int, longest: int) -> None:
    for seed in range(30):
        draws = random.Random(seed)
        words = draws.choice([WORDS, WORDS[:2] + WORDS[6:8]])  # also without commas
        texts = [sentence(draws, words, longest) for _ in range(12)]
        whole = split_text(" ".join(texts), limit)
        assert [*arriving(((text, True) for text in texts), limit)] == whole, texts
        parts = (part for text in texts for part in in_parts(text, draws))
        assert [*arriving(parts, limit)] == whole, texts


@pytest.mark.parametrize(
    ("part", "ends", "most"),
    [
        ("It was here.", True, 10),  # sentences
        ("and it was here,", False, 10),  # one sentence of clauses
        ("and it was here", False, 100),  # one clause: its pieces are of similar length
        ("x" * 30, False, 100),
    ],
)
def test_a_piece_does_not_wait_for_the_whole_text(part: str, ends: bool, most: int) -> None:
    taken: list[int] = []

    def arrive() -> Iterator[tuple[str, bool]]:
        for number in range(500):
            taken.append(number)
            yield part, ends

    pieces = arriving(arrive(), 100)
    next(pieces)
    assert len(taken) <= most
    before = len(taken)
    next(pieces)
    assert len(taken) - before <= 10


def test_a_text_without_words_has_no_pieces() -> None:
    assert [*arriving([("", True), (" ", True)], 100)] == []
    assert [*arriving([("", True)], 0)] == []
