"""The client against this pack's server on loopback: the same sound as there, in order, with its report."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("aiohttp", reason="not run: aiohttp is not installed")
from qwen3_tts_morph.morph.batch.speech import LATER, Delivery
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line, Spoken
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice, preset_voice
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.serve.api.options import Access, ServerOptions
from qwen3_tts_morph.serve.remote import connection
from qwen3_tts_morph.serve.remote.connection import ask_server
from qwen3_tts_morph.serve.remote.facts import OURS, ServerFacts
from qwen3_tts_morph.serve.remote.servers import Server
from qwen3_tts_morph.serve.remote.speaks import RemoteSpeaks
from qwen3_tts_morph.serve.routes import app as app_module
from qwen3_tts_morph.serve.routes.app import App
from qwen3_tts_morph.serve.routes.speaker import Speaker

from lab.streams import stream_line
from tests.serve.conftest import Client, listening

MODES = ("x_vector", "icl")
SHORT = GenerateOptions(sampling=Sampling(max_seconds=0.5), retries=0)
UNHEARD = Delivery(live=False)


@pytest.fixture(scope="module")
def server(client: Client) -> Iterator[Server]:
    with listening(client.app) as url:
        yield Server("studio", url)


@pytest.fixture(scope="module")
def facts(server: Server) -> ServerFacts:
    return ask_server(server)


@pytest.fixture
def speaks(facts: ServerFacts) -> Iterator[RemoteSpeaks]:
    with RemoteSpeaks(facts) as one:
        yield one


@pytest.fixture
def open_server(make_speaker) -> Callable:
    """``open_server(options, kind)``: a server of its own, and its speaker."""

    @contextmanager
    def make(options: ServerOptions, kind: str = "base") -> Iterator[tuple[Server, Speaker]]:
        speaker = make_speaker(options, kind)
        with listening(App(speaker, options)) as url:
            yield Server("studio", url, options.access.key), speaker

    return make


def ryan(client: Client, text: str = "Hello there.", **more) -> Line:
    return Line(text, preset_voice(client.speaker.model, "ryan"), **more)


def changed(facts: ServerFacts, **fields: Any) -> ServerFacts:
    return facts.model_copy(update=fields)


def speak(facts: ServerFacts, lines: Sequence[Line], options: GenerateOptions = SHORT) -> list[Spoken]:
    """Lines that nobody hears, with consent."""
    with RemoteSpeaks(facts, consent=True) as speaks:
        speeches = [speaks.speak(line, options, UNHEARD) for line in lines]
        return [speech.result() for speech in speeches]


def spoken_there(speaker: Speaker, line: Line, options: GenerateOptions) -> Spoken:
    """The same line at the server, without HTTP."""
    with stream_line(Synthesizer(speaker.model), line, options) as stream:
        for _ in stream:
            pass
        return stream.spoken[0]


def close_to(left: np.ndarray, right: np.ndarray) -> bool:
    return len(left) == len(right) > 0 and float(np.abs(left - right).max()) <= 2 / 32768


def test_a_server_says_what_it_is(server: Server, facts: ServerFacts, client: Client) -> None:
    model = client.speaker.model
    assert facts.engine == OURS and facts.model == model.name and facts.width == model.width
    assert facts.voices == tuple(sorted(model.speakers)) and len(facts.fingerprint) == 64
    assert str(facts) == f"studio ({server.url}), qwen3-tts-morph"


def test_seq_groups_are_the_server_s_to_do(facts: ServerFacts, client: Client) -> None:
    line = ryan(client)
    for options in (replace(SHORT, seq_groups=15), replace(SHORT, seq_groups=2)):
        [there] = speak(facts, [line], options)
        assert close_to(there.waveform, spoken_there(client.speaker, line, options).waveform)


@pytest.mark.parametrize("mode", MODES)
def test_a_cloned_voice_is_sent_with_consent_only(open_server, load, recording, mode: str) -> None:
    voice = clone_voice(load("tiny", "base"), recording, 24000, CloneOptions(mode, "What it says.", name="Ann"))
    with open_server(ServerOptions()) as (server, speaker):
        facts, line = ask_server(server), Line("Hello there.", voice, seed=4)
        with (
            RemoteSpeaks(facts) as speaks,
            pytest.raises(ValueError, match=r"would be sent to server studio .*voice_consent"),
        ):
            speaks.speak(line, SHORT)
        assert speaker.voices.entries() == []
        [there] = speak(facts, [line])
        assert close_to(there.waveform, spoken_there(speaker, line, SHORT).waveform)
        [entry] = speaker.voices.entries()
        assert entry["kind"] == "uploaded" and "Ann" not in entry["name"]
        with RemoteSpeaks(facts, consent=True) as speaks:
            assert speaks.speak(line, SHORT, UNHEARD).result().report.frames
            speaker.voices.remove(entry["name"])  # as a server that was restarted
            assert speaks.speak(replace(line, seed=5), SHORT, UNHEARD).result().report.frames


def test_a_key_stands_for_what_is_sent_and_the_server(facts: ServerFacts, client: Client) -> None:
    line = ryan(client)

    def key(facts: ServerFacts = facts, line: Line = line, options: GenerateOptions = SHORT) -> str | None:
        with RemoteSpeaks(facts) as speaks:
            return speaks.key(line, options)

    assert key() == key(line=replace(line, name="Ann"), options=replace(SHORT, retries=3, batch_size=3))
    others = [
        key(line=replace(line, seed=9)),
        key(options=replace(SHORT, seq_groups=4)),
        key(changed(facts, fingerprint="0" * 64)),
    ]
    assert len({key(), *others}) == 4 and all(len(one or "") == 64 for one in others)
    assert key(changed(facts, fingerprint="")) is None


def test_what_a_server_says_of_itself_stays_while_voices_are_sent_and_used(open_server, load, recording) -> None:
    """A change would run a workflow again, and everything behind it."""
    clones = [clone_voice(load("tiny", "base"), recording, 24000, CloneOptions(mode, "Its words.")) for mode in MODES]
    with open_server(ServerOptions()) as (server, speaker):
        facts = ask_server(server)
        for voice in (*clones, clones[0]):  # the first one becomes the last one used
            speak(facts, [Line("Hello.", voice)])
            assert ask_server(server) == facts
        assert len(speaker.voices.entries()) == 2


def test_a_busy_server_is_asked_again(open_server, monkeypatch) -> None:
    """One row, and one line may wait: eight lines in flight are told to come back, and all are made."""
    monkeypatch.setattr("qwen3_tts_morph.serve.remote.speaks.ATTEMPTS", 200)
    monkeypatch.setattr(connection, "LONGEST_WAIT_S", 0.05)
    with open_server(ServerOptions(rows=1, waiting=1), "custom_voice") as (server, speaker):
        voice = preset_voice(speaker.model, "ryan")
        facts = ask_server(server)
        assert facts.most_lines == 2, "the client sends no more than that at once"
        lines = [Line("Hello there.", voice, seed=seed) for seed in range(8)]
        assert all(one.report.frames for one in speak(changed(facts, most_lines=8), lines))


def test_a_line_that_nobody_hears_is_made_complete_and_one_that_is_heard_later_comes_in_few_events(
    facts: ServerFacts, client: Client, monkeypatch
) -> None:
    sent: list[Any] = []
    read = app_module.read_request
    monkeypatch.setattr(app_module, "read_request", lambda body, *more: sent.append(body) or read(body, *more))
    line = ryan(client)
    deliveries = (Delivery(), Delivery(LATER), UNHEARD)
    with RemoteSpeaks(facts) as speaks:
        spoken = [speaks.speak(line, SHORT, one).result() for one in deliveries]
    said = [(one.stream_format, one.event_interval) for one in sent]
    assert said == [("sse", 0.0), ("sse", 0.5), ("multipart", 0.5)]
    assert all(close_to(one.waveform, spoken[0].waveform) for one in spoken)
    assert all(one.report == spoken[0].report for one in spoken)
    for older in (changed(facts, stream_formats=()), changed(facts, fields=())):
        speak(older, [line])
        assert sent[-1].stream_format == "sse", "an older server refuses another"
    assert "event_interval" not in sent[-1], "or does not know the field"


# What cannot be


def test_a_key_is_needed_and_never_shown(open_server) -> None:
    with open_server(ServerOptions(Access(key="correct-horse"))) as (server, _):
        assert ask_server(server).engine == OURS
        for wrong in (replace(server, key=""), replace(server, key="battery")):
            with pytest.raises(ConnectionError, match=r"server studio .* MORPH_TTS_KEY_STUDIO") as caught:
                ask_server(wrong)
            assert "battery" not in str(caught.value) + repr(wrong)


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(ConnectionError, match=r"server farm \(http://127.0.0.1:9\) cannot be reached .*: start it"):
        ask_server(Server("farm", "http://127.0.0.1:9"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda line: (replace(line, language="klingon"), SHORT), "language is 'klingon' and server studio"),
        (lambda line: (replace(line, text=" "), SHORT), "empty"),
        (lambda line: (replace(line, text=iter(["Hello."])), SHORT), "text is list_iterator, not a string"),
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
def test_what_is_refused_before_anything_is_sent(speaks, client, change, words) -> None:
    line, options = change(ryan(client))
    answered = client.get("/metrics").text
    for refuses in (speaks.check, speaks.speak, speaks.key):
        with pytest.raises(ValueError, match=words):
            refuses(line, options)
    lines = [row for row in client.get("/metrics").text.splitlines() if "requests" in row and "#" not in row]
    assert lines == [row for row in answered.splitlines() if "requests" in row and "#" not in row]


def named(speaker: str) -> Voice:
    return Voice("preset", "0b6", name=speaker, speaker=speaker)
