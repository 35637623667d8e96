"""The fixtures of the engine's tests: a tiny random checkpoint, models loaded from it, a recording."""

from tests.morph.conftest import checkpoint, load, one_thread, recording

__all__ = ["checkpoint", "load", "one_thread", "recording"]
