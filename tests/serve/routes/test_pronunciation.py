"""How words are read, at a server: of a request, of the server, of a voice; and by the client of one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.text.pronunciation import parse_pronunciation
from qwen3_tts_morph.morph.voice.create import preset_voice
from qwen3_tts_morph.morph.voice.file import save_voice
from qwen3_tts_morph.serve.api.options import ServerOptions

from tests.serve.conftest import Client, asked, listening
from tests.serve.routes.test_clients import hear, say, talking
from tests.serve.routes.test_speech import events_of

NAMES = parse_pronunciation("Nguyen = win\nSQL = S Q L")
TEXT = "Ask Nguyen of <Rome|room> about SQL."


def wanted(text: str = TEXT, **more: Any) -> dict[str, Any]:
    short = {"sampling": {"max_seconds": 0.5}, "response_format": "pcm"}
    return asked(text, **short, **({"stream_format": "json"} | more))


def test_a_request_says_how_words_are_read(telling: Client) -> None:
    given = {"pronunciation": {"Nguyen": "win"}, "return_timestamps": True}
    told = telling.post(wanted(**given)).json()
    assert told["report"]["spoken"] == "Ask win of room about SQL."
    assert told["report"]["readings"] == {"Nguyen": "win", "Rome": "room"}
    words = [(one["word"], TEXT[one["first_char"] : one["last_char"]]) for one in told["timestamps"]]
    shown = ["Ask", "Nguyen", "of", "Rome", "about", "SQL."]
    assert words == list(zip(shown, [*shown[:3], "<Rome|room>", *shown[4:]], strict=True))
    events = events_of(telling.post(wanted(**given, stream_format="sse")).content)
    live = [word["word"] for _, event in events for word in event.get("timestamps", [])]
    assert live == shown


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        ("Nguyen = win", "pronunciation is 'Nguyen = win': send an object such as"),
        ({"Nguyen": 3}, "send an object such as"),
        ({"Nguyen": ""}, "pronunciation cannot be used, the reading is empty"),
        ({f"w{number}": "x" for number in range(501)}, "pronunciation has 501 entries and 500 are allowed"),
        ({"a|b": "x"}, "pronunciation cannot be used, the word 'a|b' contains '|': leave it out"),
    ],
)
def test_other_things_are_refused(client: Client, sent: object, error: str) -> None:
    answer = client.post(wanted(pronunciation=sent))
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "pronunciation"
    assert error in answer.json()["error"]["message"]


def test_readings_that_make_a_text_far_longer_are_refused(client: Client) -> None:
    answer = client.post(wanted("字" * 1000, pronunciation={"字": "y" * 200}))
    assert answer.status_code == 400 and "as it is read, and 6000 are allowed" in answer.json()["error"]["message"]


def test_the_server_and_its_voices_have_lists(serve: Callable[..., Client], tmp_path: Path, load) -> None:
    voice = preset_voice(load("tiny", "custom_voice"), "ryan")
    save_voice(voice, tmp_path / "Ann.safetensors")
    client = serve(ServerOptions(rows=1, voices=tmp_path, pronunciation=(NAMES,)), "custom_voice")

    def spoken(**more: Any) -> str:
        return client.post(wanted("Nguyen, SQL.", **more)).json()["report"]["spoken"]

    assert spoken() == "win, S Q L."
    assert spoken(pronunciation={"SQL": "sequel"}) == "win, sequel."
    assert spoken(voice="Ann") == "win, S Q L."
    (tmp_path / "Ann.pronunciation.txt").write_text("SQL = squeal", encoding="utf-8")
    assert spoken(voice="Ann", pronunciation={"SQL": "sequel"}) == "win, squeal."
    (tmp_path / "Ann.pronunciation.txt").write_text("SQL", encoding="utf-8")
    refused = client.post(wanted(voice="Ann"))
    assert refused.status_code == 400 and "Ann.pronunciation.txt cannot be read" in refused.text
    plain = serve(ServerOptions(rows=1), "custom_voice").speaker
    assert client.speaker.fingerprint != plain.fingerprint, "clients that keep lines notice another list"


def test_a_websocket_says_how_words_are_read_but_not_token_by_token(telling, monkeypatch) -> None:
    lines: list[Line] = []
    speak = Batch.speak_all

    def watched(self: Batch, given: list[Line], *more: object) -> Any:
        lines.extend(given)
        return speak(self, given, *more)

    monkeypatch.setattr(Batch, "speak_all", watched)
    given = {"pronunciation": {"Nguyen": "win"}, "sampling": {"max_seconds": 0.5}}
    with listening(telling.app) as url:
        with talking(url, voice="ryan", **given) as channel:
            say(channel, "input.text", text="Ask Nguyen.")
            say(channel, "input.done")
            assert hear(channel)[0][-1]["type"] == "session.done"
        with talking(url, layout="token", **given) as channel:
            [refused], _ = hear(channel)
    assert lines[0].as_read("Ask Nguyen.") == "Ask win."
    assert refused["message"].startswith("pronunciation needs whole sentences: choose layout sentence")
