"""The fixtures of the commands' tests."""

from tests.serve.commands.conftest import alone, checkpoints, run, tiny

__all__ = ["alone", "checkpoints", "run", "tiny"]
