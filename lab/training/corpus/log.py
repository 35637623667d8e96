"""One log per step: on the terminal, and appended to a file."""

from __future__ import annotations

import logging
from pathlib import Path


def start_log(file: Path) -> None:
    """Send this process's log to the terminal and to ``file``."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handlers: list[logging.Handler] = [logging.StreamHandler(), logging.FileHandler(file, encoding="utf-8")]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", handlers=handlers, force=True)
