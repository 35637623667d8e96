"""Words that are skipped, said twice or invented: lines of ten words of two tokens each, 20 and 21 are punctuation."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from qwen3_tts_morph.morph.words.guard import FRAMES, WordFault, WordGuard, word_faults

WORDS = [(2 * word, 2 * word + 2) for word in range(10)]


def said(*words: int) -> list[int]:
    """Return the tokens of frames that say these words."""
    return [token for word in words for token in (2 * word, 2 * word, 2 * word + 1)]


def faults(tokens: Iterable[int], ended: bool = True) -> list[WordFault]:
    frames = list(tokens)
    return word_faults(frames, [0.9] * len(frames), WORDS, ended)


def spans(found: Iterable[WordFault]) -> list[tuple[str, int, int]]:
    return [(fault.kind, fault.first, fault.end) for fault in found]


def test_a_line_that_is_said_well_has_no_fault() -> None:
    assert faults([*said(*range(10)), 20, 21, 21]) == []


def test_a_look_ahead_or_back_and_a_short_word_that_is_passed_over_are_no_faults() -> None:
    line = said(*range(10))
    line[10:10] = [18, 18]
    line[22:22] = [0]
    assert faults(line) == []
    assert faults(said(0, 1, 2, 4, 5, 6, 7, 8, 9)) == []


def test_skipped_words_are_told_soon_and_once() -> None:
    line = said(0, 1, 2, 6, 7, 8, 9)
    [fault] = faults(line)
    assert spans([fault]) == [("skipped", 6, 12)]
    assert fault.frames <= len(said(0, 1, 2, 6))


def test_a_line_that_ends_early_skips_the_rest_only_if_it_ended_by_itself() -> None:
    assert spans(faults(said(0, 1, 2, 3, 4, 5, 6))) == [("skipped", 14, 20)]
    assert faults(said(0, 1, 2, 3), ended=False) == []


def test_a_full_stop_at_the_end_does_not_say_the_last_word() -> None:
    assert spans(faults([*said(*range(9)), 20, 20, 21])) == [("skipped", 18, 20)]


def test_a_word_in_the_silence_at_the_end_is_not_said_twice() -> None:
    assert faults([*said(*range(10)), 20, 4, 4, 4, 4, 20]) == []


def test_a_line_without_words_is_refused() -> None:
    with pytest.raises(ValueError, match="leave it out"):
        WordGuard([])


def test_words_that_are_said_twice() -> None:
    assert spans(faults(said(0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7, 8, 9))) == [("repeated", 4, 10)]


def test_going_back_to_words_that_were_passed_over_is_no_repetition() -> None:
    assert faults([*said(0, 1, 2)[:-1], 8, *said(3, 4, 5, 6, 7, 8, 9)]) == []


def test_sound_without_the_text_is_told_once() -> None:
    guard = WordGuard(WORDS)
    for token in said(0, 1, 2):
        assert guard.take(token, 0.9) is None
    found = [fault for _ in range(2 * FRAMES) if (fault := guard.take(4, 0.05))]
    assert spans(found) == [("invented", 4, 6)]


def test_silence_behind_the_last_word_may_last() -> None:
    line = said(*range(10))
    quiet = [0.9] * len(line) + [0.0] * 12
    assert word_faults([*line, *[21] * 12], quiet, WORDS) == []
    quiet += [0.0] * 20
    assert spans(word_faults([*line, *[21] * 32], quiet, WORDS)) == [("invented", 18, 20)]


def test_a_word_that_is_held_for_seconds_is_told() -> None:
    assert spans(faults([*said(0, 1), *[4] * 30], ended=False)) == [("invented", 4, 6)]


def test_text_that_comes_late() -> None:
    guard = WordGuard(WORDS[:3])
    guard.add(WORDS[3:])
    for token in said(*range(10)):
        assert guard.take(token, 0.9) is None
    assert guard.end() == []


def test_frames_that_see_no_token_say_nothing() -> None:
    assert word_faults([-1, -1, *said(*range(10))], [0.0, 0.0, *[0.9] * 30], WORDS) == []
