"""The garbage collector leaves older objects alone while a block runs, and no longer."""

import gc
import weakref

import pytest
from qwen3_tts_morph.morph.runtime import collector
from qwen3_tts_morph.morph.runtime.collector import CollectorPauses, frozen_objects
from qwen3_tts_morph.morph.runtime.threads import SharedSetting


class Knot:
    """Refers to itself: only the collector can free it."""

    def __init__(self) -> None:
        self.itself = self


def test_older_objects_are_spared_as_long_as_the_block_runs():
    assert not gc.get_freeze_count(), "another test has left the collector frozen"
    knot = Knot()  # held until the block runs: the collector may come at any time
    older = weakref.ref(knot)
    with frozen_objects():
        del knot
        newer = weakref.ref(Knot())
        gc.collect()
        assert newer() is None and older() is not None
        with frozen_objects():
            pass
        assert gc.get_freeze_count(), "the outer block goes on"
    assert not gc.get_freeze_count()
    gc.collect()
    assert older() is None


def test_pauses_are_counted_from_the_beginning_to_the_end():
    pauses = CollectorPauses()
    gc.collect()
    pauses.begin()
    try:
        gc.collect()
        counted = pauses.count
        assert counted and 0 < pauses.longest <= pauses.seconds
    finally:
        pauses.end()
    pauses.end()
    gc.collect()
    assert pauses.count == counted


def test_blocks_of_several_threads_are_spared_until_the_last_ends():
    first, second = frozen_objects(), frozen_objects()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_freeze_count(), "the other goes on"
    second.__exit__(None, None, None)
    assert not gc.get_freeze_count()


def test_what_somebody_else_spares_stays_so():
    gc.freeze()
    try:
        with frozen_objects():
            pass
        assert gc.get_freeze_count()
    finally:
        gc.unfreeze()


def test_nothing_is_counted_where_objects_are_spared_for_good(monkeypatch):
    """It would take as long as a look at them."""
    monkeypatch.setattr(collector, "_FROZEN", SharedSetting(collector._freeze))
    collector.freeze_for_good()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(gc, "get_freeze_count", lambda: pytest.fail("counted"))
            with collector._FROZEN.block():
                pass
        assert gc.get_freeze_count()
    finally:
        gc.unfreeze()
