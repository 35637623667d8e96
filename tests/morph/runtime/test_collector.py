"""The garbage collector leaves older objects alone while a block runs, and no longer."""

from __future__ import annotations

import gc
import weakref

from qwen3_tts_morph.morph.runtime.collector import Pauses, older_objects_spared


class Knot:
    """Refers to itself: only the collector can free it."""

    def __init__(self) -> None:
        self.itself = self


def test_older_objects_are_spared_as_long_as_the_block_runs():
    assert not gc.get_freeze_count(), "another test has left the collector frozen"
    knot = Knot()  # held until the block runs: the collector may come at any time
    older = weakref.ref(knot)
    with older_objects_spared():
        del knot
        newer = weakref.ref(Knot())
        gc.collect()
        assert newer() is None and older() is not None
        with older_objects_spared():
            pass
        assert gc.get_freeze_count(), "the outer block goes on"
    assert not gc.get_freeze_count()
    gc.collect()
    assert older() is None


def test_pauses_are_counted_from_the_beginning_to_the_end():
    pauses = Pauses()
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
