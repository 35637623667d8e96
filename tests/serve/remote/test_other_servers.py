"""vLLM-Omni's recorded answers and schema, and servers that break off: what is sent, and what is made of it."""

import asyncio
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

pytest.importorskip("aiohttp", reason="not run: aiohttp is not installed")
from qwen3_tts_morph.morph.kept.cache import LineCache
from qwen3_tts_morph.morph.kept.render import Listener
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import ERROR, Line
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.serve.remote import connection
from qwen3_tts_morph.serve.remote.connection import ask_server, of_status
from qwen3_tts_morph.serve.remote.payload import make_job
from qwen3_tts_morph.serve.remote.servers import Server
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.serve.conftest import listening
from tests.serve.remote.rendering import render

RECORDED = json.loads((Path(__file__).parents[2] / "data" / "vllm_omni_0.30.json").read_text(encoding="utf-8"))
ANSWERS = {one["name"]: one for one in RECORDED["exchanges"]}
EXACT = GenerateOptions(15, retries=0)
VIVIAN = Voice("preset", "", name="vivian", speaker="vivian")
LINE = Line("Hello there, general.", VIVIAN, seed=7, name="Ann")
ANN = Voice("x_vector", "1b7", name="Ann", speaker_embedding=torch.ones(2048, dtype=torch.bfloat16))


def wav(seconds: float = 0.8, level: float = 0.3, rate: int = 24000) -> bytes:
    tone = level * np.sin(1200 * np.arange(round(seconds * rate)) / rate)
    file = io.BytesIO()
    soundfile.write(file, tone, rate, format="WAV", subtype="PCM_16")
    return file.getvalue()


def sound(content: bytes, tokens: int | None = 10) -> Response:
    headers = {} if tokens is None else {"x-vllm-omni-output-tokens": str(tokens)}
    return Response(content, media_type="audio/wav", headers=headers)


def recorded(name: str) -> Response:
    one = ANSWERS[name]
    return JSONResponse(one["body"], one["status"])


@contextmanager
def serving(
    speak: Callable[[dict[str, Any]], Response], voices: str | None = "voices", schema: Any = None
) -> Iterator[tuple[Server, list[dict[str, Any]]]]:
    """A server with vLLM-Omni's answers to questions; yield it and the bodies that it got."""
    bodies: list[dict[str, Any]] = []

    async def speech(request: Request) -> Response:
        bodies.append(await request.json())
        return speak(bodies[-1])

    async def list_voices(_: Request) -> Response:
        return recorded(voices) if voices else JSONResponse({"voices": ["alloy"]})

    async def list_models(_: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": "qwen3-tts"}]})

    async def tell_schema(_: Request) -> Response:
        return JSONResponse(schema)

    routes = [
        *([Route("/openapi.json", tell_schema)] if schema is not None else []),
        Route("/v1/audio/speech", speech, methods=["POST"]),
        Route("/v1/audio/voices", list_voices),
        Route("/v1/models", list_models),
    ]
    with listening(Starlette(routes=routes)) as url:
        yield Server("farm", url), bodies


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "FIRST_WAIT_S", 0.0)
    monkeypatch.setattr(connection, "LONGEST_WAIT_S", 0.0)


def test_a_line_of_vllm_omni() -> None:
    with serving(lambda _: sound(wav())) as (server, bodies):
        facts = ask_server(server)
        assert (facts.engine, facts.model) == ("vLLM-Omni", "qwen3-tts") and "vivian" in facts.voices
        heard: list[int] = []
        sampling = Sampling(max_seconds=4.0)
        [one] = render(
            facts,
            replace(EXACT, sampling=sampling),
            [replace(LINE, instruct="calm, low", language="english")],
            Listener(on_sound=lambda _, samples: heard.append(len(samples))),
        )
    assert len(one.waveform) == sum(heard) == 19200 and one.report.frames == 10 and one.report.ended == "eos"
    [body] = bodies
    assert set(body) <= set(RECORDED["request_fields"]), "it drops what it does not know"
    known = ANSWERS["custom voice wav"]["request"]["json"]
    assert {name: body[name] for name in ("model", "input", "language", "instructions", "seed")} == {
        name: known[name] for name in ("model", "input", "language", "instructions", "seed")
    }
    assert body["voice"] == "vivian" and (body["stream"], body["response_format"]) == (False, "wav")
    assert body["max_new_tokens"] == 51 and body["extra_params"]["top_k"] == 50


def test_a_cloned_voice_is_sent_to_vllm_omni_as_its_embedding() -> None:
    with serving(lambda _: sound(wav())) as (server, bodies):
        facts = ask_server(server)
        with pytest.raises(ValueError, match=r"server farm .*voice_consent"):
            render(facts, EXACT, [replace(LINE, voice=ANN)], consent=False)
        assert bodies == []
        render(facts, EXACT, [replace(LINE, voice=ANN)])
    assert bodies[0]["speaker_embedding"] == [1.0] * 2048 and bodies[0]["task_type"] == "Base"
    assert "voice" not in bodies[0] and set(bodies[0]) <= set(RECORDED["request_fields"])


def openapi(*fields: str) -> dict[str, Any]:
    """A server's OpenAPI document, as FastAPI writes it."""
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/SpeechRequest"}}}
    request = {"properties": {name: {"type": "string"} for name in fields}}
    return {
        "paths": {"/v1/audio/speech": {"post": {"requestBody": {"content": content}}}},
        "components": {"schemas": {"SpeechRequest": request}},
    }


@pytest.mark.parametrize(
    ("schema", "seed"),
    [
        (openapi("input", "voice", "seed"), (2**40 + 7) & (2**31 - 1)),
        (openapi("input", "voice"), None),
        ({"paths": []}, None),
        (["no", "object"], None),
        (None, None),
    ],
)
def test_another_server_gets_a_seed_where_it_says_that_it_takes_one(schema: Any, seed: int | None) -> None:
    line = replace(LINE, voice=Voice("preset", "", name="alloy", speaker="alloy"), seed=2**40 + 7)
    with serving(lambda _: sound(wav(), None), voices=None, schema=schema) as (server, bodies):
        facts = ask_server(server)
        render(facts, EXACT, [line])
    assert facts.engine == "another server" and facts.takes_seed == (seed is not None)
    assert bodies[0].get("seed") == seed


ALLOY = replace(LINE, voice=Voice("preset", "", name="alloy", speaker="alloy"))


def test_where_no_seed_is_taken_every_seed_is_asked_for_and_kept_by_itself(tmp_path: Path) -> None:
    cache = LineCache(tmp_path / "lines", 10**8)
    with serving(lambda _: sound(wav(), None), voices=None) as (server, bodies):
        facts = ask_server(server)
        for asked, seed in enumerate((1, 2, 1, 2), start=1):
            [one] = render(facts, EXACT, [replace(ALLOY, seed=seed)], cache=cache)
            assert one.report.from_before == (asked > 2) and len(bodies) == min(asked, 2)


def test_another_sample_rate_becomes_ours() -> None:
    """A line that failed and one that was heard have one rate, and a script one speed."""
    with serving(lambda _: sound(wav(1.0, rate=22050), None), voices=None) as (server, _):
        heard: list[np.ndarray] = []
        listener = Listener(on_sound=lambda _, samples: heard.append(samples))
        [one] = render(ask_server(server), EXACT, [ALLOY], listener)
    same, _ = soundfile.read(io.BytesIO(wav(1.0)), dtype="float32")
    assert one.sample_rate == 24000 and len(one.waveform) == 24000 and one.report.seconds == 1.0
    assert np.abs(one.waveform - same)[1000:-1000].max() < 0.01
    assert np.array_equal(np.concatenate(heard), one.waveform)


def truncated() -> Response:
    async def half() -> Any:
        yield wav()[:9000]
        await asyncio.sleep(0.01)
        raise ConnectionResetError("the engine died")

    return StreamingResponse(half(), media_type="audio/wav", headers={"content-length": str(len(wav()))})


@pytest.mark.parametrize(
    "first",
    [
        lambda: JSONResponse({"detail": "overloaded"}, 503),
        lambda: JSONResponse({"error": {"message": "too many"}}, 429, {"Retry-After": "1"}),
        truncated,
        lambda: sound(wav(0.2)),  # of ten frames
        lambda: sound(b"RIFF"),
        lambda: Response("Internal Server Error", 500),  # Ray's, where a replica has died
    ],
)
def test_what_may_work_later_is_asked_for_again(first: Callable[[], Response]) -> None:
    answers = iter([first, lambda: sound(wav())])
    with serving(lambda _: next(answers)()) as (server, bodies):
        [one] = render(ask_server(server), EXACT, [LINE])
    assert one.report.ended == "eos" and len(one.waveform) == 19200
    assert len(bodies) == 2 and bodies[0] == bodies[1]


@pytest.mark.parametrize("name", ["unknown voice", "task mismatch", "missing input", "engine failure non-stream"])
def test_recorded_errors_are_one_sentence_and_not_asked_again(name: str) -> None:
    answers = iter([lambda: recorded(name), lambda: sound(wav())])
    with serving(lambda body: next(answers)()) as (server, bodies):
        options = replace(EXACT, batch_size=1)
        bad, good = render(ask_server(server), options, [LINE, replace(LINE, seed=8)])
    words = " ".join(ANSWERS[name]["body"]["error"]["message"].split())
    assert bad.report.ended == ERROR and len(bodies) == 2 and good.report.ended == "eos"
    assert bad.report.error.startswith(f"server farm ({server.url}) ") and words[:200] in bad.report.error


@pytest.mark.parametrize("body", [{"error": "Unauthorized"}, {"detail": "Not authenticated"}, None])
def test_a_refused_key_names_the_variable(body: Any) -> None:
    failure = of_status(Server("my farm", "http://10.0.0.5"), 401, body, {})
    assert "MORPH_TTS_KEY_MY_FARM" in str(failure) and failure.ends_all


@pytest.mark.parametrize(
    ("line", "options", "words"),
    [
        (LINE, GenerateOptions(5), "SEQ_GROUPS is 5 and server farm"),
        (replace(LINE, text="Well. [pause 1] Go."), EXACT, r"server farm .* knows no \[pause\]"),
        (
            replace(LINE, voice=Voice("icl", "1b7", speaker_embedding=torch.ones(4), transcript="What.",
                                      ref_codes=torch.zeros(2, 16, dtype=torch.int64))),
            EXACT,
            "server farm .* takes recordings",
        ),
        (replace(LINE, voice=replace(VIVIAN, speaker="nobody")), EXACT, "server farm .* has no voice 'nobody'"),
    ],
)  # fmt: skip
def test_what_vllm_omni_cannot_do_is_refused(line: Line, options: GenerateOptions, words: str) -> None:
    with serving(lambda _: sound(wav())) as (server, bodies):
        facts = ask_server(server)
        with pytest.raises(ValueError, match=words):
            make_job(facts, line, options, True)
        assert bodies == []


def test_a_plain_server_takes_the_names_of_its_voices() -> None:
    alloy = replace(VIVIAN, name="alloy", speaker="alloy")
    with serving(lambda _: sound(wav(), None), voices=None) as (server, bodies):
        facts = ask_server(server)
        render(facts, replace(EXACT, trim_ends=True), [replace(LINE, voice=alloy)])
        for voice, options in ((ANN, EXACT), (alloy, replace(EXACT, sampling=Sampling()))):
            with pytest.raises(ValueError, match=r"server farm .*, another server takes"):
                make_job(facts, replace(LINE, voice=voice), options, True)
    assert set(bodies[0]) == {"input", "voice", "model", "response_format", "stream", "stream_format"}


def test_redirects_are_not_followed() -> None:
    """A server may not send this computer elsewhere."""
    with serving(lambda _: Response(status_code=307, headers={"Location": "http://127.0.0.1:9/"})) as (
        server,
        _,
    ):
        facts = ask_server(server)
        with pytest.raises(ConnectionError, match=r"refused the line \(307\)"):
            render(facts, EXACT, [LINE])
