"""Spoken words find the written words that they are spoken for."""

import random
from collections.abc import Sequence
from itertools import accumulate, pairwise

import pytest
from qwen3_tts_morph.morph.words.match import owners
from qwen3_tts_morph.morph.words.written import find_words

from tests.morph.examples import read_examples
from tests.morph.text.test_readings import heard, read_table


def words(text: str) -> list[str]:
    return [word.text for word in find_words(text)]


def shown(text: str, said: str) -> str:
    """Return a text whose words are followed by what is spoken for them, where that is something else."""
    written, spoken = words(text), words(said)
    own = owners(written, spoken)
    groups = [[said for said, row in zip(spoken, own, strict=True) if row == index] for index in range(len(written))]
    pairs = zip(written, groups, strict=True)
    return " ".join(word if group == [word] else f"{word}<{' '.join(group)}>" for word, group in pairs)


@pytest.mark.parametrize(
    ("text", "said", "expected"),
    [
        (
            "Meet me at 10:30 a.m. on 5/12.",
            "Meet me at ten thirty ay em on May twelfth.",
            "Meet me at 10:30<ten thirty> a.m.<ay em> on 5/12.<May twelfth.>",
        ),
        ("It costs $5.", "It costs five dollars.", "It costs $5.<five dollars.>"),
        (
            "$1.5 million now",
            "One point five million dollars now",
            "$1.5<One point five> million<million dollars> now",
        ),
        (
            "10:30 $5 7%",
            "ten thirty five dollars seven percent",
            "10:30<ten thirty> $5<five dollars> 7%<seven percent>",
        ),
        ("5 five five five", "five five five five", "5<five> five five five"),
        (
            "one 123 one two three",
            "one one hundred twenty three one two three",
            "one 123<one hundred twenty three> one two three",
        ),
        (
            "Dr. Lee, St. John Dr., 6 ft. 2 in.",
            "Doctor Lee, Saint John Drive, six feet two inches.",
            "Dr.<Doctor> Lee, St.<Saint> John Dr.,<Drive,> 6<six> ft.<feet> 2<two> in.<inches.>",
        ),
        ("The CEO of IBM", "The see ee oh of eye bee em", "The CEO<see ee oh> of IBM<eye bee em>"),
        ("Wi-Fi is on", "Wi Fi is on", "Wi-Fi<Wi Fi> is on"),
        ("So it goes", "So then it goes", "So<So then> it goes"),
        ("It goes", "Then it goes", "It<Then it> goes"),
        ("A 你 b", "A b", "A 你<> b"),
        ("We read it all", "We read", "We read it<> all<>"),
        ("They left", "", "They<> left<>"),
    ],
)
def test_spoken_words_belong_to_what_was_written(text, said, expected) -> None:
    assert shown(text, said) == expected


def sentences() -> list[tuple[str, str]]:
    """Return sentences and how they are read, and the rules' examples: the library takes long and is not asked."""
    read = [(sentence, heard(readings[0])) for sentence, readings in read_table("english_readings_open.tsv")]
    return read + read_examples("english_rules.txt")


def check(written: Sequence[str], spoken: Sequence[str]) -> list[int]:
    """Check that every spoken word has one written word, in order."""
    own = owners(written, spoken)
    assert len(own) == len(spoken) and all(0 <= row < len(written) for row in own)
    assert all(before <= after for before, after in pairwise(own))
    return own


@pytest.fixture(scope="module")
def cases() -> list[tuple[list[str], list[str]]]:
    return [(words(text), words(said)) for text, said in sentences()]


def test_each_word_of_a_sentence_is_spoken_once_and_in_order(cases) -> None:
    silent = 0
    for written, spoken in cases:
        silent += len(written) - len(set(check(written, spoken)))
    assert silent <= 0.01 * sum(len(written) for written, _ in cases)


def test_no_spoken_word_belongs_to_another_sentence(cases) -> None:
    """Many sentences as one text: where each begins is known."""
    chance = random.Random(2)
    wrong = 0
    for _ in range(5):
        chance.shuffle(cases)
        own = check([word for one, _ in cases for word in one], [word for _, one in cases for word in one])
        ends = list(accumulate(len(one) for one, _ in cases))
        of = [number for number, (_, spoken) in enumerate(cases) for _ in spoken]
        wrong += sum(
            not (ends[number] - len(cases[number][0]) <= row < ends[number])
            for number, row in zip(of, own, strict=True)
        )
    assert wrong <= 0.005 * 5 * sum(len(spoken) for _, spoken in cases)


def test_long_lists_of_figures_are_read_in_order() -> None:
    values = [("7", "seven"), ("42", "forty two"), ("1999", "nineteen ninety nine"), ("$5", "five dollars")]
    chance = random.Random(3)
    chosen = [chance.choice(values) for _ in range(300)]
    written, spoken = [one for one, _ in chosen], [word for _, said in chosen for word in said.split()]
    expected = [row for row, (_, said) in enumerate(chosen) for _ in said.split()]
    assert check(written, spoken) == expected


def test_any_words_are_shared_out_in_order() -> None:
    chance = random.Random(4)
    for _ in range(300):
        written = [chance.choice(["a", "b", "c", "5", "$1", "NASA"]) for _ in range(chance.randrange(1, 12))]
        spoken = [chance.choice(["a", "b", "c", "five", "one", "dollar", "x"]) for _ in range(chance.randrange(12))]
        check(written, spoken)
