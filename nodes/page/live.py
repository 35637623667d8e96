"""Streamed speech: the streams of running nodes, and the pages that listen.

A node announces a stream to the page that queued the run (event ``morph.speech``); the page reads it over HTTP. The
executor's thread writes, the server's event loop reads: a reader never delays a node.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
from aiohttp import web

from ...morph.options import FRAME_RATE
from ...morph.text.duration import likely_frames
from ...morph.text.pronunciation import shown_text
from ...morph.words.timing import WordTime
from ...postprocess.convert import to_s16
from .clips import show_words

SAMPLE_BYTES = 2  # signed, 16 bits, little endian
MOST_BYTES = 64 << 20  # of one stream: 23 minutes; the oldest are dropped
KEPT_S = 60.0  # until a stream that has ended is dropped
MOST_LISTENERS = 256  # pages


class PlayedSpeech:
    """The samples of one run of one node, written by one thread and read by tasks in the loop of ComfyUI's server.

    ``node`` is its execution id ("5", or "12:5" in a subgraph), ``prompt`` the run's id, ``client`` the page's, None if
    no page listens: then nothing is stored or sent.
    """

    def __init__(self, server: Any, node: str | None, prompt: str, client: str | None, sample_rate: int):
        self.id = secrets.token_hex(16)
        self._lines = 0
        self.node, self.prompt, self.client, self.sample_rate = node, prompt, client, sample_rate
        self._server = server
        self._lock = threading.Lock()
        self._bytes = bytearray()
        self._dropped = 0  # bytes before the buffer
        self._ended = False

    def describe(self) -> dict[str, Any]:
        return {
            "stream": self.id,
            "node": self.node,
            "prompt_id": self.prompt,
            "sample_rate": self.sample_rate,
            "format": "s16le",
            "ended": self._ended,
        }

    def tell(self, event: str, data: dict[str, Any]) -> None:
        """Send an event about this stream to its page."""
        self._server.send_sync(event, {"stream": self.id, **data}, self.client)

    @property
    def has_listener(self) -> bool:
        return self.client is not None

    @property
    def samples(self) -> int:
        with self._lock:
            return (self._dropped + len(self._bytes)) // SAMPLE_BYTES

    def begin(self, name: str, text: str) -> None:
        """Announce the next line: its character or setting, its words, and its likely seconds."""
        if self.has_listener:
            text = shown_text(text)
            place = {"line": self._lines, "start": self.samples}
            shown = {"name": name, "text": text, "seconds": likely_frames(text) / FRAME_RATE}
            self.tell("morph.speech.line", place | shown)
            self._lines += 1

    def show_words(self, line: int, words: Sequence[WordTime]) -> None:
        """Highlight the words of a line while they play; ``line``: how many began before it."""
        if self.has_listener and words:
            self.tell("morph.speech.words", {"line": line, "words": show_words(words)})

    def play(self, samples: np.ndarray) -> None:
        """Add samples, float ``[n]`` within -1..1; never waits for a reader."""
        if not self.has_listener:
            return
        with self._lock:
            self._bytes += to_s16(samples).tobytes()
            if (excess := len(self._bytes) - MOST_BYTES) > 0:
                del self._bytes[:excess]
                self._dropped += excess

    def end(self) -> None:
        with self._lock:
            self._ended = True

    def read(self, position: int, most: int) -> tuple[bytes, int, bool]:
        """Return bytes from a position on, the position after them, and whether the end is reached."""
        with self._lock:
            start = max(position - self._dropped, 0)
            found = bytes(self._bytes[start : start + most])
            behind = self._dropped + start + len(found)
            return found, behind, self._ended and behind >= self._dropped + len(self._bytes)


class SpeechStore:
    """The current streams and listening pages of ComfyUI's ``PromptServer``; one per server, in its application."""

    def __init__(self, server: Any):
        self._server = server
        self._lock = threading.Lock()
        self._streams: dict[str, PlayedSpeech] = {}
        self._listening: dict[str, None] = {}  # client ids, the oldest first

    def listen(self, client: str, wanted: bool) -> None:
        """Note whether a page wants its runs streamed."""
        with self._lock:
            self._listening.pop(client, None)
            if wanted:
                self._listening[client] = None
                if len(self._listening) > MOST_LISTENERS:
                    del self._listening[next(iter(self._listening))]

    def find(self, stream: str) -> PlayedSpeech | None:
        with self._lock:
            return self._streams.get(stream)

    def of_client(self, client: str) -> list[PlayedSpeech]:
        with self._lock:
            return [one for one in self._streams.values() if one.client == client]

    @contextmanager
    def announce(self, node: str | None, sample_rate: int) -> Iterator[PlayedSpeech]:
        """Yield a stream for the running node; it plays nothing unless the page that queued the run listens."""
        server = self._server
        with self._lock:
            client = server.client_id if node is not None and server.client_id in self._listening else None
            speech = PlayedSpeech(server, node, server.last_prompt_id, client, sample_rate)
            if speech.has_listener:
                self._streams[speech.id] = speech
        if not speech.has_listener:
            yield speech
            return
        speech.tell("morph.speech", speech.describe())
        try:
            yield speech
        finally:
            speech.end()
            server.loop.call_soon_threadsafe(server.loop.call_later, KEPT_S, self._forget, speech.id)

    def _forget(self, stream: str) -> None:
        with self._lock:
            self._streams.pop(stream, None)


APP_KEY = web.AppKey("qwen3_tts_morph.speech", SpeechStore)  # where the server's application keeps it


def announce(node: str | None, sample_rate: int) -> AbstractContextManager[PlayedSpeech]:
    """Open a node's speech, as ``SpeechStore.announce``."""
    from server import PromptServer

    server = PromptServer.instance  # type: ignore[attr-defined]  # set when ComfyUI starts
    store = server.app.get(APP_KEY) or SpeechStore(server)
    return store.announce(node, sample_rate)
