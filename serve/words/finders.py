"""Processes that compute word times, and the threads that wait for them."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import TypeAlias

from ...morph.words.timing import WordTime
from ...morph.words.traced import TracedLine

log = logging.getLogger(__name__)

PROGRAM = Path(__file__).resolve().with_name("__main__.py")
FEWEST, MOST = 1, 2  # a quarter of the processors: a line of 20 s takes one of them 1 to 2 ms

FindWords: TypeAlias = Callable[[TracedLine], tuple[WordTime, ...]]


class WordProcess:
    """One process that computes word times, a line at a time; OSError if it cannot start. It ends with this process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def find(self, line: TracedLine) -> tuple[WordTime, ...]:
        """Return ``line.words()``; ValueError as that, OSError if the process has ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(line.to_json()).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer.endswith(b"\n"):
            raise BrokenPipeError("the process for them has ended")
        told = json.loads(answer)
        if "error" in told:
            raise ValueError(told["error"])
        return tuple(WordTime(*word) for word in told["words"])

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class WordFinders:
    """Computes word times in other processes; a thread waits for each. Any thread may call it."""

    def __init__(self) -> None:
        count = min(MOST, max(FEWEST, (os.cpu_count() or 1) // 4))
        self._threads = ThreadPoolExecutor(count, "word times")
        self._idle: SimpleQueue[WordProcess | None] = SimpleQueue()  # None: it is not started
        for _ in range(count):
            self._idle.put(None)

    def submit(self, work: Callable[[FindWords], None]) -> Future[None]:
        """Run ``work`` in a thread, with the function that computes word times."""
        return self._threads.submit(work, self.find)

    def find(self, line: TracedLine) -> tuple[WordTime, ...]:
        """Return ``line.words()``; errors are the same."""
        process = self._idle.get()
        try:
            process = process or WordProcess()
            return process.find(line)
        except OSError as error:
            log.warning("words are found in the server's own process for once, which is slower: %s", error)
            if process is not None:
                process.close()
            process = None
            return line.words()
        finally:
            self._idle.put(process)

    def start(self) -> list[Future[None]]:
        """Start all processes; the futures end when each has processed a first line."""
        return [self.submit(_find_none) for _ in range(self._idle.qsize())]

    def close(self) -> None:
        """Take no more lines, finish those that are there, and end the processes."""
        self._threads.shutdown()
        while not self._idle.empty():
            if (process := self._idle.get()) is not None:
                process.close()


def _find_none(find: FindWords) -> None:
    find(TracedLine("", (), 0.0))
