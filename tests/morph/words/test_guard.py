"""Words that are skipped, said twice or invented: lines of ten words of two tokens each, and recorded ones."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from qwen3_tts_morph.morph.words.guard import WordFault, WordGuard

WORDS, COUNT = [(2 * word, 2 * word + 2) for word in range(10)], 21  # the last token is the full stop
STOP = [20, 20]
RECORDED = json.loads((Path(__file__).parents[2] / "data" / "forced_faults.json").read_text(encoding="utf-8"))


def said(*words: int) -> list[int]:
    return [token for word in words for token in (2 * word, 2 * word, 2 * word + 1)]


def find(tokens: Iterable[int], ended: bool = True, weights: Iterable[float] = ()) -> WordFault | None:
    frames = list(tokens)
    return follow(WordGuard(WORDS, COUNT), frames, [*weights] or [0.9] * len(frames), ended)


def follow(guard: WordGuard, tokens: list[int], weights: list[float], ended: bool = True) -> WordFault | None:
    for frame in zip(tokens, weights, strict=True):
        if (fault := guard.take(*frame)) is not None:
            return fault
    return guard.end() if ended else None


def span(fault: WordFault | None) -> tuple[str, int, int] | None:
    return None if fault is None else (fault.kind, fault.first, fault.end)


def test_a_line_that_is_said_well_has_no_fault() -> None:
    assert find([*said(*range(10)), *STOP]) is None
    assert find([-1, -1, *said(*range(10)), *STOP]) is None  # the text comes later than the first frames


def test_a_look_ahead_or_back_and_a_short_token_that_is_passed_over_are_no_faults() -> None:
    line = [*said(*range(10)), *STOP]
    assert find([*line[:10], 18, *line[10:]]) is None
    assert find([*line[:22], 0, *line[22:]]) is None
    line.remove(7)
    assert find(line) is None


def test_skipped_words_are_named_soon() -> None:
    assert span(find(said(0, 1, 2, 6), ended=False)) == ("skipped", 6, 12)


def test_a_line_that_ends_early_skips_the_rest_only_if_it_ended_by_itself() -> None:
    assert span(find(said(0, 1, 2, 3, 4, 5, 6))) == ("skipped", 14, 20)
    assert find(said(0, 1, 2, 3), ended=False) is None


def test_a_full_stop_at_the_end_does_not_say_the_last_word() -> None:
    assert span(find([*said(*range(9)), *STOP])) == ("skipped", 18, 20)


def test_words_that_are_said_twice() -> None:
    assert span(find([*said(0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7, 8, 9), *STOP])) == ("repeated", 4, 10)


def test_sound_without_the_text() -> None:
    line = [*said(0, 1, 2), *[4] * 12, *said(*range(3, 10)), *STOP]
    assert span(find(line, weights=[0.9] * 9 + [0.05] * 12 + [0.9] * 23)) == ("invented", 4, 6)


def test_silence_behind_the_last_word_may_last() -> None:
    line = [*said(*range(10)), *STOP, *[20] * 12]
    assert find(line, weights=[0.9] * 32 + [0.0] * 12) is None
    assert span(find([*line, *[20] * 32], weights=[0.9] * 32 + [0.0] * 44)) == ("invented", 18, 20)


def test_a_word_that_is_held_for_seconds() -> None:
    assert span(find([*said(0, 1), *[4] * 30], ended=False)) == ("invented", 4, 6)


@pytest.mark.parametrize("line", RECORDED, ids=lambda line: f"{line['kind']}: {line['spoken']}")
def test_recorded_lines(line) -> None:
    fault = follow(WordGuard(line["words"], line["count"]), line["tokens"], line["weights"])
    assert (fault is None) == (line["kind"] == "unchanged")
