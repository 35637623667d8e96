"""Output of a command: results or audio on stdout, everything else, the server's log too, on stderr.

Texts from servers, file names and voice files are made safe to show: control characters can clear or overwrite a
terminal, and characters that reverse the direction of writing make a name look like another.
"""

import contextlib
import errno
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import BinaryIO, TextIO

from ...morph.text.encoding import CONTROL

LAYOUT = "\n\t"  # of our own messages
CLOSED = (errno.EPIPE, errno.EINVAL)  # Windows calls a closed pipe an invalid argument
# Of the current request in this task, or "".
request_id: ContextVar[str] = ContextVar("request_id", default="")


def one_line(words: str) -> str:
    """Return words on one line, with a blank for every control character."""
    return " ".join(CONTROL.sub(" ", words).split())


def escaped(text: str) -> str:
    r"""Return a text with control characters as escapes such as ``\x1b``; line breaks and tabs stay."""
    return CONTROL.sub(lambda one: one[0] if one[0] in LAYOUT else one[0].encode("unicode_escape").decode(), text)


@dataclass(frozen=True)
class Console:
    program: str
    out: TextIO
    err: TextIO

    def result(self, text: object) -> None:
        """Print a line on stdout; for a terminal, escape control characters."""
        say(text, self.out, exact=not self.out.isatty())

    def note(self, text: object) -> None:
        """Print a line on stderr, if that can be written."""
        try:
            say(text, self.err)
        except OSError:
            silence(self.err)

    def agrees(self, question: str) -> bool:
        """Ask a question on the terminal; ValueError without one."""
        if not (self.err.isatty() and sys.stdin is not None and sys.stdin.isatty()):
            raise ValueError(f"{question} There is no terminal to ask on: add --yes")
        self.err.write(escaped(f"{question} [y/N] "))
        self.err.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def forget_stdout(self) -> None:
        """Redirect stdout to nowhere after its reader has left: Python flushes it at exit."""
        with contextlib.suppress(OSError, ValueError):  # not a real stream
            silence(self.out)

    @contextlib.contextmanager
    def progress(self, unit: str = "frames") -> Iterator[Callable[[int, int], None]]:
        """Yield a callback for (done, expected); it draws a bar if stderr is a terminal."""
        if not self.err.isatty():
            yield lambda _done, _expected: None
            return
        from tqdm import tqdm

        with tqdm(unit=unit, file=self.err, leave=False, dynamic_ncols=True, mininterval=0.1, miniters=1) as bar:

            def show(done: int, expected: int) -> None:
                bar.total = expected
                bar.update(done - bar.n)

            yield show

    def check_sound(self) -> None:
        if self.out.isatty():
            raise ValueError("stdout is a terminal: pipe the sound to a player, or into a file")

    @contextlib.contextmanager
    def sound(self) -> Iterator[BinaryIO]:
        """Yield stdout as a stream of bytes; redirect all other prints, of C code too, to stderr.

        ValueError if stdout is a terminal, BrokenPipeError when the reader leaves.
        """
        self.check_sound()
        self.out.flush()
        number = self.out.fileno()
        private = os.dup(number)
        os.dup2(self.err.fileno(), number)
        try:
            with os.fdopen(private, "wb", buffering=0, closefd=False) as stream:
                yield stream
        except OSError as error:
            if error.errno in CLOSED and not isinstance(error, BrokenPipeError):
                raise BrokenPipeError(errno.EPIPE, "the reader has left") from error
            raise
        finally:
            os.dup2(private, number)
            os.close(private)


def open_missing_streams() -> None:
    """Redirect closed standard streams to nowhere: opened files and C code's prints would get their numbers.

    ``sys.stdin`` stays None, and its readers report it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)


def say(text: object, stream: TextIO, exact: bool = False) -> None:
    """Print a line in the stream's encoding, with escaped control characters unless ``exact``; ignore a closed pipe."""
    encoding = stream.encoding or "utf-8"
    shown = (str(text) if exact else escaped(str(text))).encode(encoding, "backslashreplace").decode(encoding)
    try:
        print(shown, file=stream, flush=True)
    except OSError as error:
        if error.errno not in CLOSED:
            raise
        silence(stream)


def silence(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


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
