"""Paths through the tokens of pieces become the times of written words."""

import random
import re
from itertools import pairwise

import numpy as np
import pytest
from qwen3_tts_morph.morph.words.captions import LineWords
from qwen3_tts_morph.morph.words.timing import PiecePath, WordTime, line_words, retime_words
from qwen3_tts_morph.morph.words.written import find_words

FRAME = 0.08


def piece(text: str, frames: dict[str, int], **places) -> PiecePath:
    """Return a piece with a token for each word and each mark, spoken for as many frames as ``frames`` says, or 1."""
    tokens = [match.span() for match in re.finditer(r" ?\w+| ?[^\w\s]", text)]
    counts = [frames.get(text[slice(*span)].strip(), 1) for span in tokens]
    path = tuple(int(token) for token in np.repeat(range(len(tokens)), counts))
    return PiecePath(text, tuple(tokens), path, **places)


def in_frames(words: tuple[WordTime, ...]) -> list[tuple[str, float, float]]:
    return [(word.text, round(word.start_s / FRAME, 3), round(word.end_s / FRAME, 3)) for word in words]


def test_a_word_lasts_as_long_as_its_tokens_and_no_comma_belongs_to_it() -> None:
    words = line_words("Hello, big world.", [piece("Hello, big world.", {"Hello": 4, ",": 2, "big": 3, "world": 5})], 2)
    assert in_frames(words) == [("Hello,", 0, 4), ("big", 6, 9), ("world.", 9, 14)]
    assert [(word.first_char, word.last_char) for word in words] == [(0, 6), (7, 10), (11, 17)]


def test_a_written_word_has_the_time_of_all_that_is_spoken_for_it() -> None:
    said = piece("It costs five dollars now.", {"five": 3, "dollars": 4})
    assert in_frames(line_words("It costs $5 now.", [said], 2)) == [
        ("It", 0, 1),
        ("costs", 1, 2),
        ("$5", 2, 9),
        ("now.", 9, 10),
    ]


def test_pieces_are_where_they_are_in_the_line() -> None:
    pieces = [piece("One is", {"One": 5}, start_s=-0.08), piece("here.", {"here": 5}, start_s=1.0)]
    words = line_words("One is [pause 0.5] here.", pieces, 1.5)
    assert in_frames(words) == [("One", 0, 4), ("is", 4, 5), ("here.", 12.5, 17.5)]


def test_a_number_that_two_pieces_share_is_one_word() -> None:
    pieces = [piece("It is five", {}), piece("hundred men.", {}, start_s=0.24)]
    assert in_frames(line_words("It is 500 men.", pieces, 1)) == [
        ("It", 0, 1),
        ("is", 1, 2),
        ("500", 2, 4),
        ("men.", 4, 5),
    ]


def test_words_of_crossfaded_pieces_do_not_overlap() -> None:
    pieces = [piece("One,", {"One": 5}), piece("two", {"two": 5}, start_s=0.36)]
    assert in_frames(line_words("One, two", pieces, 1)) == [("One,", 0, 4.5), ("two", 4.5, 9.5)]


def test_the_heads_lead_moves_words_within_the_sound() -> None:
    said = piece("One two", {"One": 5, "two": 5})
    assert in_frames(line_words("One two", [said], 0.8, lead_s=0.04)) == [("One", 0.5, 5.5), ("two", 5.5, 10)]
    assert in_frames(line_words("One two", [said], 0.8, lead_s=-0.04)) == [("One", 0, 4.5), ("two", 4.5, 9.5)]


def test_a_word_that_no_frame_belongs_to_has_a_part_of_those_beside_it() -> None:
    short = PiecePath("One a three", ((0, 3), (3, 5), (5, 11)), (0, 0, 2, 2, 2, 2))
    words = line_words("One a three", [short], 1)
    assert in_frames(words) == [("One", 0, 1.5), ("a", 1.5, 2.5), ("three", 2.5, 6)]


def test_words_that_a_path_jumps_over_or_that_are_not_spoken_have_no_length() -> None:
    tokens = tuple((2 * index, 2 * index + 1) for index in range(7))
    words = in_frames(line_words("a b c d e f g", [PiecePath("a b c d e f g", tokens, (0, 0, 6, 6))], 1))
    assert words == [("a", 0, 2), *((word, 2, 2) for word in "bcdef"), ("g", 2, 4)]
    cut = piece("Two three", {}, start_s=0.16)
    words = line_words("1 a b Two three four five.", [cut], 1)
    assert in_frames(words)[-2:] == [("four", 4, 4), ("five.", 4, 4)]
    assert in_frames(line_words("One two", [], 1)) == [("One", 0, 0), ("two", 0, 0)]


def test_a_word_before_a_pause_lasts_until_it_is_quiet() -> None:
    frames = {"One": 3, ",": 5, "two": 3, ".": 5}
    said = piece("One, two.", frames, quiet=((0.4, 0.6), (1.0, 1.28)))
    assert in_frames(line_words("One, two.", [said], 1.28)) == [("One,", 0, 5), ("two.", 8, 12.5)]
    said = piece("One, two.", frames, quiet=((0.2, 0.6),))  # it is quiet before the comma
    assert in_frames(line_words("One, two.", [said], 1.28)) == [("One,", 0, 2.5), ("two.", 8, 11)]


def test_chinese_characters_share_their_tokens_time() -> None:
    said = PiecePath("你好，世界", ((0, 2), (2, 3), (3, 5)), (0, 0, 0, 0, 1, 2, 2))
    assert in_frames(line_words("你好，世界", [said], 1)) == [
        ("你", 0, 2),
        ("好，", 2, 4),
        ("世", 5, 6),
        ("界", 6, 7),
    ]


def test_a_character_of_several_tokens_has_the_time_of_all() -> None:
    said = PiecePath("鿫 a", ((0, 1), (0, 1), (1, 3)), (0, 0, 1, 2))
    assert in_frames(line_words("鿫 a", [said], 1)) == [("鿫", 0, 3), ("a", 3, 4)]


@pytest.mark.parametrize(
    ("quiet", "expected"),
    [
        ([(0, 0.1)], [("One", 1.25, 5), ("two", 5, 10)]),  # before the first word
        ([(0.3, 0.5)], [("One", 0, 3.75), ("two", 6.25, 10)]),  # where one ends and the other begins
        ([(0.7, 0.8)], [("One", 0, 5), ("two", 5, 8.75)]),  # at the end
        ([(0.44, 0.66)], [("One", 0, 5), ("two", 8.25, 10)]),  # a pause; most of the word is behind it
        ([(0.54, 0.75)], [("One", 0, 5), ("two", 5, 6.75)]),  # a pause; most of the word is before it
        ([(0.44, 0.53)], [("One", 0, 5), ("two", 5, 10)]),  # too short for a pause
        ([(0.39, 0.81)], [("One", 0, 4.875), ("two", 5, 10)]),  # it is too quiet to tell
    ],
)
def test_quiet_around_words_is_nobodys(quiet, expected) -> None:
    said = piece("One two", {"One": 5, "two": 5}, quiet=tuple(quiet))
    assert in_frames(line_words("One two", [said], 0.8)) == expected


TEXT = "At 10:30, Dr. Lee paid $5 -- [pause 0.3] \u201cReally?\u201d 你好 & more\u2026"
SAID = ["At ten thirty, Doctor Lee paid five dollars --", "\u201cReally?\u201d 你好 and more\u2026"]


def test_whatever_the_path_all_words_have_times_in_order() -> None:
    chance = random.Random(6)
    for _ in range(200):
        pieces, at = [], -0.3
        for text in SAID[: chance.randrange(3)]:
            tokens = piece(text, {}).tokens
            path = sorted(chance.randrange(-1, len(tokens)) for _ in range(chance.randrange(60)))
            edges = sorted(chance.uniform(0, 5) for _ in range(4))
            quiet = ((edges[0], edges[1]), (edges[2], edges[3]))
            pieces.append(PiecePath(text, tokens, tuple(path), at, quiet))
            at += chance.uniform(0, 6)
        words = line_words(TEXT, pieces, 4.0, chance.uniform(-0.2, 0.2))
        assert [word.text for word in words] == [word.text for word in find_words(TEXT)]
        assert all(one.end_s <= other.start_s for one, other in pairwise(words))
        assert all(0 <= word.start_s <= word.end_s <= 4.0 for word in words)


def test_words_move_with_their_sound() -> None:
    words = line_words("One two", [piece("One two", {"One": 5, "two": 5})], 1)
    assert in_frames(LineWords(words).at(0.8).words) == [("One", 10, 15), ("two", 15, 20)]
    assert in_frames(retime_words(words, 2.0)) == [("One", 0, 2.5), ("two", 2.5, 5)]


def test_a_word_does_not_end_before_it_starts() -> None:
    with pytest.raises(ValueError, match="'one' runs from 2 to 1 s"):
        WordTime("one", 2, 1, 0, 3)
