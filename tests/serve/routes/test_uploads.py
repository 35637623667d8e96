"""Voices that clients send: taken with consent, listed, spoken with, forgotten."""

import errno
import tempfile
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import torch
from qwen3_tts_morph.morph.voice import voice as voice_module
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice
from qwen3_tts_morph.morph.voice.file import save_voice
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.serve.api.errors import ApiError
from qwen3_tts_morph.serve.api.options import Limits, ServerOptions
from qwen3_tts_morph.serve.routes import voices as voices_module

from tests.serve.conftest import Client, asked

BYTES = {"Content-Type": "application/octet-stream"}


@pytest.fixture
def voice(load, recording) -> Voice:
    return clone_voice(load("tiny", "base"), recording, 24000, CloneOptions("icl", "What it says."))


def content_of(voice: Voice, folder: Path) -> bytes:
    save_voice(voice, folder / "voice.safetensors")
    return (folder / "voice.safetensors").read_bytes()


def upload(client: Client, content: bytes, name: str = "Ann", **changes: str) -> httpx.Response:
    params = {"name": name, "consent": "true", **changes}
    return client.run(lambda http: http.post("/v1/audio/voices", content=content, params=params, headers=BYTES))


def names(client: Client) -> list[str]:
    return [one["id"] for one in client.get("/v1/audio/voices").json()["voices"]]


def test_an_uploaded_voice_speaks_until_it_is_deleted(serve, voice, tmp_path) -> None:
    client = serve(kind="base")
    assert upload(client, content_of(voice, tmp_path)).json() == {
        "id": "Ann",
        "name": "Ann",
        "kind": "uploaded",
    }
    assert names(client) == ["Ann"]
    assert client.post(asked(voice="Ann")).status_code == 200
    gone = client.run(lambda http: http.delete("/v1/audio/voices/Ann"))
    assert gone.json() == {"id": "Ann", "deleted": True} and names(client) == []
    assert client.post(asked(voice="Ann")).status_code == 404
    assert client.run(lambda http: http.delete("/v1/audio/voices/Ann")).status_code == 404


def test_an_uploaded_voice_speaks_for_nobody_who_does_not_name_it(serve, voice, tmp_path) -> None:
    client = serve(kind="base")
    book = client.speaker.voices
    upload(client, content_of(voice, tmp_path))
    for name in (None, "coral", "nova"):
        with pytest.raises(ApiError, match="choose one of Ann"):
            book.find(name)
    assert book.find("Ann").name == "Ann"


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"consent": "no"}, 400, "has agreed"),
        ({"consent": ""}, 400, "has agreed"),
        ({"name": ""}, 400, "name is '': send what requests call the voice"),
        ({"name": "../Ann"}, 400, "use only letters"),
        ({"name": "Alloy"}, 409, "choose another name"),
        ({"name": "\uff21lloy"}, 409, "choose another name"),
        ({"name": "h\u0435art"}, 400, "mixes Latin and Cyrillic letters"),
        ({"name": "\u0391nn"}, 400, "mixes Latin and Greek letters"),
    ],
)
def test_uploads_that_are_refused(serve, voice, tmp_path, changes, status, words) -> None:
    client = serve(kind="base")
    refused = upload(client, content_of(voice, tmp_path), **changes)
    assert refused.status_code == status and words in refused.json()["error"]["message"]
    assert names(client) == []


def test_an_upload_needs_no_place_on_a_disk(serve, voice, tmp_path, monkeypatch) -> None:
    client, content = serve(kind="base"), content_of(voice, tmp_path)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    monkeypatch.setattr(tempfile, "mkdtemp", full)
    assert upload(client, content).status_code == 200
    assert client.speaker.voices.find("Ann").speaker_embedding.equal(voice.speaker_embedding)


def test_an_uploaded_voice_is_replaced_only_if_that_is_said(serve, voice, tmp_path) -> None:
    client, content = serve(kind="base"), content_of(voice, tmp_path)
    changed = replace(voice, speaker_embedding=voice.speaker_embedding + 1)
    other = content_of(changed, tmp_path)
    assert upload(client, content).status_code == 200
    first = client.speaker.voices.find("Ann")
    assert upload(client, content).status_code == 200, "the same voice: a client that has lost its answer"
    assert client.speaker.voices.find("Ann") is first, "its reference has been decoded maybe"
    for name in ("Ann", "ann", "\uff21nn"):
        refused = upload(client, other, name)
        assert refused.status_code == 409 and "send replace=true" in refused.json()["error"]["message"]
    assert names(client) == ["Ann"] and client.speaker.voices.find("Ann") is first
    assert upload(client, other, "ann", replace="true").status_code == 200
    assert names(client) == ["ann"]
    assert client.speaker.voices.find("ann").speaker_embedding.equal(changed.speaker_embedding)


def test_names_in_one_alphabet_are_taken(serve, voice, tmp_path) -> None:
    client, content = serve(kind="base"), content_of(voice, tmp_path)
    for name in ("\u0410\u043d\u043d\u0430 2", "\u0386\u03bd\u03bd\u03b1", "Zo\u00eb", "\u5b89\u5a1c Ann"):
        assert upload(client, content, name).status_code == 200, name


def test_what_is_no_voice_of_this_model_is_refused(serve, voice, tmp_path) -> None:
    client = serve(ServerOptions(limits=Limits(voice_bytes=4096)), kind="base")
    assert "damaged" in upload(client, b"no voice").json()["error"]["message"]
    other = upload(client, content_of(replace(voice, model_size="1b7"), tmp_path))
    assert other.status_code == 400 and "1.7B" in other.json()["error"]["message"]
    assert upload(client, bytes(5000)).status_code == 413
    form = client.run(lambda http: http.post("/v1/audio/voices?name=Ann&consent=true", json={}))
    assert form.status_code == 415
    assert names(client) == []


def test_a_voice_that_would_hold_up_others_is_refused(serve, voice, tmp_path, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(voice_module, "MOST_CODE_FRAMES", 10_000)
        long = replace(voice, ref_codes=torch.zeros(8000, 16, dtype=torch.int64))
        content = content_of(long, tmp_path)
    client = serve(kind="base")
    answer = upload(client, content)
    assert answer.status_code == 400 and names(client) == []
    assert "reference codes have 8000 frames and 400 are allowed" in answer.json()["error"]["message"]


def test_the_voice_that_was_not_used_for_the_longest_time_goes(serve, voice, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(voices_module, "MOST_UPLOADED", 2)
    client, content = serve(kind="base"), content_of(voice, tmp_path)
    assert [upload(client, content, name).status_code for name in ("Ann", "Bob")] == [200, 200]
    assert client.post(asked(voice="Ann")).status_code == 200
    assert upload(client, content, "Cay").status_code == 200
    assert sorted(names(client)) == ["Ann", "Cay"]
