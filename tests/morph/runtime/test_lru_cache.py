"""The most recently used values."""

import pytest
from qwen3_tts_morph.morph.runtime.lru_cache import LruCache


def test_the_values_used_last_are_kept():
    cache = LruCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert cache.get("b") is None and len(cache) == 2 and cache.get("a") == 1


def test_a_value_is_made_once():
    cache = LruCache(2)
    assert cache.get_or_create("a", lambda: 1) == 1
    assert cache.get_or_create("a", lambda: pytest.fail("made again")) == 1


def test_making_a_value_may_take_others():
    """Also more of them than are kept."""
    cache = LruCache(2)
    made = cache.get_or_create(
        "sum", lambda: sum(cache.get_or_create(number, lambda n=number: n) for number in range(5))
    )
    assert made == 10 and cache.get("sum") == 10 and len(cache) == 2


def test_values_made_with_something_else_are_released():
    cache = LruCache(2)
    cache.set_origin("one device")
    cache.put("a", 1)
    cache.set_origin("one device")
    assert cache.get("a") == 1
    cache.set_origin("another")
    assert cache.get("a") is None
