"""Read a text that may come in parts from an iterator, in its own thread, so that late text delays nothing else."""

from __future__ import annotations

import contextvars
import logging
import threading
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from .pieces import MOST_UNREAD, Sentences
from .split import check_encodable, check_spoken, check_text, is_encodable

log = logging.getLogger(__name__)

LONGEST_WORD = 1000  # characters: each new part rescans the whole word
UTF_16 = getincrementaldecoder("utf-16-le")  # joins the halves of a character, also of two parts


class Words:
    """The text from its first word on, for layout "token"."""

    too_long = f"the text begins with more than {MOST_UNREAD - LONGEST_WORD} blanks: send words"

    def __init__(self) -> None:
        self.unfinished = 0  # blanks
        self._has_begun = False

    def add(self, part: str) -> list[str]:
        text = part if self._has_begun else part.lstrip()
        self._has_begun = self._has_begun or bool(text)
        self.unfinished = 0 if self._has_begun else self.unfinished + len(part)
        return [text] if text else []

    def end(self) -> list[str]:
        return []


class TextReader:
    """A text, complete or from an iterator of strings that one thread reads and closes; only that thread touches it.

    Of late text it finds what can be spoken: complete sentences, or in ``layout`` "token" (see ``Line``) all from the
    first word.
    """

    def __init__(self, text: str | Iterable[str], wake_up: Callable[[], None], layout: str = "sentence"):
        self.is_late = not isinstance(text, str)
        self._parts, self._wake_up = text, wake_up
        self._is_token = layout == "token"
        self._changed = threading.Condition()
        self._came = [text] if isinstance(text, str) else []
        self._found = deque(self._came)
        self._unread = 0
        self._ended, self._closed = not self.is_late, False
        self.error: BaseException | None = None  # of the iterator, or of the text

    def start(self) -> None:
        if self.is_late:
            run = contextvars.copy_context().run
            threading.Thread(target=run, args=(self._run,), name="speech text", daemon=True).start()

    @property
    def text(self) -> str:
        return "".join(self._came)

    @property
    def has_news(self) -> bool:
        """Whether ``take`` would return text, or nothing follows."""
        return bool(self._found) or self._ended

    @property
    def is_over(self) -> bool:
        return self._ended and not self._found

    def take(self) -> str | None:
        """Return the next sentence, or the next words; None if there are none yet, or if the text is over."""
        with self._changed:
            if not self._found:
                return None
            found = [self._found.popleft() for _ in range(len(self._found) if self._is_token else 1)]
            text = "".join(found)
            self._unread -= len(text)
            self._changed.notify_all()
            return text

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
            self.error, self._ended = error, True
        self._wake_up()
        try:  # after the end was reported, as it may take long
            if (close := getattr(parts, "close", None)) is not None:
                close()
        except Exception:
            log.info("the iterator of a text could not be closed", exc_info=True)

    def _read(self, parts: Iterator[str]) -> None:
        arriving = Words() if self._is_token else Sentences()
        for text in _whole_characters(parts):
            with self._changed:
                self._changed.wait_for(lambda: self._unread < MOST_UNREAD or self._closed)
                if self._closed:
                    return
                self._came.append(text)
            if not is_encodable(text):
                check_encodable(self.text, "text")
            self._put(arriving.add(text))
            if arriving.unfinished > MOST_UNREAD:
                raise ValueError(arriving.too_long)
        (check_text if self._is_token else check_spoken)(self.text)
        self._put(arriving.end())

    def _put(self, found: list[str]) -> None:
        with self._changed:
            self._found += found
            self._unread += sum(map(len, found))
        if found:
            self._wake_up()


def _whole_characters(parts: Iterator[str]) -> Iterator[str]:
    """Yield a text in parts of at most MOST_UNREAD characters, with the halves of characters joined."""
    decoder = UTF_16("surrogatepass")
    for part in parts:
        if not isinstance(part, str):
            raise TypeError(f"a line's text gave {type(part).__name__}, not a string: give strings")
        for begin in range(0, max(1, len(part)), MOST_UNREAD):
            units = part[begin : begin + MOST_UNREAD].encode("utf-16-le", "surrogatepass")
            yield decoder.decode(units)
    yield decoder.decode(b"", final=True)
