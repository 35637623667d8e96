"""The server's log."""

import logging
from contextvars import ContextVar
from typing import TextIO

# Of the current request, "" outside of one; each task has its own.
request_id: ContextVar[str] = ContextVar("request_id", default="")


class RequestFormatter(logging.Formatter):
    """Adds the current request's id to log lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        line, name = super().formatMessage(record), request_id.get()
        return f"{line} [{name}]" if name else line


def start_log(stream: TextIO | None = None) -> None:
    """Log to a stream, None for stderr. No spoken text is logged."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(RequestFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("kitten_text_processing").setLevel(logging.WARNING)  # it logs whole sentences
