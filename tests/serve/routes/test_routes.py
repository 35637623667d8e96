"""The routes beside speech: models, voices, health, metrics, the page's files."""

import asyncio
import logging
import os
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.batch.scheduler import Busy
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice, preset_voice
from qwen3_tts_morph.morph.voice.file import save_voice
from qwen3_tts_morph.serve.api import middleware
from qwen3_tts_morph.serve.api.options import Access, ServerOptions
from qwen3_tts_morph.serve.routes.app import FILES, App
from qwen3_tts_morph.serve.routes.voices import OPENAI_VOICES, VoiceBook

from tests.serve.conftest import Client, asked


def test_models_are_listed_as_openai_lists_them(client: Client) -> None:
    for path in ("/v1/models", "/v1/audio/models"):
        listed = client.get(path).json()
        assert listed["object"] == "list" and {"id", "object", "created", "owned_by"} == set(listed["data"][0])
        assert [one["id"] for one in listed["data"]][:2] == [client.speaker.model.name, "tts-1"]


def test_rows_are_shared_between_addresses(client: Client, monkeypatch) -> None:
    callers, speak = list[str](), Batch.speak

    def note(batch, line, options, delivery):
        callers.append(delivery.caller)
        return speak(batch, line, options, delivery)

    monkeypatch.setattr(Batch, "speak", note)
    assert client.post(asked()).status_code == 200 and callers == ["127.0.0.1"]


@pytest.mark.parametrize("name", ["tts-1", "gpt-4o-mini-tts-2025-12-15"])
def test_one_model_is_told(client: Client, name: str) -> None:
    own = client.speaker.model.name
    for asked_for in (name, own):
        told = client.get(f"/v1/models/{asked_for}").json()
        assert told["id"] == asked_for and told["object"] == "model"
    for unknown in ("whisper-1", "a/b", ""):
        answer = client.get(f"/v1/models/{unknown}")
        assert answer.status_code == 404 and answer.json()["error"]["code"] == "model_not_found"


def test_presets_are_listed_and_openai_s_names_stand_for_them(client: Client) -> None:
    listed = client.get("/v1/audio/voices").json()
    assert [one["name"] for one in listed["voices"]] == client.speaker.model.speakers
    assert {one["kind"] for one in listed["data"]} == {"preset"}
    book = client.speaker.voices
    assert {book.find(name).name for name in OPENAI_VOICES} == set(client.speaker.model.speakers)
    assert book.find(None).name == listed["voices"][0]["id"] and book.find(" RYAN ").name == "ryan"


def test_saved_voices_are_offered_while_they_are_there(serve, load, recording, tmp_path) -> None:
    model = load("tiny", "base")
    voice = clone_voice(model, recording, 24000, CloneOptions("icl", "What it says.", name="Ann"))
    save_voice(voice, tmp_path / "Ann.safetensors")
    save_voice(preset_voice(load("tiny", "custom_voice"), "ryan"), tmp_path / "Foreign.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"no voice")
    (tmp_path / "notes.txt").write_text("x")
    client = serve(ServerOptions(voices=tmp_path), "base")
    assert [one["id"] for one in client.get("/v1/audio/voices").json()["voices"]] == ["Ann"]
    assert client.post({**asked(), "voice": "Ann"}).status_code == 200
    assert client.speaker.voices.find("Ann") is client.speaker.voices.find("Ann"), "the codec knows it by its object"
    broken = client.post({**asked(), "voice": "broken"})
    assert broken.status_code == 400 and "broken.safetensors" in broken.json()["error"]["message"]
    assert str(tmp_path) not in broken.text
    for name in ("../Ann", "Ann.safetensors", str(tmp_path / "Ann"), "notes"):
        assert client.post({**asked(), "voice": name}).status_code == 404
    book = client.speaker.voices
    assert book.known("Ann") is book.find("Ann") and book.known("broken") is book.known(None) is None
    save_voice(replace(voice, name="Ann", transcript="Something else."), tmp_path / "Ann.safetensors")
    assert book.known("Ann") is None, "it was written since"
    assert book.find("Ann").transcript == "Something else."
    assert book.known("Ann") is book.find("Ann") and book.known("ann") is book.known("../Ann") is None
    save_voice(replace(voice, name="Ben"), tmp_path / "Ben.safetensors")
    (tmp_path / "Ann.safetensors").unlink()
    assert book.known("Ann") is None, "it was deleted"
    assert client.get("/v1/audio/voices").json()["data"] == [{"id": "Ben", "name": "Ben", "kind": "saved"}]
    assert client.post({**asked(), "voice": "Ann"}).status_code == 404


def test_a_voice_file_that_goes_while_the_folder_is_read_is_left_out(
    serve, load, recording, tmp_path, monkeypatch
) -> None:
    voice = clone_voice(load("tiny", "base"), recording, 24000, CloneOptions("x_vector"))
    for name in ("Ann", "Ben"):
        save_voice(voice, tmp_path / f"{name}.safetensors")
    client = serve(ServerOptions(voices=tmp_path), "base")
    stat = Path.stat

    def gone(path: Path, **more: Any) -> os.stat_result:
        if path.name == "Ann.safetensors":
            path.unlink(missing_ok=True)
        return stat(path, **more)

    monkeypatch.setattr(Path, "stat", gone)
    assert [one["id"] for one in client.get("/v1/audio/voices").json()["voices"]] == ["Ben"]
    assert client.post(asked(voice="Ann")).status_code == 404


def test_a_checkpoint_without_voices_says_how_to_get_some(serve) -> None:
    client = serve(ServerOptions(), "base")
    error = client.post(asked()).json()["error"]
    assert "--voices" in error["message"] and error["code"] == "voice_not_found"


def test_a_checkpoint_that_designs_voices_takes_descriptions(load) -> None:
    model = load("tiny", "voice_design")
    book = VoiceBook(model)
    assert book.find(None, "a calm voice").instruct == "a calm voice"
    assert book.known("alloy") is None
    with pytest.raises(Exception, match="describe the voice in instructions"):
        book.find("alloy")


def test_health_and_readiness(client: Client) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    assert client.run(lambda http: http.head("/health")).status_code == 200
    assert client.get("/ready").json() == {"ready": True}


def test_nothing_is_spoken_before_the_server_is_ready(client: Client, monkeypatch) -> None:
    monkeypatch.setattr(type(client.speaker), "is_ready", property(lambda _: False))
    assert client.get("/ready").status_code == 503
    response = client.post(asked())
    assert response.status_code == 503 and response.headers["retry-after"]


def test_the_rows_fit_the_device(make_speaker) -> None:
    assert make_speaker(ServerOptions()).status.rows == 2, "on a CPU each row costs every frame time"
    assert make_speaker(ServerOptions(rows=5)).status.rows == 5


def test_the_status(client: Client) -> None:
    status = client.get("/v1/status").json()
    assert (status["rows"], status["rows_in_use"], status["waiting"]) == (8, 0, 0)
    assert status["sample_rate"] == 24000 and status["seq_groups"] == 5


def value_of(text: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)
    return float(found[1]) if found else 0.0


def test_metrics_count_what_happened(client: Client) -> None:
    before = client.get("/metrics").text
    client.post(asked())
    client.post(asked(speed=5))
    response = client.get("/metrics")
    after = response.text
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    grown = {
        'morph_tts_requests_total{status="200"}': 1,
        'morph_tts_requests_total{status="400"}': 1,
        "morph_tts_first_audio_seconds_count": 1,
        "morph_tts_audio_seconds_total": 0.48,
    }
    for name, count in grown.items():
        assert value_of(after, name) - value_of(before, name) == pytest.approx(count), name
    assert value_of(after, "morph_tts_frames_total") >= value_of(before, "morph_tts_frames_total") + 6
    assert (value_of(after, "morph_tts_rows"), value_of(after, "morph_tts_waiting")) == (8, 0)


def test_the_page_and_its_files(client: Client) -> None:
    for path, file in FILES.items():
        response = client.get(path)
        assert response.status_code == 200 and response.content == file.read_bytes()
        assert "default-src 'self'" in response.headers["content-security-policy"]
        assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/page/page.js", "/../pyproject.toml", "/v1/nothing", "/serve/api/options.py"])
def test_other_addresses_are_not_there(client: Client, path: str) -> None:
    response = client.get(path)
    assert response.status_code == 404 and response.json()["error"]["type"] == "invalid_request_error"


def test_other_methods_are_refused(client: Client) -> None:
    response = client.get("/v1/audio/speech")
    assert response.status_code == 405 and "does not take this method" in response.json()["error"]["message"]
    assert response.headers["allow"] == "POST"


def test_a_fault_of_the_server_has_no_details(client: Client, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(type(client.speaker.voices), "entries", fail)
    monkeypatch.setattr("qwen3_tts_morph.serve.routes.app.read_request", fail)  # a route that FastAPI sees nothing of
    for response in (client.get("/v1/audio/voices"), client.post(asked())):
        assert response.status_code == 500 and "secret" not in response.text
        assert response.json()["error"]["type"] == "server_error" and response.headers["x-request-id"]


def test_a_busy_server_names_a_time_that_openai_s_clients_take(client: Client, monkeypatch) -> None:
    """They ignore more than 60 seconds, and come back at once."""

    def busy(*_: object) -> None:
        raise Busy("64 lines wait already")

    monkeypatch.setattr(Batch, "speak", busy)
    monkeypatch.setattr(type(client.speaker), "status", SimpleNamespace(waiting=64, rows=1))
    answer = client.post(asked())
    assert answer.status_code == 429 and answer.headers["retry-after"] == "60"


@pytest.mark.parametrize(
    ("sent", "kept"),
    [("abc-1.2:3", True), ("x" * 128, True), ("x" * 129, False), ("a b", False), ("", False)],
)
def test_every_answer_has_a_request_id(client: Client, sent: str, kept: bool) -> None:
    for path in ("/health", "/v1/nothing", "/v1/audio/speech", "/page.css"):
        name = client.get(path, headers={"x-request-id": sent}).headers["x-request-id"]
        assert (name == sent) == kept and name
    refused = client.get("/health", headers={"host": "evil.example", "x-request-id": sent})
    assert refused.status_code == 403 and refused.headers["x-request-id"]


@pytest.mark.parametrize(
    ("does", "ended"),
    [("leaves", "200, client left"), ("stops", "200, broken off"), ("fails", "500, failed")],
)
def test_the_access_log_says_how_a_request_ended(does: str, ended: str, caplog) -> None:
    sent = []

    async def answer(scope, receive, send) -> None:
        if does == "fails":
            raise RuntimeError("secret")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        if does == "leaves":
            await receive()

    async def receive() -> dict:
        return {"type": "http.disconnect"}

    async def send(message: dict) -> None:
        sent.append(message)

    caplog.set_level(logging.INFO, middleware.__name__)
    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    with pytest.raises(RuntimeError) if does == "fails" else nullcontext():
        asyncio.run(middleware.RequestLog(answer, writes=True)(scope, receive, send))
    assert re.sub(r"[\d.]+ s, ", "", caplog.records[-1].getMessage()).endswith(f"GET / {ended}")
    assert b"x-request-id" in dict(sent[0]["headers"]) and b"secret" not in sent[-1]["body"]


def test_lists_may_be_read_without_the_key(client: Client) -> None:
    """Open WebUI sends none with these."""
    for is_open in (False, True):
        access = Access(key="correct-horse", open_lists=is_open)
        keyed = Client(App(client.speaker, ServerOptions(access)), client.speaker)
        for path in ("/v1/audio/voices", "/v1/audio/models"):
            assert keyed.get(path).status_code == (200 if is_open else 401)
        upload = keyed.run(lambda http: http.post("/v1/audio/voices?name=Ann&consent=true", content=b""))
        assert {upload.status_code, keyed.get("/v1/models").status_code, keyed.post(asked()).status_code} == {401}
