"""The most recently used values."""

import pytest
from qwen3_tts_morph.morph.runtime.recent import Recent


def test_the_values_used_last_are_kept():
    recent = Recent(2)
    recent.keep("a", 1)
    recent.keep("b", 2)
    assert recent.get("a") == 1
    recent.keep("c", 3)
    assert recent.get("b") is None and len(recent) == 2 and recent.get("a") == 1


def test_a_value_is_made_once():
    recent = Recent(2)
    assert recent.get_or_make("a", lambda: 1) == 1
    assert recent.get_or_make("a", lambda: pytest.fail("made again")) == 1


def test_making_a_value_may_take_others():
    """Also more of them than are kept."""
    recent = Recent(2)
    made = recent.get_or_make(
        "sum", lambda: sum(recent.get_or_make(number, lambda n=number: n) for number in range(5))
    )
    assert made == 10 and recent.get("sum") == 10 and len(recent) == 2


def test_values_made_with_something_else_are_released():
    recent = Recent(2)
    recent.use("one device")
    recent.keep("a", 1)
    recent.use("one device")
    assert recent.get("a") == 1
    recent.use("another")
    assert recent.get("a") is None
