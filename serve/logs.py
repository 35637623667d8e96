"""The server's log."""

import logging
from contextvars import ContextVar
from typing import TextIO

# Of the current request in this task, or "".
request_id: ContextVar[str] = ContextVar("request_id", default="")


class RequestFormatter(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        line, name = super().formatMessage(record), request_id.get()
        return f"{line} [{name}]" if name else line


def start_log(stream: TextIO | None = None) -> None:
    """Log to a stream, None for stderr. No spoken text is logged."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(RequestFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("kitten_text_processing").setLevel(logging.WARNING)  # it logs sentences
