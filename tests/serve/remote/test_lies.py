"""Servers that lie: whatever they say, it is one sentence with the server's name, and nothing reaches the terminal."""

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile
from qwen3_tts_morph.morph.options import GenerateOptions
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.serve.remote import connection, speaks
from qwen3_tts_morph.serve.remote.connection import _events, ask_server, connect
from qwen3_tts_morph.serve.remote.servers import NAMELESS, Server
from qwen3_tts_morph.serve.routes.answer import END, write_part
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tests.serve.conftest import listening
from tests.serve.remote.rendering import render

pytest.importorskip("aiohttp", reason="not run: aiohttp is not installed")


STATUS = {
    "server": "qwen3-tts-morph",
    "model": "demo",
    "kind": "custom_voice",
    "size": "0b6",
    "fingerprint": "f" * 64,
    "width": 64,
    "languages": ["auto", "english"],
    "sample_rate": 24000,
    "most_lines": 4,
    "fields": ["event_interval"],
}
REPORT = {"frames": 1, "ended": "eos", "pieces": 1, "spoken": "", "notes": [], "made_by": ["an engine"]}
ONCE = GenerateOptions(retries=0)
EXACT = GenerateOptions(15, retries=0)
ESCAPES = "\x1b[2J\x1b]0;title\x07 \u202egnorw\u2066 \x9b31m\ud800"
LINE = Line("Hello there.", Voice("preset", "0b6", name="ann", speaker="ann"), seed=7)
SOUND = base64.b64encode(np.full(1920, 3000, "<i2").tobytes()).decode()


class Liar:
    """What the server says now; ``reset`` makes it honest."""

    def reset(self) -> None:
        self.status: Any = STATUS
        self.voices: Any = {"voices": ["ann"]}
        self.models: Any = {"data": [{"id": "demo"}]}
        self.speak: Callable[[], Response] = lambda: stream([delta(), done()])
        self.asked = 0


@pytest.fixture(scope="module")
def server_and_liar() -> Iterator[tuple[Server, Liar]]:
    liar = Liar()

    def tell(name: str) -> Callable:
        async def answer(_: Request) -> Response:
            said = getattr(liar, name)
            return Response(status_code=404) if said is None else raw(said)

        return answer

    async def speak(_: Request) -> Response:
        liar.asked += 1
        return liar.speak()

    routes = [
        Route("/v1/status", tell("status")),
        Route("/v1/audio/voices", tell("voices")),
        Route("/v1/models", tell("models")),
        Route("/v1/audio/speech", speak, methods=["POST"]),
    ]
    with listening(Starlette(routes=routes)) as url:
        yield Server("studio", url), liar


@pytest.fixture
def server(server_and_liar: tuple[Server, Liar]) -> Server:
    return server_and_liar[0]


@pytest.fixture
def liar(server_and_liar: tuple[Server, Liar], monkeypatch: pytest.MonkeyPatch) -> Liar:
    monkeypatch.setattr(connection, "FIRST_WAIT_S", 0.0)
    monkeypatch.setattr(connection, "LONGEST_WAIT_S", 0.0)
    server_and_liar[1].reset()
    return server_and_liar[1]


def raw(said: Any) -> Response:
    """JSON, or bytes as they are."""
    return Response(said if isinstance(said, bytes) else json.dumps(said), media_type="application/json")


def stream(events: list[Any], **headers: str) -> Response:
    data = b"".join(
        b"data: " + (one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n\n" for one in events
    )
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(data, media_type="text/event-stream", headers=named)


def delta(audio: Any = SOUND) -> dict[str, Any]:
    return {"type": "speech.audio.delta", "audio": audio}


def done(**report: Any) -> dict[str, Any]:
    return {"type": "speech.audio.done", "report": {**REPORT, **report}}


def words(*times: Any, **more: Any) -> dict[str, Any]:
    told = [
        {"word": "Hello", "start_time": start, "end_time": end, "first_char": 0, "last_char": 5, **more}
        for start, end in times
    ]
    return {"type": "speech.audio.timestamps", "timestamps": told}


def sentence(caught: pytest.ExceptionInfo) -> str:
    """The message: one line without control characters that names the server."""
    said = str(caught.value)
    assert said.isprintable() and said.startswith("server studio (http://127.0.0.1:") and len(said) < 700
    return said


def test_an_honest_server_is_believed(server: Server, liar: Liar) -> None:
    [one] = render(ask_server(server), ONCE, [LINE])
    assert (one.report.ended, one.report.frames, one.engine) == ("eos", 1, "an engine")
    liar.speak = lambda: stream([delta(), done(notes=[f"a{ESCAPES}note"], made_by=[ESCAPES], spoken=f"{ESCAPES}.")])
    [one] = render(ask_server(server), ONCE, [LINE])
    assert one.report.notes == ("a [2J ]0;title gnorw 31m note",)
    assert one.engine.isprintable() and one.report.spoken.isprintable()
    told = [words((0, 0.01)), delta(), words((0.01, 0.02), word=f"a{ESCAPES}"), words(), done()]
    liar.speak = lambda: stream(told)
    [one] = render(ask_server(server), ONCE, [LINE])
    assert [(word.text, word.end_s) for word in one.words] == [
        ("Hello", 0.01),
        ("a [2J ]0;title gnorw 31m", 0.02),
    ]


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([delta(), {"type": "speech.audio.done", "report": [1]}], "report is [1]"),
        ([[delta()]], "the answer is ["),
        ([b"5"], "the answer is 5"),
        ([b"[" * 100_000], "too many levels"),
        ([b"\xff\xfe\xfd"], "sent what cannot be read"),
        ([{"type": ["speech.audio.delta"]}], "type is"),
        ([delta(5)], "audio is 5"),
        ([delta("***")], "sent what cannot be read"),
        ([delta("QUJD")], "sent what cannot be read"),  # one sample and a half
        ([done()], "sent no sound: try another seed"),
        ([delta(), done(ended={"how": "well"})], "report.ended is {'how': 'well'}"),
        ([delta(), done(ended="dreaming")], "ended is 'dreaming': choose one of"),
        ([delta(), done(notes=[5])], "report.notes.0 is 5"),
        ([delta(), done(made_by="an engine")], "report.made_by is 'an engine'"),
        ([delta(), done(spoken=["Hello"])], "spoken is"),
        ([delta(), done(frames=float("nan"))], "frames is nan"),
        ([delta(), done(frames=True)], "frames is True"),
        ([delta(), done(frames=-1)], "frames is -1"),
        ([delta(), done(frames=10**400)], "frames is 1000"),
        ([words((0, 1)), words((0.5, 2)), delta(), done()], "from 0.5 to 2.0 s behind one that ends at 1.0"),
        ([words((2, 1)), delta(), done()], "a word runs from 2.0 to 1.0 s"),
        ([words((0, float("nan"))), delta(), done()], "end_time is nan"),
        ([words((0, 1), last_char=99)], "last_char is 99, no place in a text of 12"),
        ([words((0, 1), word=5)], "timestamps.0.word is 5"),
        ([{"type": "speech.audio.timestamps", "timestamps": 5}], "timestamps is 5"),
        ([{"type": "error", "error": {"message": f"no{ESCAPES}"}}], "failed at the line (500): no [2J"),
        ([{"type": f"{ESCAPES}"}], "failed at the line (500)"),
    ],
)  # fmt: skip
def test_a_lie_in_an_event_is_one_sentence_at_once(server, liar, events, words) -> None:
    liar.speak = lambda: stream(events)
    with pytest.raises(ConnectionError) as caught:
        render(ask_server(server), ONCE, [LINE])
    assert words in sentence(caught) and liar.asked == 1


PROGRESS = {"type": "speech.audio.progress", "frames": 1, "expected": 2}
PCM = write_part("audio/pcm", base64.b64decode(SOUND))


def json_part(fields: dict[str, Any]) -> bytes:
    return write_part("application/json", json.dumps(fields).encode())


def test_parts_are_read_however_they_are_cut(server: Server, liar: Liar) -> None:
    liar.status = {**STATUS, "stream_formats": ["audio", "multipart"]}
    content = json_part(PROGRESS) + PCM + json_part(done()) + END
    for size in (1, 7, len(content)):
        liar.speak = lambda size=size: StreamingResponse(_cut(content, size), media_type="multipart/mixed; boundary=x")
        [one] = render(ask_server(server), ONCE, [LINE])
        assert (one.report.ended, one.report.frames, len(one.waveform)) == ("eos", 1, 1920)


async def _cut(content: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (json_part({**PROGRESS, "frames": "1"}), "frames is '1'"),
        (PCM + json_part({"type": "speech.audio.done", "report": [1]}), "report is [1]"),
        (json_part(done()) + END, "sent no sound: try another seed"),
        (write_part("audio/pcm", b"odd"), "sent what cannot be read"),
        (write_part("application/json", b"[" * 100_000), "too many levels"),
        (json_part({"type": "error", "error": {"message": f"no{ESCAPES}"}}), "failed at the line (500): no [2J"),
        (PCM.replace(b"Content-Length: ", b"Content-Length: -"), "a part has '-3840' bytes"),
        (PCM.replace(b"Content-Length: ", b"Content-Length: 9999999"), "a part has '99999993840' bytes"),
        (PCM.replace(b"Content-Length", b"Content-Size"), "a part has 'no number of' bytes"),
        (b"--x\r\n" + 50 * b"A: b\r\n", "a part has too many headers"),
        (b"x" * 1_000_000, "sent what cannot be read"),
    ],
)  # fmt: skip
def test_a_lie_in_a_part_is_one_sentence_at_once(server, liar, content, words) -> None:
    liar.status = {**STATUS, "stream_formats": ["multipart"]}
    liar.speak = lambda: Response(content, media_type="multipart/mixed; boundary=x")
    with pytest.raises(ConnectionError) as caught:
        render(ask_server(server), ONCE, [LINE])
    assert words in sentence(caught) and liar.asked == 1


@pytest.mark.parametrize("content", [b"", PCM[:1000], PCM, PCM + json_part(done())[:30]])
def test_parts_that_break_off_are_asked_for_again(server: Server, liar: Liar, content: bytes) -> None:
    liar.status = {**STATUS, "stream_formats": ["multipart"]}
    answers = iter([content, PCM + json_part(done()) + END])
    liar.speak = lambda: Response(next(answers), media_type="multipart/mixed; boundary=x")
    [one] = render(ask_server(server), ONCE, [LINE])
    assert liar.asked == 2 and len(one.waveform) == 1920


@pytest.mark.parametrize("rate", ["0", "-1", "44100", "24000.5", "nan", "\u00b2", "9" * 5000, ""])
def test_a_stream_of_another_rate_is_one_sentence(server: Server, liar: Liar, rate: str) -> None:
    """It was saved, and every later run ended at it."""
    liar.speak = lambda: stream([delta(), done()], x_speech_sample_rate=rate)
    with pytest.raises(ConnectionError) as caught:
        render(ask_server(server), ONCE, [LINE])
    assert "Hz and says 24000 Hz of itself" in sentence(caught)


def test_a_header_without_end_is_one_sentence(server: Server, liar: Liar) -> None:
    liar.speak = lambda: stream([delta(), done()], x_speech_seed="7" * 40_000)
    with pytest.raises(ConnectionError) as caught:
        render(ask_server(server), ONCE, [LINE])
    assert "broke the connection" in sentence(caught)


def test_a_line_without_end_is_one_sentence(server, liar, monkeypatch) -> None:
    monkeypatch.setattr(connection, "MOST_BYTES", 10_000)
    liar.speak = lambda: stream(100 * [delta()])
    with pytest.raises(ConnectionError) as caught:
        render(ask_server(server), ONCE, [LINE])
    assert "the line does not end" in sentence(caught)


@pytest.mark.parametrize(
    ("name", "lie"),
    [
        *(("sample_rate", rate) for rate in (0, -1, 10**9, float("nan"), float("inf"), "24000", True, None)),
        *(("width", width) for width in (0, "64", float("inf"), [64])),
        *(("languages", said) for said in ("english", 5, [["english"]], [ESCAPES])),
        *(("model", said) for said in (None, 5, ESCAPES, "m" * 5000)),
        *(("kind", said) for said in ({}, f"base{ESCAPES}")),
        *(("most_lines", said) for said in (0, float("inf"), "4", 10**400)),
        ("fingerprint", ["f"]),
        ("fields", "event_interval"),
    ],
)
def test_a_lie_in_the_status_is_one_sentence(server: Server, liar: Liar, name: str, lie: Any) -> None:
    liar.status = {**STATUS, name: lie}
    with pytest.raises(ConnectionError) as caught:
        ask_server(server)
    assert f"sent a status that this version cannot read ({name}" in sentence(caught)


@pytest.mark.parametrize(
    "voices", ["ann", 5, [["ann"]], [5], [{"name": "ann"}], [{"id": 5}], ["ann", f"b{ESCAPES}"], ["v" * 5000]]
)
@pytest.mark.parametrize("status", [STATUS, None])
def test_a_lie_in_the_voices_is_one_sentence(server: Server, liar: Liar, status: Any, voices: Any) -> None:
    liar.status, liar.voices = status, {"voices": voices}
    with pytest.raises(ConnectionError) as caught:
        ask_server(server)
    assert "sent a status that this version cannot read (" in sentence(caught)


@pytest.mark.parametrize("said", [b"[" * 100_000, b'{"voices": [' + b"[" * 300, b"\xff", [1], 5])
def test_what_is_no_object_is_no_speech_server(server: Server, liar: Liar, said: Any) -> None:
    liar.status, liar.voices, liar.models = said, said, said
    with pytest.raises(ConnectionError) as caught:
        ask_server(server)
    assert "is no speech server: correct its address" in sentence(caught)


def test_lines_of_another_rate_are_other_lines(server: Server, liar: Liar) -> None:
    usual = ask_server(server)
    liar.status = {**STATUS, "sample_rate": 48000}
    other = ask_server(server)
    assert (usual.fingerprint, other.sample_rate) == (
        "f" * 64,
        48000,
    ) and other.fingerprint != usual.fingerprint
    [one] = render(other, ONCE, [LINE])
    assert one.sample_rate == 48000


# Another program's server


def wav(samples: np.ndarray, rate: int = 24000, subtype: str = "PCM_16", kind: str = "WAV") -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, subtype, format=kind)
    return file.getvalue()


def boundless_flac() -> bytes:
    """A FLAC whose header claims 2**36 - 1 samples."""
    content = bytearray(wav(np.zeros(2400, dtype=np.float32), kind="FLAC"))
    content[21] |= 0x0F
    content[22:26] = b"\xff" * 4
    return bytes(content)


TONE = np.sin(np.arange(19200) / 10).astype(np.float32) / 3


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (wav(TONE[:0]), "sent no sound: try another seed"),
        (wav(TONE, rate=1), "its rate is 1 Hz"),
        (wav(TONE, rate=2**31 - 1), "its rate is 2147483647 Hz"),
        (wav(np.where(TONE > 0.3, np.nan, TONE), subtype="FLOAT"), "some of its samples are no numbers"),
        (wav(np.where(TONE > 0.3, np.inf, TONE), subtype="FLOAT"), "some of its samples are no numbers"),
        (boundless_flac(), "it has 68719476735 samples"),
        (b"RIFF", "sent a sound that cannot be read"),
        (b"", "sent a sound that cannot be read"),
    ],
)
def test_a_sound_that_is_none_is_one_sentence(server: Server, liar: Liar, content: bytes, words: str) -> None:
    liar.status, liar.speak = None, lambda: Response(content, media_type="audio/wav")
    with pytest.raises(ConnectionError) as caught:
        render(ask_server(server), EXACT, [LINE])
    assert words in sentence(caught)


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": ESCAPES, "code": ESCAPES}},
        {"error": [ESCAPES] * 1000},
        {"detail": {"message": 5, "code": {}}},
        [ESCAPES],
        b"[" * 100_000,
        b"\x1b[2J",
    ],
)
@pytest.mark.parametrize("status", [400, 403, 404, 500])
def test_an_error_of_any_shape_is_one_sentence(server: Server, liar: Liar, body: Any, status: int) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    liar.speak = lambda: Response(content, status, media_type="application/json")
    with pytest.raises(ConnectionError) as caught:
        render(ask_server(server), replace(ONCE, retries=2), [LINE])
    sentence(caught)


# The server's own name, and how long it is waited for


def test_a_server_that_was_given_by_its_address_is_named_once() -> None:
    assert str(Server(NAMELESS, "http://127.0.0.1:9")) == "http://127.0.0.1:9"
    assert str(Server("studio", "http://127.0.0.1:9")) == "studio (http://127.0.0.1:9)"
    with pytest.raises(ConnectionError, match=r"^server http://127.0.0.1:9 cannot be reached .*: start it"):
        ask_server(Server(NAMELESS, "http://127.0.0.1:9"))


def test_a_server_that_starts_is_waited_for_at_the_first_question(server, monkeypatch, caplog) -> None:
    monkeypatch.setattr(connection, "FIRST_WAIT_S", 0.0)
    tried: list[Server] = []

    def starts(server: Server) -> Any:
        """Lead to a port on which nobody listens, until somebody does."""
        tried.append(server)
        return connect(server if len(tried) > connection.TOLD_AT else replace(server, url="http://127.0.0.1:9"))

    monkeypatch.setattr(connection, "connect", starts)
    assert ask_server(server, attempts=speaks.ATTEMPTS).server == server
    assert len(tried) == connection.TOLD_AT + 1
    assert caplog.text.count("cannot be reached") == caplog.text.count("asked again for a few seconds") == 1


pytest.importorskip("aiohttp", reason="not run: aiohttp is not installed")

STREAM = (
    b'event: speech.audio.delta\ndata: {"audio": "' + 600 * b"QUJD" + b'"}\n\n'
    b": a comment\n\n"
    b'data: {"two":\ndata: "lines"}\n\n'
    b'data: {"last": 1}\n\n'
    b'data: {"never": "ended"}\n'
)


def read(stream: bytes, size: int) -> list[dict[str, Any]]:
    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, len(stream), size):
            yield stream[start : start + size]

    async def collect() -> list[dict[str, Any]]:
        answer: Any = SimpleNamespace(content=SimpleNamespace(iter_any=parts))
        return [event async for event in _events(answer)]

    return asyncio.run(collect())


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000, len(STREAM)])
def test_events_are_the_same_however_they_are_cut(size: int) -> None:
    assert read(STREAM, size) == [{"audio": 600 * "QUJD"}, {"two": "lines"}, {"last": 1}]


@pytest.mark.parametrize("stream", [b"data: " + 2000 * b"x", 200 * (b"data: " + 20 * b"x" + b"\n")])
def test_an_event_that_does_not_end_is_refused(stream: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_EVENT", 1000)
    with pytest.raises(ValueError, match="does not end"):
        read(stream, 100)
