"""What the server writes to its log."""

from __future__ import annotations

import logging
from typing import TextIO


def start_log(stream: TextIO | None = None) -> None:
    """Log to a stream, None for stderr. No text that is spoken is logged."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=stream)
    logging.getLogger("kitten_text_processing").setLevel(logging.WARNING)  # it logs whole sentences
