"""Voices from recordings that clients send: made between lines, listed, spoken with; others are refused."""

import io
import struct
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile
import torch
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice
from qwen3_tts_morph.serve.api.options import ServerOptions
from qwen3_tts_morph.serve.routes import app

from tests.morph.voice.made_speech import RATE, clip, hush, phrase
from tests.serve.conftest import Client, asked

WORDS = "What it says."


def sound_of(samples: np.ndarray, kind: str = "WAV", rate: int = 24000) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=kind)
    return buffer.getvalue()


def clone(client: Client, content: bytes, kind: str = "audio/wav", **changes: str) -> httpx.Response:
    params = {"name": "Ann", "consent": "true", **changes}
    headers = {"Content-Type": kind}
    return client.run(lambda http: http.post("/v1/audio/voices/clone", content=content, params=params, headers=headers))


def message(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["message"])


@pytest.mark.parametrize("words", ["", WORDS])
def test_a_recording_becomes_the_voice_that_the_library_makes_of_it(serve, load, recording, words) -> None:
    client, sound = serve(kind="base"), sound_of(recording)
    assert client.get("/v1/status").json()["can_clone"] is True
    made = clone(client, sound, transcript=words)
    assert made.json() == {"id": "Ann", "name": "Ann", "kind": "uploaded", "notes": made.json()["notes"]}
    samples, rate = soundfile.read(io.BytesIO(sound), dtype="float32")
    options = CloneOptions("icl", WORDS) if words else CloneOptions()
    want, got = clone_voice(load("tiny", "base"), samples, rate, options), client.speaker.voices.find("Ann")
    assert (got.kind, got.transcript, got.notes) == (want.kind, want.transcript, want.notes)
    assert torch.equal(got.speaker_embedding, want.speaker_embedding)
    assert words == "" or torch.equal(got.ref_codes, want.ref_codes)
    assert client.post(asked(voice="Ann")).status_code == 200
    other = recording[::-1]
    assert clone(client, sound_of(other)).status_code == 409, "Ann is somebody's already"
    assert clone(client, sound_of(other), replace="true").status_code == 200
    assert client.run(lambda http: http.delete("/v1/audio/voices/Ann")).status_code == 200


def test_a_part_of_a_recording_is_the_voice_that_is_made_of_it_alone(serve, load) -> None:
    client, spoken = serve(kind="base"), np.concatenate([hush(1), phrase(4.0), hush(1)])
    whole = sound_of(np.concatenate([clip(phrase(2.0) * 4, 0.5), spoken]), rate=RATE)
    want = clone_voice(load("tiny", "base"), spoken, RATE)
    for part, told in (
        ({"start": "2", "end": "8"}, "2.00 to 8.00 s"),
        ({"best": "true"}, "the best part: 2.9"),
    ):
        notes = clone(client, whole, replace="true", **part).json()["notes"]
        assert notes[0].startswith(told) and "not clipped" in notes[1]
        got = client.speaker.voices.find("Ann")
        assert tuple(notes) == got.notes
        if part.get("start"):
            assert torch.allclose(got.speaker_embedding, want.speaker_embedding, atol=1e-3)


@pytest.mark.parametrize("kind", ["FLAC", "OGG", "MP3"])
def test_compressed_recordings_of_other_rates_are_read(serve, recording, kind) -> None:
    stereo = np.stack([recording, recording], axis=1)
    assert clone(serve(kind="base"), sound_of(stereo, kind, 44100), f"audio/{kind.lower()}").status_code == 200


def wav_head(rate: int, channels: int, size: int) -> bytes:
    block = 2 * channels
    head = struct.pack("<4sI8sIHHIIHH", b"RIFF", size, b"WAVEfmt ", 16, 1, channels, rate, 0, block, 16)
    return head + struct.pack("<4sI", b"data", size) + bytes(4096)


@pytest.mark.parametrize(
    ("make", "changes", "status", "words"),
    [
        (sound_of, {"consent": ""}, 400, "has agreed"),
        (sound_of, {"name": "../Ann"}, 400, "use only letters"),
        (sound_of, {"name": "Alloy"}, 409, "choose another name"),
        (sound_of, {"kind": "text/plain"}, 415, "send a recording"),
        (sound_of, {"transcript": "word " * 500}, 400, "transcript has"),
        (sound_of, {"start": "soon"}, 400, "start is 'soon': choose 0 to 60"),
        (sound_of, {"end": "nan"}, 400, "end is 'nan': choose 0 to 60"),
        (sound_of, {"start": "50"}, 400, "start is 50 s and the recording is"),
        (sound_of, {"end": "0.2"}, 400, "choose at least 1 s"),
        (sound_of, {"best": "true", "start": "1"}, 400, "leave out start and end"),
        (lambda sound: sound_of(sound[:12000]), {}, 400, "at least 1 s"),
        (lambda sound: sound_of(np.zeros_like(sound)), {}, 400, "is silent"),
        (lambda _: b"", {}, 400, "cannot be read as a sound"),
        (lambda _: b"no sound" * 100, {}, 400, "cannot be read as a sound"),
        (lambda sound: sound_of(sound, "AIFF"), {}, 400, "send wav, flac"),
        (lambda _: wav_head(2_000_000_000, 1, 2**31), {}, 400, "2000000000 Hz"),
        (lambda _: wav_head(48_000, 200, 2**31), {}, 400, "200 channels"),
        (lambda _: bytes(app.RECORDING_BYTES + 1), {}, 413, "shorter"),
    ],
)
def test_what_cannot_be_cloned_is_refused(serve, recording, make, changes, status, words) -> None:
    client = serve(kind="base")
    refused = clone(client, make(recording), **changes)
    assert refused.status_code == status and words in message(refused)
    assert client.get("/v1/audio/voices").json()["data"] == []


def test_a_checkpoint_without_a_speaker_encoder_says_so(client: Client, recording) -> None:
    assert client.get("/v1/status").json()["can_clone"] is False
    refused = clone(client, sound_of(recording))
    assert refused.status_code == 400 and "start the server with a Base checkpoint" in message(refused)


@pytest.fixture
def speaking(serve, load, recording) -> Callable[[], tuple[Client, object]]:
    """A server that speaks a line without an end, and what reads that."""

    def make() -> tuple[Client, object]:
        client = serve(ServerOptions(rows=2), "base")
        voice = clone_voice(load("tiny", "base"), recording, 24000)
        utterance = client.speaker._batch.speak(Line("word " * 300, voice))
        assert utterance.take() is not None
        return client, utterance

    return make


def test_listeners_are_not_stopped_by_a_clone(speaking, recording, monkeypatch) -> None:
    monkeypatch.setattr(app, "WAIT_S", 0.2)
    client, utterance = speaking()
    busy = clone(client, sound_of(recording))
    assert busy.status_code == 503 and "between lines" in message(busy) and busy.headers["retry-after"] == "10"
    assert client.speaker.status.speaking == 1 and utterance.take() is not None, "it goes on"
    assert client.get("/v1/audio/voices").json()["data"] == []
    utterance.close()
    monkeypatch.undo()
    assert clone(client, sound_of(recording)).status_code == 200, "its row is free within a frame"


def test_only_a_few_recordings_are_read_at_once(serve, recording, monkeypatch) -> None:
    monkeypatch.setattr(app, "MOST_CLONES", 0)
    assert clone(serve(kind="base"), sound_of(recording)).status_code == 503


def test_a_clone_that_waits_ends_with_the_server(speaking, recording) -> None:
    client, _ = speaking()
    asked_for = client.speaker.between_lines(lambda: None)
    client.speaker.close()
    with pytest.raises(Exception, match="closed"):
        asked_for.result()
    closed = clone(client, sound_of(recording))
    assert closed.status_code == 503 and "shutting down" in message(closed)


def test_no_file_of_the_server_is_written_or_named(serve, recording, tmp_path: Path) -> None:
    client = serve(ServerOptions(voices=tmp_path), "base")
    assert clone(client, sound_of(recording)).status_code == 200
    assert list(tmp_path.iterdir()) == []
