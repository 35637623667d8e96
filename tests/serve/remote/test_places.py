"""Several servers share lines: each takes what it can, and one that is gone leaves its lines to the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import aiohttp
import numpy as np
import pytest
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line, Spoken
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.serve.api.options import Access, ServerOptions
from qwen3_tts_morph.serve.remote import attempts
from qwen3_tts_morph.serve.remote.attempts import ask_server
from qwen3_tts_morph.serve.remote.facts import ServerFacts, together
from qwen3_tts_morph.serve.remote.failure import ServerGone
from qwen3_tts_morph.serve.remote.servers import Server
from qwen3_tts_morph.serve.remote.speaks import RemoteSpeaks
from qwen3_tts_morph.serve.routes.app import create_app

from tests.serve.conftest import listening

SHORT = GenerateOptions(sampling=Sampling(max_seconds=0.5), retries=0)
KEY = "correct-horse"
ROUNDING = 2**-14  # two steps of a sound of 16 bits


@pytest.fixture
def farm(make_speaker):
    """``farm(rows, kind)``: two servers with as many rows as are given, as one; and where each ends."""

    @contextmanager
    def make(*rows: int, kinds=("custom_voice", "custom_voice")) -> Iterator[tuple[Server, list[ExitStack]]]:
        ends, urls = [ExitStack(), ExitStack()], []
        with ends[0], ends[1]:
            for end, count, kind in zip(ends, rows, kinds, strict=True):
                options = ServerOptions(Access(key=KEY), rows=count, waiting=count)
                urls.append(end.enter_context(listening(create_app(make_speaker(options, kind), options))))
            yield Server("farm", urls[0], KEY, (urls[1],)), ends

    return make


def lines_for(speaks: RemoteSpeaks, count: int, words: str = "Hello there.") -> list[Line]:
    voice = Voice("preset", speaks.facts.size, name="ryan", speaker="ryan")
    return [Line(words, voice, seed=seed) for seed in range(count)]


def speak(speaks: RemoteSpeaks, lines: list[Line]) -> list[Spoken]:
    return [speech.result() for speech in [speaks.speak(line, SHORT) for line in lines]]


def test_lines_are_shared_by_what_each_server_takes(farm) -> None:
    with farm(1, 3) as (server, _):
        facts, alone = ask_server(server), ask_server(server.each[0])
        assert facts.most_each == (2, 6) and facts.most_lines == 8
        assert facts.fingerprint == alone.fingerprint and str(facts).startswith("farm (http://127.0.0.1:")
        with RemoteSpeaks(facts) as speaks:
            spoken = speak(speaks, lines_for(speaks, 24))
            said = speaks.describe(spoken, SHORT, 1.0)
        made = Counter(one.report.device for one in spoken)
        assert made[server.url] >= 2 and made[server.others[0]] >= 6, "the first lines, by what each takes"
        assert "up to 8 lines in flight" in said and f"{made[server.url]} lines on {server.url}" in said
        with RemoteSpeaks(alone) as speaks:
            again = speak(speaks, lines_for(speaks, 24))
            # On a CPU the last bits depend on the lines that share a row of the codec.
            for one, two in zip(spoken, again, strict=True):
                np.testing.assert_allclose(one.waveform, two.waveform, atol=ROUNDING)
            assert not any(one.report.device for one in again)


def test_a_server_that_is_gone_leaves_its_lines_to_the_other(farm, monkeypatch, caplog) -> None:
    monkeypatch.setattr(attempts, "FIRST_WAIT_S", 0.01)
    with farm(2, 2) as (server, ends):
        facts = ask_server(server)
        ends[1].close()
        with RemoteSpeaks(facts) as speaks:
            spoken = speak(speaks, lines_for(speaks, 8))
            assert {one.report.device for one in spoken} == {server.url}
            assert caplog.text.count("its lines are spoken at") == 1 and "asked again" not in caplog.text
            caplog.clear()
            assert ask_server(server) == ask_server(server.each[0])
            assert caplog.text.count("its lines are spoken by the others") == 1
            ends[0].close()
            with pytest.raises(ServerGone, match=r"server farm \(http://127.0.0.1:\d+\) cannot be reached"):
                speak(speaks, lines_for(speaks, 4))


def test_a_computer_that_is_off_is_a_server_that_is_gone(farm, monkeypatch) -> None:
    with farm(1, 1) as (server, _):
        off, connect = server.others[0], aiohttp.TCPConnector.connect
        facts = ask_server(server)

        async def time_out(self, request, *more, **named):
            if str(request.url).startswith(off):
                raise aiohttp.ConnectionTimeoutError(f"Connection timeout to host {request.url}")
            return await connect(self, request, *more, **named)

        monkeypatch.setattr(aiohttp.TCPConnector, "connect", time_out)
        with RemoteSpeaks(facts) as speaks:
            assert {one.report.device for one in speak(speaks, lines_for(speaks, 4))} == {server.url}
        assert ask_server(server).most_lines == 2


def test_servers_that_differ_are_refused(farm) -> None:
    with farm(1, 1, kinds=("custom_voice", "base")) as (server, _):
        with pytest.raises(
            ConnectionError, match=r"and 1 more\) cannot share lines \(model is 'tiny-custom_voice' at"
        ):
            ask_server(server)
        with pytest.raises(ConnectionError, match="MORPH_TTS_KEY_FARM"):
            ask_server(replace(server, key="battery"))


def test_kept_lines_are_those_of_all_servers(farm) -> None:
    with farm(1, 1) as (server, _):
        one = ask_server(server.each[0])
        prints = ["a" * 64, "b" * 64, ""]
        made: list[ServerFacts] = [
            together([one, replace(one, server=server.each[1], fingerprint=other, voices=("ryan",))])
            for other in prints
        ]
        assert len({one.fingerprint, *(other.fingerprint for other in made)}) == 4
        assert made[2].fingerprint == "" and made[0].voices == ("ryan",) and made[0].server == server
