"""When the words of an answer are heard: in events beside the sound, between parts, and in JSON."""

import base64
import io
import json
from email import message_from_bytes
from email.policy import HTTP as email_policy
from typing import Any

import httpx
import pytest
import soundfile
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.speech.takes import word_times
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice

from lab.streams import render_lines
from tests.serve.conftest import Client, asked
from tests.serve.routes.test_speech import events_of

TEXT = "A word -- of $5, in 10 words. [pause 0.2] The last word: 中文!"
WORDS = ["A", "word --", "of", "$5,", "in", "10", "words.", "The", "last", "word:", "中", "文!"]
BYTES_A_SECOND = 48000


def wanted(stream_format: str, **more: Any) -> dict[str, Any]:
    settings = {"response_format": "pcm", "return_timestamps": True, "split_chars": 40, **more}
    return asked(TEXT, stream_format=stream_format, sampling={"max_seconds": 4}, **settings)


def check(words: list[dict[str, Any]], seconds: float) -> None:
    """They are all there, each at its place in the text and in the sound."""
    assert [TEXT[word["first_char"] : word["last_char"]] for word in words] == WORDS
    assert [word["word"] for word in words] == WORDS
    times = [time for word in words for time in (word["start_time"], word["end_time"])]
    assert times == sorted(times) and times[0] >= 0 and 0 < times[-1] <= seconds + 0.001


@pytest.mark.parametrize("speed", [1, 2])
def test_events_tell_words_that_have_ended_before_their_sound(telling: Client, speed: float) -> None:
    events = events_of(telling.post(wanted("sse", speed=speed)).content)
    sent, words = 0, []
    for index, (name, event) in enumerate(events):
        if name == "speech.audio.delta":
            sent += len(base64.b64decode(event["audio"]))
        elif name == "speech.audio.timestamps":
            words += event["timestamps"]
            assert event["timestamps"] and events[index + 1][0] in ("speech.audio.delta", "speech.audio.done")
    assert events[-1][0] == "speech.audio.done" and "timestamps" not in events[-1][1]
    check(words, sent / BYTES_A_SECOND)
    names = [name for name, _ in events]
    assert names.count("speech.audio.timestamps") > 2, "they come while the line is made"
    seldom = events_of(telling.post(wanted("sse", speed=speed, event_interval=10)).content)
    assert [name for name, _ in seldom].count("speech.audio.timestamps") <= 2
    check([word for _, event in seldom for word in event.get("timestamps", [])], sent / BYTES_A_SECOND)


def test_complete_answers_tell_the_words_of_their_sound(telling: Client) -> None:
    model = telling.speaker.model
    options = GenerateOptions(sampling=Sampling(max_seconds=4), split_chars=40, retries=0)
    [line] = render_lines(Synthesizer(model), [Line(TEXT, preset_voice(model, "ryan"), seed=3)], options)
    ours = [(round(one.start_s, 3), round(one.end_s, 3)) for one in word_times(model, line)]
    told = telling.post(wanted("json", response_format="wav"))
    assert told.headers["content-type"] == "application/json" and told.headers["x-speech-seed"] == "3"
    body = told.json()
    assert set(body) == {"audio", "audio_format", "timestamps", "usage", "report"}
    assert body["audio_format"] == "audio/wav" and body["report"]["ended"] == told.headers["x-speech-ended"]
    sound, rate = soundfile.read(io.BytesIO(base64.b64decode(body["audio"])))
    assert len(sound) == len(line.waveform)
    check(body["timestamps"], len(sound) / rate)
    assert [(one["start_time"], one["end_time"]) for one in body["timestamps"]] == ours
    answer = telling.post(wanted("multipart"))
    head = f"Content-Type: {answer.headers['content-type']}\r\n\r\n".encode()
    *_, last = message_from_bytes(head + answer.content, policy=email_policy).iter_parts()
    assert json.loads(last.get_content())["timestamps"] == body["timestamps"]


@pytest.mark.parametrize("stream_format", ["sse", "multipart", "json"])
def test_nothing_is_told_that_nobody_asked_for(telling, monkeypatch, stream_format) -> None:
    monkeypatch.setattr(
        "qwen3_tts_morph.serve.routes.speaker.Timestamps", lambda *_: pytest.fail("words were looked for")
    )
    answer = telling.post(asked(stream_format=stream_format, return_timestamps=False))
    assert answer.status_code == 200 and b"timestamps" not in answer.content


def refusal(answer: httpx.Response) -> tuple[int, str, str]:
    error = answer.json()["error"]
    return answer.status_code, error["param"], error["message"]


def test_what_cannot_be_told_is_refused(client: Client, telling: Client) -> None:
    status, param, said = refusal(client.post(wanted("sse")))
    assert (status, param) == (400, "return_timestamps") and "no attention head that is known" in said
    assert client.get("/v1/status").json()["word_times"] is False
    assert telling.get("/v1/status").json()["word_times"] is True
    status, param, said = refusal(telling.post(wanted("audio")))
    assert (status, param) == (400, "return_timestamps") and "set stream_format to json, sse or" in said
    status, param, said = refusal(telling.post(wanted("json", stream=True)))
    assert (status, param) == (400, "stream") and "stream_format is json, which is complete" in said
