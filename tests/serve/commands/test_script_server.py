"""``script --server``: lines that a server speaks, each saved as it comes; a run that was ended goes on."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="not run: aiohttp is not installed")
import soundfile
from qwen3_tts_morph.serve.api.options import Access, ServerOptions
from qwen3_tts_morph.serve.api.request import SpeechRequest
from qwen3_tts_morph.serve.remote import connection
from qwen3_tts_morph.serve.remote.connection import ServerGone
from qwen3_tts_morph.serve.remote.speaks import RemoteSpeaks
from qwen3_tts_morph.serve.routes import speaker as speaker_module
from qwen3_tts_morph.serve.routes.app import App
from qwen3_tts_morph.serve.routes.speaker import Speaker

from tests.serve.conftest import Client, listening

TEXTS = [f"Line number {number}." for number in range(6)]
KEY = "a-key-of-this-test"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that the server is asked for from now on."""
    texts: list[str] = []
    speak = Speaker.speak

    async def watched(self: Speaker, request: SpeechRequest) -> object:
        texts.append(request.text)
        return await speak(self, request)

    monkeypatch.setattr(speaker_module.Speaker, "speak", watched)
    return texts


@pytest.fixture
def server(client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server that wants a key, which the environment has."""
    monkeypatch.setenv("MORPH_TTS_KEY_SERVER", KEY)
    with listening(App(client.speaker, ServerOptions(access=Access(key=KEY)))) as address:
        yield address


@pytest.fixture
def script(run: Callable, tmp_path: Path, server: str) -> Callable:
    """``script(*words)``: speak the file of lines at the server."""
    rows = [{"text": text, "voice": "ryan"} for text in TEXTS]
    (tmp_path / "list.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")

    def call(*words: str, at: str = server) -> object:
        short = "--max-seconds", "0.5", "--retries", "0"
        return run("script", tmp_path / "list.jsonl", "--out", "out", "--server", at, *short, *words)

    return call


def test_a_server_speaks_all_lines_once_in_the_order_of_the_script(script, asked, tmp_path) -> None:
    done = script("--batch-size", "3")
    assert done.code == 0 and done.lines == [str(tmp_path / "out" / f"list.{end}") for end in ("wav", "srt", "vtt")], (
        done.err
    )
    assert sorted(asked) == sorted(TEXTS) and "server http://127" in done.err and KEY not in done.err
    captions = (tmp_path / "out" / "list.srt").read_text()
    assert [captions.index(text) for text in TEXTS] == sorted(captions.index(text) for text in TEXTS)
    lines = sum(soundfile.info(path).frames for path in (tmp_path / "out").glob("0*.wav"))
    assert soundfile.info(tmp_path / "out" / "list.wav").frames == lines + 5 * 7200
    again = script()
    assert again.code == 0 and len(asked) == len(TEXTS) and "6 of 6 lines are spoken already" in again.err
    assert script("--seed", "7").code == 0 and len(asked) == 2 * len(TEXTS)


def test_lines_that_cannot_be_made_are_named_and_the_others_saved(
    script: Callable, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speak = Speaker.speak

    async def fail(self: Speaker, request: SpeechRequest) -> object:
        if request.text == TEXTS[3]:
            raise ValueError("no")
        return await speak(self, request)

    with monkeypatch.context() as patch:
        patch.setattr(Speaker, "speak", fail)
        done = script()
    assert done.code == 2 and "line 4 could not be spoken (server http" in done.err and "to retry" in done.err
    assert len(list((tmp_path / "out").glob("0*.wav"))) == 5 and not (tmp_path / "out" / "list.wav").exists()
    asked.clear()
    assert script().code == 0 and asked == [TEXTS[3]]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [((), "is gone; the same command goes on"), (("--again",), "the same command without --again goes on")],
)
def test_a_server_that_goes_says_how_to_go_on(script, monkeypatch, words, sentence) -> None:
    def gone(*_: object) -> None:
        raise ServerGone("server studio is gone")

    monkeypatch.setattr(RemoteSpeaks, "speak", gone)
    done = script(*words)
    assert done.code == 2 and sentence in done.err


def test_a_wrong_key_a_gone_server_and_an_unknown_one(script, monkeypatch) -> None:
    monkeypatch.setattr(connection, "FIRST_WAIT_S", 0.0)
    gone = script(at="http://127.0.0.1:9")
    assert gone.code == 2 and "server http://127.0.0.1:9 cannot be reached" in gone.err
    assert "is not listed in MORPH_TTS_SERVERS" in script(at="studio").err
    monkeypatch.setenv("MORPH_TTS_KEY_SERVER", "another")
    wrong = script()
    assert wrong.code == 2 and "set MORPH_TTS_KEY_SERVER in the environment" in wrong.err


def test_a_script_with_a_cast_and_what_a_server_cannot_have(run, script, server, asked, tmp_path) -> None:
    (tmp_path / "scene.txt").write_text("ANNA: Yes.\nIt rained.\n", encoding="utf-8")
    words = "--server", server, "--max-seconds", "0.3", "--retries", "0"
    done = run("script", "scene.txt", "--cast", "ANNA=eric", "--speaker", "serena", *words)
    assert done.code == 0 and sorted(asked) == ["It rained.", "Yes."], done.err
    nobody = run("script", "scene.txt", "--cast", "ANNA=nobody", *words)
    assert nobody.code == 2 and "nobody" in nobody.err
    done = run("script", "scene.txt", "--checkpoint", "somewhere", *words)
    assert done.code == 2 and "--checkpoint needs a model on this computer" in done.err


def test_captions_are_dubbed_at_a_server(run, server, asked, hears, tmp_path) -> None:
    text = "1\n00:00:01,000 --> 00:00:03,000\nERIC: It is five.\n"
    (tmp_path / "film.srt").write_text(text, encoding="utf-8")
    hears("it was", "it is five")
    words = "--server", server, "--max-seconds", "0.5", "--retries", "0", "--check-words"
    done = run("dub", "film.srt", *words)
    assert done.code == 0 and asked == ["It is five."] * 2, done.err
    assert "is take 2" in done.err and "The caption fits." in done.err and "lines in flight" in done.err
    assert soundfile.info(tmp_path / "film" / "film.wav").frames > 24000
    other = run("dub", "film.srt", *words, "--language", "klingon")
    assert other.code == 2 and "klingon" in other.err and len(asked) == 2
