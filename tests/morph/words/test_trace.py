"""What engines report of the alignment head, as a trace, and as lists in files."""

import json

import numpy as np
from qwen3_tts_morph.morph.words.alignment import NO_TOKEN, SCALE, Trace
from qwen3_tts_morph.morph.words.head import PUBLISHED_HEADS, AlignmentHead, TalkerShape

NUMBERS = np.array([[NO_TOKEN, 0, 0], [1, SCALE // 2, SCALE], [4, SCALE // 4, SCALE // 2]])


def test_reported_numbers_are_a_trace() -> None:
    trace = Trace.from_numbers(NUMBERS)
    assert trace.tokens.tolist() == [NO_TOKEN, 0, 3]
    assert trace.weights.tolist() == [0, 0.5, 0.25] and trace.mass.tolist() == [0, 1, 0.5]
    assert len(trace.tokens) == 3 and trace.begin(2).to_lists() == Trace.from_numbers(NUMBERS[:2]).to_lists()


def test_where_nothing_is_reported_there_is_no_trace() -> None:
    assert Trace.from_numbers(np.zeros((5, 3), dtype=np.int64)) is None
    assert Trace.from_numbers(NUMBERS[:0]) is None


def test_a_trace_comes_back_from_lists() -> None:
    trace = Trace.from_numbers(NUMBERS)
    back = Trace.from_lists(json.loads(json.dumps(trace.to_lists())))
    for name in ("tokens", "weights", "mass"):
        one, other = getattr(back, name), getattr(trace, name)
        assert one.dtype == other.dtype and np.array_equal(one, other)


def test_published_talkers_have_a_head() -> None:
    heads = {name: PUBLISHED_HEADS.get(TalkerShape(width, 28, 16)) for name, width in (("0.6B", 1024), ("1.7B", 2048))}
    assert heads == {"0.6B": AlignmentHead(6, 5), "1.7B": AlignmentHead(3, 0)}
    assert PUBLISHED_HEADS.get(TalkerShape(384, 6, 6)) is None
