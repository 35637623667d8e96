"""``POST /v1/audio/speech`` of a server in this process: formats, events, fields, limits."""

import base64
import io
import json
import struct
from email import message_from_bytes
from email.policy import HTTP as email_policy
from typing import Any

import av
import httpx
import numpy as np
import pytest
import soundfile
from qwen3_tts_morph.morph.audio.formats import SERVED as FORMATS
from qwen3_tts_morph.morph.batch.codec import steps as codec_steps
from qwen3_tts_morph.morph.speech import pieces
from qwen3_tts_morph.serve.api.errors import ApiError
from qwen3_tts_morph.serve.api.options import Limits, ServerOptions, body_bytes
from qwen3_tts_morph.serve.api.request import SettingsFields, read_settings
from qwen3_tts_morph.serve.routes import speaker as speaker_module
from qwen3_tts_morph.serve.routes.speaker import SpeechReader

from tests.serve.conftest import Client, asked, same_sound

WAV_HEAD = 44


def sound_of(body: bytes) -> tuple[np.ndarray, int]:
    with av.open(io.BytesIO(body)) as file:
        frames = list(file.decode(audio=0))
    resampler = av.AudioResampler("fltp", "mono", 24000)
    parts = [part.to_ndarray()[0] for frame in [*frames, None] for part in resampler.resample(frame)]
    return np.concatenate(parts), frames[0].sample_rate


def events_of(body: bytes) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for block in body.decode().strip().split("\n\n"):
        name, data = block.split("\n")
        fields = json.loads(data.removeprefix("data: "))
        assert name == f"event: {fields['type']}"
        found.append((fields["type"], fields))
    return found


def error_of(response) -> dict[str, Any]:
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"]
    return error


def test_the_first_answer_is_mp3_as_openai_gives_it(client: Client) -> None:
    # Its own limit, as random weights may end at the line's, which breaks the stream off.
    body = {"input": "Hello there.", "voice": "alloy", "model": "tts-1", "sampling": {"max_seconds": 0.8}}
    response = client.post(body)
    assert response.status_code == 200 and response.headers["content-type"] == "audio/mpeg"
    assert len(sound_of(response.content)[0]) > 1920
    assert 0 <= int(response.headers["x-speech-seed"]) < 2**32


def test_streamed_pcm_equals_the_wav_and_its_file(client: Client) -> None:
    pcm, wav = (client.post(asked(response_format=name)) for name in ("pcm", "wav"))
    assert pcm.headers["content-type"] == "audio/pcm" and "content-length" not in pcm.headers
    assert wav.headers["content-type"] == "audio/wav" and pcm.headers["x-speech-sample-rate"] == "24000"
    assert same_sound(wav.content[WAV_HEAD:], pcm.content) and len(pcm.content) % 3840 == 0
    assert struct.unpack("<4sI", wav.content[:8]) == (b"RIFF", 0xFFFFFFFF)
    file = client.post(asked(response_format="wav", stream=False))
    assert int(file.headers["content-length"]) == len(file.content)
    samples, rate = soundfile.read(io.BytesIO(file.content), dtype="int16")
    assert rate == 24000 and same_sound(samples.tobytes(), pcm.content)


def test_every_format_may_be_a_file(client: Client) -> None:
    for name in FORMATS:
        response = client.post(asked(response_format=name, stream=False))
        assert response.headers["content-type"] == FORMATS[name]
        assert int(response.headers["content-length"]) == len(response.content) > 1000, name


@pytest.mark.parametrize(
    ("name", "stream"), [("mp3", False), ("opus", True), ("aac", True), ("flac", False), ("flac", True)]
)
def test_compressed_formats_have_the_whole_sound(client: Client, name: str, stream: bool) -> None:
    response = client.post(asked(response_format=name, stream=stream))
    assert response.status_code == 200 and response.headers["content-type"] == FORMATS[name]
    samples, rate = sound_of(response.content)
    plain = np.frombuffer(client.post(asked(response_format="pcm")).content, "<i2")
    assert rate == (48000 if name == "opus" else 24000)
    delay = 0 if name == "flac" else 4096  # what the encoder puts around the sound
    assert len(plain) - 400 <= len(samples) <= len(plain) + delay
    if name == "flac":
        assert np.abs(np.rint(samples * 32768).astype(int) - plain).max() <= 2


def test_events_carry_the_same_bytes_and_counts(client: Client) -> None:
    response = client.post(asked(response_format="pcm", stream_format="sse"))
    assert response.headers["content-type"].startswith("text/event-stream")
    events = events_of(response.content)
    assert [name for name, _ in events] == ["speech.audio.delta"] * (len(events) - 1) + ["speech.audio.done"]
    sound = b"".join(base64.b64decode(fields["audio"]) for _, fields in events[:-1])
    assert same_sound(sound, client.post(asked(response_format="pcm")).content) and len(events) > 2
    usage = events[-1][1]["usage"]
    assert usage["output_tokens"] == len(sound) // 3840 and usage["input_tokens"] > 0
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    report = events[-1][1]["report"]
    assert report["frames"] == usage["output_tokens"] and report["seconds"] * 48000 == len(sound)
    assert "SEQ_GROUPS 5" in report["made_by"][0] and "engine" in report["made_by"][1]


def test_events_wait_for_each_other_where_that_is_asked_for(client: Client) -> None:
    whole = asked("word " * 20, response_format="pcm", stream_format="sse", sampling={"max_seconds": 4})
    often, seldom = (events_of(client.post({**whole, **more}).content) for more in ({}, {"event_interval": 10}))
    assert len(often) > 4 and [name for name, _ in seldom] == [
        *("speech.audio.delta", "speech.audio.delta", "speech.audio.done")
    ], "the first part at once, then the rest"
    first, second = (
        b"".join(base64.b64decode(fields["audio"]) for _, fields in events[:-1]) for events in (often, seldom)
    )
    assert same_sound(first, second) and often[-1][1]["usage"] == seldom[-1][1]["usage"]


def parts_of(response: httpx.Response) -> list[Any]:
    """The parts as Python's own parser reads them: JSON, or bytes."""
    assert response.headers["content-type"].startswith("multipart/mixed; boundary=")
    head = f"Content-Type: {response.headers['content-type']}\r\n\r\n".encode()
    parts = message_from_bytes(head + response.content, policy=email_policy).get_payload()
    assert [int(one["content-length"]) for one in parts] == [len(one.get_payload(decode=True)) for one in parts]
    return [json.loads(one.get_payload()) if one.get_content_type() == "application/json" else one for one in parts]


def test_a_complete_sound_may_come_between_parts_that_say_how_it_goes(client: Client) -> None:
    body = asked("word " * 20, response_format="mp3", sampling={"max_seconds": 4})
    file = client.post({**body, "stream": False})
    for more in ({}, {"event_interval": 0.001, "stream": False}):
        answer = client.post({**body, "stream_format": "multipart", **more})
        assert answer.headers["x-speech-seed"] == "3"
        *progress, sound, done = parts_of(answer)
        assert all(one["type"] == "speech.audio.progress" for one in progress) and bool(progress) == bool(more)
        frames = [one["frames"] for one in progress]
        assert frames == sorted(frames) and all(frame <= 50 for frame in frames)
        assert done["type"] == "speech.audio.done" and done["report"]["ended"] == "cap"
        assert done["report"]["frames"] == 50 == done["usage"]["output_tokens"]
        assert sound.get_content_type() == "audio/mpeg"
        assert abs(len(sound.get_payload(decode=True)) - len(file.content)) < 100


def test_parts_end_with_the_error(client: Client, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise ApiError(500, "speaking failed")

    monkeypatch.setattr(SpeechReader, "encode", fail)
    body = asked("word " * 20, stream_format="multipart", sampling={"max_seconds": 4})
    assert client.post(body).status_code == 500
    *_, last = parts_of(client.post({**body, "event_interval": 0.001}))
    assert last["type"] == "error" and last["error"]["type"] == "server_error"


def test_our_own_fields_reach_the_engine(client: Client) -> None:
    plain = asked(response_format="pcm", language="English")
    answers = [
        client.post({**plain, **more})
        for more in ({}, {"seq_groups": 15}, {"sampling": {"max_seconds": 0.5, "subtalker_temperature": 0.3}})
    ]
    assert [one.status_code for one in answers] == [200] * 3
    assert len({one.content for one in answers}) == 3
    assert [one.headers["x-speech-seq-groups"] for one in answers] == ["5", "15", "5"]


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ({"decoding": "lossless", "continuity": True}, "SEQ_GROUPS 5"),
        (
            {"tail": "stock", "normalize_text": "off", "trim_silence": False, "split_chars": 40},
            "SEQ_GROUPS 5",
        ),
    ],
)
def test_how_it_was_made_is_told(client: Client, field, words: str) -> None:
    answer = client.post(asked(response_format="pcm", stream_format="sse", **field))
    assert words in events_of(answer.content)[-1][1]["report"]["made_by"][0]
    assert answer.headers.get("x-speech-ignored") == ("decoding, continuity" if "decoding" in field else None)


@pytest.mark.parametrize(
    ("change", "status", "param", "words"),
    [
        ({"input": None}, 400, "input", "input is missing: send the text to speak"),
        ({"input": "  "}, 400, "input", "empty"),
        ({"input": "..."}, 400, "input", "no letter"),
        ({"input": "Hello. [pause 99]"}, 400, "input", "is not a pause"),
        ({"input": "Hello. [pause 40] [pause 40]"}, 400, "input", "80 s of pauses"),
        ({"input": 7}, 400, "input", "input is 7: send the text to speak"),
        ({"input": "\ud83d"}, 400, "input", "half a character"),
        ({"input": "x" * 20_001}, 400, "input", "20000 are allowed"),
        ({"voice": "nobody"}, 404, "voice", "choose one of"),
        ({"voice": "../../etc/passwd"}, 404, "voice", "unknown"),
        ({"voice": {"id": "nobody"}}, 404, "voice", "unknown"),
        ({"voice": {"path": "x"}}, 400, "voice", "send a name that GET /v1/audio/voices lists"),
        ({"voice": ""}, 400, "voice", "send a name that"),
        ({"model": "whisper-1"}, 404, "model", "not loaded"),
        ({"model": 1}, 400, "model", "send the loaded checkpoint's name"),
        ({"speed": 0.2}, 400, "speed", "speed is 0.2: choose 0.25 to 4"),
        ({"speed": 4.1}, 400, "speed", "speed is 4.1: choose 0.25 to 4"),
        ({"speed": float("nan")}, 400, "speed", "speed is nan: choose 0.25 to 4"),
        ({"speed": "fast"}, 400, "speed", "speed is 'fast': choose 0.25 to 4"),
        ({"response_format": "midi"}, 400, "response_format", "mp3, opus"),
        ({"stream_format": "xml"}, 400, "stream_format", "audio, sse"),
        ({"stream_format": "sse", "stream": False}, 400, "stream", "leave one out"),
        ({"stream_format": "multipart", "stream": True}, 400, "stream", "leave one out"),
        ({"stream_format": "sse", "event_interval": 11}, 400, "event_interval", "choose 0 to 10"),
        ({"stream_format": "sse", "event_interval": "1"}, 400, "event_interval", "choose 0 to 10"),
        ({"event_interval": 1}, 400, "event_interval", "stream_format to sse"),
        ({"stream": "yes"}, 400, "stream", "true or false"),
        ({"language": "klingon"}, 400, "language", "choose one of auto"),
        ({"instructions": 7}, 400, "instructions", "send how to speak"),
        ({"instructions": "x" * 4097}, 400, "instructions", "4096 are allowed"),
        ({"instruct": "softly"}, 400, "instruct", "does not know"),
        ({"seed": -1}, 400, "seed", "whole number"),
        ({"seed": True}, 400, "seed", "whole number"),
        ({"seq_groups": 16}, 400, "seq_groups", "1 to 15"),
        ({"decoding": "beam"}, 400, "decoding", "crossbar or lossless"),
        ({"tail": "none"}, 400, "tail", "auto or stock"),
        ({"normalize_text": True}, 400, "normalize_text", "auto or off"),
        ({"trim_silence": 1}, 400, "trim_silence", "true or false"),
        ({"split_chars": 0}, 400, "split_chars", "40 to 400"),
        ({"sampling": []}, 400, None, "not a JSON object"),
        (
            {"sampling": {"temperature": 0}},
            400,
            "sampling",
            "temperature of sampling is 0: choose 0.01 to 10",
        ),
        (
            {"sampling": {"temperature": 1e39}},
            400,
            "sampling",
            "temperature of sampling is 1e+39: choose 0.01 to 10",
        ),
        ({"sampling": {"temperature": 1e-39}}, 400, "sampling", "choose 0.01 to 10"),
        ({"sampling": {"subtalker_temperature": 1e308}}, 400, "sampling", "choose 0.01 to 10"),
        ({"sampling": {"repetition_penalty": 1e308}}, 400, "sampling", "choose 0.1 to 10"),
        ({"sampling": {"repetition_penalty": 1e-308}}, 400, "sampling", "choose 0.1 to 10"),
        ({"sampling": {"\ud800": 1}}, 400, "\\ud800", "does not know"),
        ({"\ud800": 1}, 400, "\\ud800", "does not know"),
        ({"sampling": {"heat": 1}}, 400, "heat", "does not know"),
        ({"ref_audio": "file:///etc/passwd"}, 400, "ref_audio", "does not know"),
    ],
)
def test_what_is_refused(client: Client, change, status, param, words) -> None:
    body = json.dumps({**asked(), **change})
    response = client.run(
        lambda http: http.post("/v1/audio/speech", content=body, headers={"content-type": "application/json"})
    )
    error = error_of(response)
    assert (response.status_code, error["param"]) == (status, param) and words in error["message"]
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"input": "Hello."}', "text/plain", 415),
        (b"x" * 300_000, "application/json", 413),
    ],
)
def test_bodies_that_are_no_request(client: Client, body: bytes, kind: str, status: int) -> None:
    response = client.run(lambda http: http.post("/v1/audio/speech", content=body, headers={"content-type": kind}))
    assert response.status_code == status and error_of(response)


def test_a_speed_of_one_and_nulls_are_fine(client: Client) -> None:
    body = asked(speed=1.0, instructions=None, stream_format=None, language=None, model=client.speaker.model.name)
    assert client.post(body).status_code == 200


@pytest.mark.parametrize("speed", [0.25, 1.5])
def test_speed_changes_the_length(client: Client, speed: float) -> None:
    """In a stream, in events and in a file; ``seconds`` of the report are those of the sound that is sent."""
    body = asked(response_format="pcm", speed=speed)
    plain = client.post(asked(response_format="pcm")).content
    streamed, file = client.post(body), client.post({**body, "stream": False})
    assert streamed.status_code == 200 and file.headers["content-length"] == str(len(file.content))
    assert len(streamed.content) // 2 == round(len(plain) // 2 / speed)
    assert np.frombuffer(streamed.content, "<i2").any() and same_sound(streamed.content, file.content)
    events = events_of(client.post({**body, "stream_format": "sse"}).content)
    sound = b"".join(base64.b64decode(fields["audio"]) for _, fields in events[:-1])
    report = events[-1][1]["report"]
    assert same_sound(sound, streamed.content) and report["seconds"] * 48000 == pytest.approx(len(sound))
    assert report["frames"] == len(plain) // 3840, "those that the model made"


def test_instructions_that_cannot_be_followed_are_ignored_and_that_is_said(client: Client) -> None:
    body = asked(response_format="pcm", instructions="Speak softly.")
    answer, plain = client.post(body), client.post(asked(response_format="pcm"))
    assert answer.status_code == 200 and same_sound(answer.content, plain.content)
    assert answer.headers["x-speech-ignored"] == "instructions" and "x-speech-ignored" not in plain.headers
    assert client.post({**body, "stream": False}).headers["x-speech-ignored"] == "instructions"
    events = events_of(client.post({**body, "stream_format": "sse"}).content)
    assert events[-1][1]["report"]["ignored"] == ["instructions"]


def test_a_strict_server_refuses_them(serve) -> None:
    client = serve(ServerOptions(strict=True))
    answer = client.post(asked(instructions="Speak softly."))
    assert answer.status_code == 400 and "does not follow instructions" in error_of(answer)["message"]
    assert client.post(asked(instructions="")).status_code == 200


def test_instructions_are_followed_where_the_checkpoint_can(load) -> None:
    model = load("tiny", "voice_design")
    fields = SettingsFields(instructions="a calm voice")
    settings = read_settings(fields, model, ServerOptions(strict=True), "Hello.")
    assert (settings.instructions, settings.ignored) == ("a calm voice", ())


def test_an_answer_that_takes_too_long_is_ended(serve) -> None:
    client = serve(ServerOptions(limits=Limits(seconds=0.2)))
    response = client.post({**asked("word " * 20, stream=False), "sampling": {"max_seconds": 150}})
    assert response.status_code == 504 and error_of(response)["code"] == "timeout"
    assert client.speaker.status.waiting == 0


def test_a_failure_of_the_engine_has_no_details(client: Client, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("secret")

    with monkeypatch.context() as patch:
        patch.setattr(codec_steps, "check_samples", fail)
        response = client.post(asked())
    assert response.status_code == 500 and "secret" not in error_of(response)["message"]
    assert client.post(asked()).status_code == 200


def test_events_end_with_the_error(client: Client, monkeypatch) -> None:
    calls = []

    def fail_later(*_: object) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("secret")

    monkeypatch.setattr(codec_steps, "check_samples", fail_later)
    body = {**asked("word " * 20, stream_format="sse"), "sampling": {"max_seconds": 5}}
    response = client.post(body)
    events = events_of(response.content)
    assert response.status_code == 200 and events[-1][0] == "error"
    assert events[-1][1]["error"]["type"] == "server_error"


@pytest.mark.parametrize(("share", "ended"), [(0.45, "eos"), (0.0, "silent")])
def test_a_file_is_retried_if_there_is_time(serve, monkeypatch, share: float, ended: str) -> None:
    client, ends = serve(), iter(["silent"])
    monkeypatch.setattr(pieces, "judge_end", lambda *_: next(ends, "eos"))
    monkeypatch.setattr(speaker_module, "BEFORE_RETRY", share)
    response = client.post({**asked(stream=False), "sampling": {"max_seconds": 60}})
    assert response.status_code == 200 and len(response.content) > 1000
    assert response.headers["x-speech-ended"] == ended and response.headers["x-speech-seed"] == "3"


def test_a_text_of_escaped_characters_may_be_as_long_as_any(serve) -> None:
    limits = Limits(characters=30_000, body_bytes=body_bytes(30_000))
    body = json.dumps(asked("\U0001f642" * 30_000)).encode()
    answer = serve(ServerOptions(limits=limits)).run(
        lambda http: http.post("/v1/audio/speech", content=body, headers={"Content-Type": "application/json"})
    )
    assert answer.status_code == 400 and "no letter" in answer.json()["error"]["message"], "it was read"
