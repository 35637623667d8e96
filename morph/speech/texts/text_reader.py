"""Read a line's text from an iterator in its own thread, so that late text delays nothing else."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable, Iterable, Iterator

from ...runtime.bell import Bell
from ...text.arriving import Sentences

log = logging.getLogger(__name__)

MOST_UNREAD = 20_000  # characters; an iterator farther ahead of the speech waits


class TextReader:
    """One thread that reads one iterator of strings, and closes it; only that thread touches it.

    ``layout`` (see ``Line``) decides when there is something to speak: at a complete sentence, or at the first word.
    """

    def __init__(self, parts: Iterable[str], bell: Bell, layout: str = "sentence"):
        self._parts, self.bell = parts, bell
        self._adds_speech: Callable[[str], object] = str.strip if layout == "token" else Sentences().add
        self.has_news = False  # whether ``take`` would return speakable text, or the end
        self._changed = threading.Condition()
        self._text: list[str] = []
        self._unread = 0
        self._ended = self._closed = False
        self._error: BaseException | None = None
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(self._run,), name="speech text", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def take(self) -> tuple[str, bool, BaseException | None]:
        """Return the text since the last call, whether that was all, and the iterator's error."""
        with self._changed:
            text, self._text, self._unread = "".join(self._text), [], 0
            self.has_news = False
            self._changed.notify_all()
            return text, self._ended, self._error

    def close(self) -> None:
        """Stop reading, without waiting. The iterator is closed at once, or when it gives its next string."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        error, parts = None, None
        try:
            parts = iter(self._parts)
            self._read(parts)
        except BaseException as raised:
            error = raised
        with self._changed:
            self._error, self._ended, self.has_news = error, True, True
        self.bell.set()
        try:  # after the end was reported, as it may take long
            if (close := getattr(parts, "close", None)) is not None:
                close()
        except Exception:
            log.info("the iterator of a text could not be closed", exc_info=True)

    def _read(self, parts: Iterator[str]) -> None:
        for part in parts:
            if not isinstance(part, str):
                raise TypeError(f"a line's text gave {type(part).__name__}, not a string: give strings")
            for begin in range(0, max(1, len(part)), MOST_UNREAD):
                if not self._put(part[begin : begin + MOST_UNREAD]):
                    return

    def _put(self, part: str) -> bool:
        """Keep a part once there is room for it; return whether it is still wanted."""
        adds_speech = bool(self._adds_speech(part))
        with self._changed:
            while self._unread >= MOST_UNREAD and not self._closed:
                self._changed.wait()
            if not self._closed:
                self._text.append(part)
                self._unread += len(part)
                self.has_news = self.has_news or adds_speech or self._unread >= MOST_UNREAD
        self.bell.set()
        return not self._closed
