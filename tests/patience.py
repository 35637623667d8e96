"""How long a test waits for what must happen: only a test that fails waits so long, on however busy a machine."""

import time
from collections.abc import Callable

PATIENCE = 600.0  # seconds


def wait_until(done: Callable[[], bool]) -> None:
    """Wait for something that happens in another thread or process."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
