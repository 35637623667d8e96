"""A server's lines are freed as they end. What is left to the garbage collector makes it stop all threads for long."""

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from qwen3_tts_morph.morph.batch.speech import Speech
from qwen3_tts_morph.morph.batch.utterance import Utterance
from qwen3_tts_morph.morph.decode.rows import LineRequest
from qwen3_tts_morph.morph.speech.pieces import LinePieces, Piece
from qwen3_tts_morph.morph.speech.text_feed import TextFeed
from qwen3_tts_morph.morph.voice.prompt import Prompt
from qwen3_tts_morph.serve.routes.answer import SpeechAnswer
from qwen3_tts_morph.serve.routes.speaker import SpeechReader

from tests.patience import wait_until
from tests.serve.conftest import Client, asked, row_is_free

# Of each line; what a batch of them has in common may be left over when it ends.
OF_A_LINE = (SpeechAnswer, SpeechReader, Speech, Utterance, TextFeed, LinePieces, Piece, Prompt, LineRequest)


@contextmanager
def counted_garbage() -> Iterator[Counter[str]]:
    """Count what lines leave behind for the garbage collector."""
    counts: Counter[str] = Counter()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield counts
        gc.collect()
        counts.update(type(one).__name__ for one in gc.garbage if isinstance(one, OF_A_LINE))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        gc.collect()


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"response_format": "pcm"}, marks=pytest.mark.slow),
        {"response_format": "mp3"},
        pytest.param({"response_format": "pcm", "stream_format": "sse"}, marks=pytest.mark.slow),
        pytest.param({"response_format": "wav", "stream": False}, marks=pytest.mark.slow),
        {"response_format": "pcm", "input": "Hello there. [pause 0.1] How are you?", "split_chars": 40},
    ],
)
def test_a_line_is_freed_when_it_ends(client: Client, fields: dict[str, Any]) -> None:
    client.post(asked(**fields))
    wait_until(lambda: row_is_free(client.speaker))
    with counted_garbage() as counts:
        client.post(asked(**fields))
        wait_until(lambda: row_is_free(client.speaker))
    assert not counts
