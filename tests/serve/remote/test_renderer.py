"""The client against this pack's server on loopback: the same sound as there, in order, once, with its report."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("aiohttp", reason="not run: aiohttp is not installed")
from qwen3_tts_morph.morph.batch.stream import stream_line
from qwen3_tts_morph.morph.kept.line_cache import LineCache
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line, Spoken
from qwen3_tts_morph.morph.speech.takes import ERROR
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice, preset_voice
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.postprocess.pcm import to_s16
from qwen3_tts_morph.serve.api.options import Access, ServerOptions
from qwen3_tts_morph.serve.api.request import LONGEST_INTERVAL_S
from qwen3_tts_morph.serve.remote import attempts
from qwen3_tts_morph.serve.remote.renderer import Listener, RemoteRenderer, ask_server, unheard_interval
from qwen3_tts_morph.serve.remote.servers import Server
from qwen3_tts_morph.serve.routes import app as app_module
from qwen3_tts_morph.serve.routes.app import create_app
from qwen3_tts_morph.serve.routes.speaker import Speaker

from tests.serve.conftest import Client, listening, row_is_free, same_sound, wait_until

MODES = ("x_vector", "icl")
SHORT = GenerateOptions(sampling=Sampling(max_seconds=0.5), retries=0)


@pytest.fixture(scope="module")
def server(client: Client) -> Iterator[Server]:
    with listening(client.app) as url:
        yield Server("studio", url)


@pytest.fixture
def open_server(make_speaker) -> Callable:
    """``open_server(options, kind)``: a server of its own, and its speaker."""

    @contextmanager
    def make(options: ServerOptions, kind: str = "base") -> Iterator[tuple[Server, Speaker]]:
        speaker = make_speaker(options, kind)
        with listening(create_app(speaker, options)) as url:
            yield Server("studio", url, options.access.key), speaker

    return make


def ryan(client: Client, text: str = "Hello there.", **more) -> Line:
    return Line(text, preset_voice(client.speaker.model, "ryan"), **more)


def spoken_there(speaker: Speaker, line: Line, options: GenerateOptions) -> Spoken:
    """The same line at the server, without HTTP."""
    with stream_line(speaker._synthesizer, line, options) as stream:
        for _ in stream:
            pass
        return stream.spoken[0]


def close_to(left: np.ndarray, right: np.ndarray) -> bool:
    return len(left) == len(right) > 0 and float(np.abs(left - right).max()) <= 2 / 32768


def test_a_server_says_what_it_is(server: Server, client: Client) -> None:
    facts, model = ask_server(server), client.speaker.model
    assert facts.is_ours and facts.model == model.name and facts.width == model.width
    assert facts.voices == tuple(sorted(model.speakers)) and len(facts.fingerprint) == 64
    assert str(facts) == f"studio ({server.url}), qwen3-tts-morph"


def test_lines_come_back_in_their_order_as_the_server_s_own(server: Server, client: Client) -> None:
    lines = [ryan(client, f"Line number {number}.", seed=number, name="Ann") for number in range(6)]
    heard: dict[int, list[np.ndarray]] = {}
    frames: list[tuple[int, int]] = []
    listener = Listener(
        lambda *progress: frames.append(progress),
        on_sound=lambda index, samples: heard.setdefault(index, []).append(samples),
    )
    spoken = RemoteRenderer(ask_server(server), SHORT).render(lines, listener)
    for index, (line, one) in enumerate(zip(lines, spoken, strict=True)):
        here = spoken_there(client.speaker, line, SHORT)
        assert close_to(one.waveform, here.waveform)
        assert np.array_equal(np.concatenate(heard[index]), one.waveform)
        known, said = here.report, one.report
        assert (said.name, said.text, said.frames, said.ended) == (
            "Ann",
            line.text,
            known.frames,
            known.ended,
        )
        assert "SEQ_GROUPS 5" in one.engine and client.speaker.model.summary() in one.engine
    assert frames[-1][0] == 6 * 6 and all(done <= expected for done, expected in frames)


def test_seq_groups_and_lossless_are_the_server_s_to_do(server: Server, client: Client) -> None:
    facts, line = ask_server(server), ryan(client)
    for options in (replace(SHORT, seq_groups=15), replace(SHORT, decoding="lossless", seq_groups=2)):
        [there] = RemoteRenderer(facts, options).render([line])
        assert close_to(there.waveform, spoken_there(client.speaker, line, options).waveform)


@pytest.mark.parametrize("mode", MODES)
def test_a_cloned_voice_is_sent_with_consent_only(open_server, load, recording, mode: str) -> None:
    voice = clone_voice(
        load("tiny", "base"), recording, 24000, CloneOptions(mode, "What it says.", name="Ann")
    )
    with open_server(ServerOptions()) as (server, speaker):
        facts, line = ask_server(server), Line("Hello there.", voice, seed=4)
        with pytest.raises(ValueError, match=r"would be sent to server studio .*voice_consent"):
            RemoteRenderer(facts, SHORT).render([line])
        assert speaker.voices.entries() == []
        [there] = RemoteRenderer(facts, SHORT, consent=True).render([line])
        assert close_to(there.waveform, spoken_there(speaker, line, SHORT).waveform)
        [entry] = speaker.voices.entries()
        assert entry.kind == "uploaded" and "Ann" not in entry.name
        speaker.voices.remove(entry.name)  # as a server that began anew
        assert len(RemoteRenderer(facts, SHORT, consent=True).render([line, replace(line, seed=5)])) == 2


def test_a_user_who_cancels_frees_the_rows(server: Server, client: Client) -> None:
    class Cancelled(Exception):
        pass

    def on_sound(index: int, samples: np.ndarray) -> None:
        raise Cancelled

    long = replace(SHORT, sampling=Sampling(max_seconds=100))
    with pytest.raises(Cancelled):
        RemoteRenderer(ask_server(server), long).render(
            [ryan(client, "word " * 60, seed=seed) for seed in range(3)], Listener(on_sound=on_sound)
        )
    assert not [one for one in threading.enumerate() if one.name == "remote speech"]
    wait_until(lambda: row_is_free(client.speaker))
    frames = client.speaker.status.frames
    RemoteRenderer(ask_server(server), SHORT).render([ryan(client)])
    assert client.speaker.status.frames - frames <= 7, "only the last line makes frames"


def test_a_line_is_made_once(server: Server, client: Client, tmp_path) -> None:
    facts, cache = ask_server(server), LineCache(tmp_path / "lines", 10**8)
    lines = [ryan(client, f"Line {number}.", seed=number) for number in range(3)]
    first = RemoteRenderer(facts, SHORT, cache=cache).render(lines)
    frames = client.speaker.status.frames
    again = RemoteRenderer(facts, SHORT, cache=cache).render([*lines[:2], replace(lines[2], seed=9)])
    assert [one.report.from_before for one in again] == [True, True, False]
    assert np.array_equal(again[0].waveform, first[0].waveform)
    assert again[0].report == replace(first[0].report, from_before=True)
    assert client.speaker.status.frames - frames <= 7
    other = replace(facts, fingerprint="0" * 64)
    assert not RemoteRenderer(other, SHORT, cache=cache).render(lines[:1])[0].report.from_before


def test_what_a_server_says_of_itself_stays_while_voices_are_sent_and_used(
    open_server, load, recording
) -> None:
    """A change would run a workflow again, and everything behind it."""
    clones = [
        clone_voice(load("tiny", "base"), recording, 24000, CloneOptions(mode, "Its words."))
        for mode in MODES
    ]
    with open_server(ServerOptions()) as (server, speaker):
        facts = ask_server(server)
        for voice in (*clones, clones[0]):  # the first one becomes the last one used
            RemoteRenderer(facts, SHORT, consent=True).render([Line("Hello.", voice)])
            assert ask_server(server) == facts
        assert len(speaker.voices.entries()) == 2


def test_a_take_that_went_wrong_gets_another_seed(server: Server, client: Client) -> None:
    """Random models run into the limit of their text; each take has the next seed."""
    options = replace(SHORT, sampling=None, retries=2)
    heard: list[np.ndarray] = []
    [one] = RemoteRenderer(ask_server(server), options).render(
        [ryan(client, "word.", seed=3)], Listener(on_sound=lambda _, samples: heard.append(samples))
    )
    assert (one.report.ended, one.report.takes) == ("cap", 3)
    first = client.post({"input": "word.", "voice": "ryan", "seed": 3, "response_format": "pcm"}).content
    assert same_sound(to_s16(np.concatenate(heard)).tobytes(), first), "only the first take is heard"
    assert np.array_equal(np.concatenate(heard), one.waveform), "of takes that are alike the first one stays"


def test_one_line_that_fails_ends_no_others(server: Server, client: Client, monkeypatch) -> None:
    real = client.speaker.voices.known
    monkeypatch.setattr(
        client.speaker.voices, "known", lambda name: 1 / 0 if name == "serena" else real(name)
    )
    other = replace(ryan(client), voice=preset_voice(client.speaker.model, "serena"))
    good, bad = RemoteRenderer(ask_server(server), SHORT).render([ryan(client), other])
    assert good.report.ended != ERROR and bad.report.ended == ERROR
    assert bad.report.error.startswith(f"server studio ({server.url}) failed at the line (500)")
    with pytest.raises(ConnectionError, match="server studio"):
        RemoteRenderer(ask_server(server), SHORT).render([other])


def test_a_busy_server_is_asked_again(open_server, monkeypatch) -> None:
    """One row, and one line may wait: eight lines in flight are told to come back, and all are made."""
    monkeypatch.setattr(attempts, "ATTEMPTS", 200)
    monkeypatch.setattr(attempts, "LONGEST_WAIT_S", 0.05)
    with open_server(ServerOptions(rows=1, waiting=1), "custom_voice") as (server, speaker):
        voice = preset_voice(speaker.model, "ryan")
        lines = [Line("Hello there.", voice, seed=seed) for seed in range(8)]
        facts = ask_server(server)
        assert facts.most_lines == 2, "the client sends no more than that at once"
        spoken = RemoteRenderer(replace(facts, most_lines=8), SHORT).render(lines)
    assert [one.report.ended != ERROR for one in spoken] == [True] * 8


def test_a_line_that_nobody_hears_comes_in_few_events(server: Server, client: Client, monkeypatch) -> None:
    sent: list[dict[str, Any]] = []
    read = app_module.read_request
    monkeypatch.setattr(
        app_module, "read_request", lambda body, rules: sent.append(body) or read(body, rules)
    )
    facts, line = ask_server(server), ryan(client)
    quiet, heard = Listener(), Listener(on_sound=lambda _index, _samples: None)
    made = [RemoteRenderer(facts, SHORT).render([line], listener)[0] for listener in (quiet, heard, None)]
    assert [body.get("event_interval") for body in sent] == [0.5, None, 0.5]
    assert all(close_to(one.waveform, made[0].waveform) for one in made)
    RemoteRenderer(replace(facts, takes_interval=False), SHORT).render([line])
    assert "event_interval" not in sent[-1], "an older server does not know the field"


def test_many_lines_that_nobody_hears_have_as_many_events_together_as_a_few() -> None:
    assert [unheard_interval(lines) for lines in (1, 4, 16, 64, 256)] == [0.5, 0.5, 2.0, 8.0, 10.0]
    assert unheard_interval(256) <= LONGEST_INTERVAL_S, "the server would refuse it"


# What cannot be


def test_a_key_is_needed_and_never_shown(open_server) -> None:
    with open_server(ServerOptions(Access(key="correct-horse"))) as (server, _):
        assert ask_server(server).is_ours
        for wrong in (replace(server, key=""), replace(server, key="battery")):
            with pytest.raises(ConnectionError, match=r"server studio .* MORPH_TTS_KEY_STUDIO") as caught:
                ask_server(wrong)
            assert "battery" not in str(caught.value) + repr(wrong)


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(
        ConnectionError, match=r"server farm \(http://127.0.0.1:9\) cannot be reached .*: start it"
    ):
        ask_server(Server("farm", "http://127.0.0.1:9"))


def test_a_server_that_dies_ends_the_rendering_and_what_was_made_is_kept(
    make_speaker, tmp_path, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(attempts, "FIRST_WAIT_S", 0.0)
    cache = LineCache(tmp_path / "lines", 10**8)
    speaker = make_speaker(ServerOptions(rows=1), "custom_voice")
    lines = [Line("Hello there.", preset_voice(speaker.model, "ryan"), seed=seed) for seed in range(3)]
    with listening(create_app(speaker, ServerOptions())) as url:
        facts = ask_server(Server("studio", url))
        RemoteRenderer(facts, SHORT, cache=cache).render(lines[:2])
    renderer = RemoteRenderer(facts, SHORT, cache=cache)
    with pytest.raises(ConnectionError, match="cannot be reached"):
        renderer.render(lines)
    assert caplog.text.count("cannot be reached") == caplog.text.count("asked again for about a minute") == 1
    assert [one.report.from_before for one in renderer.render(lines[:2])] == [True, True]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda line: (replace(line, language="klingon"), SHORT), "language is 'klingon' and server studio"),
        (lambda line: (replace(line, text=" "), SHORT), "empty"),
        (lambda line: (line, replace(SHORT, guard=False)), "guard is off and server studio"),
        (lambda line: (line, replace(SHORT, split_chars=0)), "split_chars is 0 and server studio"),
        (
            lambda line: (replace(line, voice=named("nobody")), SHORT),
            "server studio .* has no voice 'nobody'",
        ),
        (
            lambda line: (replace(line, voice=Voice("design", "0b6", instruct="calm")), SHORT),
            "server studio .* has no VoiceDesign",
        ),
        (
            lambda line: (replace(line, instruct="softly"), SHORT),
            "server studio .* does not follow instructions .* clear the instruction",
        ),
    ],
)
def test_what_is_refused_before_anything_is_sent(server: Server, client: Client, change, words: str) -> None:
    line, options = change(ryan(client))
    answered = client.get("/metrics").text
    facts = ask_server(server)
    with pytest.raises(ValueError, match=words):
        RemoteRenderer(facts, options).render([ryan(client), line])
    lines = [row for row in client.get("/metrics").text.splitlines() if "requests" in row and "#" not in row]
    assert lines == [row for row in answered.splitlines() if "requests" in row and "#" not in row]


def named(speaker: str) -> Voice:
    return Voice("preset", "0b6", name=speaker, speaker=speaker)
