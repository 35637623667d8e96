"""The tiny checkpoints of the engine's tests, for the strategies that decode with its predictor."""

from __future__ import annotations

from tests.morph.conftest import checkpoint, load, one_thread

__all__ = ["checkpoint", "load", "one_thread"]
