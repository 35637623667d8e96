"""What OpenAI's clients and chat front ends send, replayed.

Those of SENT were recorded on 2026-11-27 by a server that only writes down what it gets, from the versions that stand
beside them; wyoming-openai ran on Python 3.11 with its two generic functions rewritten. The other bodies (fields and
their order) and headers are those of the projects' own code, read in November 2026: SillyTavern
``src/endpoints/openai.js`` and ``public/scripts/extensions/tts/openai-compatible.js``, Open WebUI
``backend/open_webui/routers/audio.py`` and ``src/lib/apis/audio``, and the custom component ``sfortis/openai_tts``.
"""

import base64
import json
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

import httpx
import pytest
from qwen3_tts_morph.morph.speech import pieces

from tests.morph.examples import DATA
from tests.patience import PATIENCE
from tests.serve.conftest import Client, listening

JSON = {"Content-Type": "application/json"}
SPEECH = "/v1/audio/speech"


@pytest.fixture(autouse=True)
def short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """These requests cannot say how long a line may be, and a random model seldom ends one."""
    monkeypatch.setattr(pieces, "longest_frames", lambda _: 8)
    monkeypatch.setattr(pieces, "judge_end", lambda *_: "eos")  # as a trained model's lines end


@pytest.fixture(scope="module")
def url(client: Client) -> Iterator[str]:
    with listening(client.app) as address:
        yield address


def post(url: str, body: str, headers: dict[str, str]) -> httpx.Response:
    """Send exactly these headers: httpx would refuse SillyTavern's "Bearer " without a key."""
    address = urlsplit(url)
    connection = HTTPConnection(str(address.hostname), address.port, timeout=PATIENCE)
    with closing(connection):
        connection.request("POST", SPEECH, body.encode(), headers)
        answer = connection.getresponse()
        return httpx.Response(answer.status, headers=answer.getheaders(), content=answer.read())


SILLYTAVERN = '{"input":"Hello there.","response_format":"mp3","voice":"alloy","speed":1,"model":"tts-1"}'
# node-fetch's own headers; the key is empty where the user has set none.
NODE_FETCH = {
    **JSON,
    "Authorization": "Bearer ",
    "Accept": "*/*",
    "Accept-Encoding": "gzip, deflate, br",
    "User-Agent": "node-fetch",
    "Connection": "close",
}


def test_sillytavern(url: str) -> None:
    answer = post(url, SILLYTAVERN, NODE_FETCH)
    assert answer.status_code == 200 and answer.headers["content-type"] == "audio/mpeg"
    assert is_mp3(answer.content)


@pytest.mark.parametrize("speed", ["0.25", "1.25", "4"])
def test_sillytavern_s_slider(url: str, speed: str) -> None:
    answer = post(url, SILLYTAVERN.replace('"speed":1,', f'"speed":{speed},'), NODE_FETCH)
    assert answer.status_code == 200 and is_mp3(answer.content, least=1)


def test_sillytavern_logs_the_words_of_an_error(url: str) -> None:
    answer = post(url, SILLYTAVERN.replace('"speed":1,', '"speed":5,'), NODE_FETCH)
    assert answer.status_code == 400 and "choose 0.25 to 4" in answer.text


# The page sends input, voice and maybe model; the backend replaces the model, and merges its own parameters.
OPEN_WEBUI = '{"input": "Hello there.", "voice": "alloy", "model": "tts-1"}'
AIOHTTP = {**JSON, "Authorization": "Bearer sk-none", "Accept": "*/*", "Accept-Encoding": "gzip, deflate"}
USER = {
    "X-OpenWebUI-User-Name": "Ann",
    "X-OpenWebUI-User-Id": "0b6",
    "X-OpenWebUI-User-Email": "ann@example.org",
    "X-OpenWebUI-User-Role": "admin",
}


@pytest.mark.parametrize("headers", [AIOHTTP, {**AIOHTTP, **USER}])
def test_open_webui_speaks(url: str, headers: dict[str, str]) -> None:
    answer = post(url, OPEN_WEBUI, headers)
    assert answer.status_code == 200 and is_mp3(answer.content)


def test_open_webui_s_parameters(url: str) -> None:
    """A user's own JSON is merged into the body."""
    own = {"speed": 1.25, "instructions": "Speak calmly."}
    answer = post(url, json.dumps({**json.loads(OPEN_WEBUI), **own}), AIOHTTP)
    assert answer.status_code == 200 and answer.headers["x-speech-ignored"] == "instructions"


def test_open_webui_lists_voices_and_models_without_a_key(url: str, client: Client) -> None:
    """It builds ``{voice["id"]: voice["name"] for voice in data["voices"]}``, and reads ``data["models"]``."""
    voices = httpx.get(f"{url}/v1/audio/voices").json()
    assert {voice["id"]: voice["name"] for voice in voices["voices"]} == {
        name: name for name in client.speaker.model.speakers
    }
    models = httpx.get(f"{url}/v1/audio/models").json()
    assert client.speaker.model.name in [model["id"] for model in models["models"]]


def test_open_webui_shows_an_error(url: str) -> None:
    """It shows ``res["error"]`` of a failed answer."""
    answer = post(url, OPEN_WEBUI.replace("alloy", "nobody"), AIOHTTP)
    assert answer.status_code == 404 and "choose one of" in answer.json()["error"]["message"]


HOME_ASSISTANT = {**JSON, "User-Agent": "HomeAssistant-OpenAI-TTS"}


def home_assistant(response_format: str, **more: object) -> str:
    fields = {"model": "tts-1", "input": "The door is open.", "voice": "shimmer"}
    return json.dumps({**fields, "response_format": response_format, "speed": 1.0, **more})


def test_home_assistant_s_options(url: str) -> None:
    answer = post(url, home_assistant("mp3", speed=1.25, instructions="Speak calmly."), HOME_ASSISTANT)
    assert answer.status_code == 200 and answer.headers["x-speech-ignored"] == "instructions"


def test_home_assistant_gets_a_file(url: str) -> None:
    assert is_mp3(post(url, home_assistant("mp3"), HOME_ASSISTANT).content)
    old = post(url, home_assistant("wav"), {**JSON, "User-Agent": "python-requests"})
    assert old.content[:4] == b"RIFF"


def test_home_assistant_streams_in_chunks_of_its_size(url: str) -> None:
    with (
        httpx.Client(base_url=url, headers=HOME_ASSISTANT, timeout=PATIENCE) as http,
        http.stream("POST", SPEECH, content=home_assistant("opus").encode()) as answer,
    ):
        chunks = list(answer.iter_bytes(4096))
    assert answer.status_code == 200 and b"".join(chunks).startswith(b"OggS")


def test_home_assistant_s_extra_payload_reaches_the_engine(url: str) -> None:
    """A user's own JSON is merged into the body: our fields are set there."""
    answer = post(url, home_assistant("mp3", seed=3, seq_groups=2), HOME_ASSISTANT)
    assert answer.headers["x-speech-seed"] == "3" and answer.headers["x-speech-seq-groups"] == "2"


def test_home_assistant_lists_voices(url: str, client: Client) -> None:
    """It asks with ``?limit=100``, and takes ``items``, ``data`` or ``voices``."""
    listed = httpx.get(f"{url}/v1/audio/voices", params={"limit": 100}, headers=HOME_ASSISTANT).json()
    found = listed.get("items") or listed.get("data") or listed.get("voices")
    assert [one["id"] for one in found] == client.speaker.model.speakers


# What clients send: with their default settings, with a speed, with instructions.


AI_SDK = "ai/6.0.326 ai-sdk/provider-utils/4.0.66 runtime/node.js/v20.20.2"
# The agent and the body of each; openai 3.22.1 and 3.57.0 send the same.
SENT = json.loads((DATA / "known_clients.json").read_text(encoding="utf-8"))
BEGINS = {"mp3": b"\xff", "wav": b"RIFF", "pcm": b""}


@pytest.mark.parametrize(("agent", "body"), SENT.values(), ids=SENT)
def test_what_clients_send_is_spoken(url: str, agent: str, body: str) -> None:
    accept = "*/*" if agent == AI_SDK else "application/octet-stream"
    answer = post(url, body, {**JSON, "Authorization": "Bearer sk-none", "Accept": accept, "User-Agent": agent})
    fields = json.loads(body)
    assert answer.status_code == 200 and answer.headers["x-request-id"]
    assert answer.headers.get("x-speech-ignored") == ("instructions" if fields.get("instructions") else None)
    sound = sound_of_events(answer.text) if fields.get("stream_format") == "sse" else answer.content
    assert len(sound) > 400 and sound.startswith(BEGINS[fields.get("response_format", "mp3")])


def sound_of_events(text: str) -> bytes:
    """Return the bytes in the events of a complete answer, which openai's clients read by their type."""
    events = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]
    assert events[-1]["type"] == "speech.audio.done" and "total_tokens" in events[-1]["usage"]
    return b"".join(base64.b64decode(one["audio"]) for one in events[:-1])


def test_what_clients_ask_beside_speech(url: str) -> None:
    """openai's ``models.retrieve``; and wyoming-openai looks for three other servers, of which this is none."""
    assert httpx.get(f"{url}/v1/models/tts-1").json()["object"] == "model"
    asked = ("/v1/readyz", "/health", "/v1/test")
    assert [httpx.get(url + path).status_code for path in asked] == [404, 200, 404]


def is_mp3(content: bytes, least: int = 800) -> bool:
    """Whether it begins with the header of an MPEG frame, and has the sound of two frames, a line's fewest."""
    # These requests name no seed, so the random model's line may be as short as that: 864 bytes.
    return len(content) > least and content[0] == 0xFF and content[1] & 0xE0 == 0xE0
