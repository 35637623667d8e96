"""The field ``voice_shift``: what it makes, what is kept, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from qwen3_tts_morph.morph.voice.create import Shift, shift_voice
from qwen3_tts_morph.morph.voice.file import save_voice
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.serve.api.errors import ApiError
from qwen3_tts_morph.serve.api.options import ServerOptions
from qwen3_tts_morph.serve.api.request import VoiceShift
from qwen3_tts_morph.serve.routes.voices import VoiceBook
from starlette.testclient import TestClient

from tests.serve.conftest import Client, asked, same_sound

STREAM = "/v1/audio/speech/stream"
MOOD = {"toward": "vivian", "away": "serena", "strength": 0.5}


def pcm(client: Client, **more: Any) -> bytes:
    answer = client.post(asked(response_format="pcm", **more))
    assert answer.status_code == 200, answer.text
    return answer.content


def test_a_request_s_voice_is_shifted(client: Client) -> None:
    plain = pcm(client)
    assert same_sound(pcm(client, voice_shift={**MOOD, "strength": 0}), plain)
    shifted = pcm(client, voice_shift=MOOD)
    assert shifted != plain and same_sound(pcm(client, voice_shift={**MOOD, "toward": ["vivian"]}), shifted)
    book, model = client.speaker.voices, client.speaker.model
    made = book.shifted(book.find("ryan"), VoiceShift(toward="vivian", away="serena", strength=0.5))
    assert book.shifted(book.find("ryan"), VoiceShift(toward="vivian", away="serena", strength=0.5)) is made, (
        "it is kept"
    )
    named = book.shifted(
        replace(book.find("ryan"), name="Ry"), VoiceShift(toward="vivian", away="serena", strength=0.5)
    )
    assert named.recipe == "Ry + 0.5 * (vivian - serena)"
    ends = [[book.find(name)] for name in ("vivian", "serena")]
    wanted = shift_voice(book.find("ryan"), Shift(*ends, 0.5), model)
    assert made.kind == wanted.kind == "blend" and made.speakers == wanted.speakers
    assert torch.equal(made.speaker_embedding, wanted.speaker_embedding) and made.recipe == wanted.recipe


def test_saved_voices_are_shifted_and_a_file_that_changed_is_read_again(serve, load, tmp_path: Path) -> None:
    model = load("tiny", "base")

    def save(name: str, first: float, **more: Any) -> None:
        embedding = torch.zeros(model.width)
        embedding[0] = first
        save_voice(Voice("x_vector", model.size, name, embedding, **more), tmp_path / f"{name}.safetensors")

    for name, first in (("Anna", 1.0), ("angry", 3.0), ("calm", 2.0)):
        save(name, first)
    save("Anna (angry)", 2.0, recipe="Anna + 1 * (angry - calm)")
    client = serve(ServerOptions(voices=tmp_path), "base")
    listed = {one["name"]: one.get("recipe") for one in client.get("/v1/audio/voices").json()["voices"]}
    assert listed == {"Anna": None, "Anna (angry)": "Anna + 1 * (angry - calm)", "angry": None, "calm": None}
    book, mood = client.speaker.voices, VoiceShift(toward="angry", away=["calm", "Anna"])
    assert book.shifted(book.find("Anna"), mood).speaker_embedding[0] == 2.5
    save("angry", 30.0)
    assert book.shifted(book.find("Anna"), mood).speaker_embedding[0] == 29.5
    shift = {"toward": "angry", "away": ["calm", "Anna"]}
    assert client.post({**asked(voice_shift=shift), "voice": "Anna"}).status_code == 200


def test_a_websocket_s_voice_is_shifted(client: Client) -> None:
    with TestClient(client.app).websocket_connect(STREAM, headers={"host": "127.0.0.1"}) as socket:
        config = {key: value for key, value in asked().items() if key != "input"}
        socket.send_json({"type": "session.config", **config, "voice_shift": MOOD})
        socket.send_json({"type": "input.text", "text": "Hello there."})
        socket.send_json({"type": "input.done"})
        assert socket.receive_json()["type"] == "audio.start"


@pytest.mark.parametrize(
    ("shift", "sentence"),
    [
        ("angry", "voice_shift is not a JSON object"),
        ({"away": "serena"}, "toward of voice_shift is missing: send the name of a voice"),
        (
            {**MOOD, "away": []},
            "away of voice_shift is []: send the name of a voice that has not, or a list of 1 to 8",
        ),
        ({**MOOD, "away": ["serena"] * 9}, "away of voice_shift is ["),
        ({**MOOD, "away": [7]}, "away of voice_shift is ["),
        ({**MOOD, "strength": 3.5}, "strength of voice_shift is 3.5: choose -2 to 3"),
        ({**MOOD, "strength": True}, "strength of voice_shift is True"),
        ({**MOOD, "file": "x"}, "voice_shift has a field 'file'"),
        ({**MOOD, "away": "vivian"}, "have the same speaker embedding"),
    ],
)
def test_what_is_no_shift_is_refused(client: Client, shift: Any, sentence: str) -> None:
    answer = client.post(asked(voice_shift=shift))
    assert answer.status_code == 400 and sentence in answer.json()["error"]["message"], answer.text


def test_an_unknown_voice_of_a_shift_is_not_found(client: Client) -> None:
    answer = client.post(asked(voice_shift={**MOOD, "away": "../nobody"}))
    assert answer.status_code == 404 and answer.json()["error"]["code"] == "voice_not_found"


def test_a_designed_voice_has_nothing_to_shift(serve) -> None:
    book, told = serve(kind="voice_design").speaker.voices, "a calm voice"
    book.find = lambda *_: VoiceBook.find(book, None, told)
    with pytest.raises(ApiError, match="has no speaker embedding"):
        book.shifted(book.find(), VoiceShift(toward="angry", away="calm", strength=1.0))
