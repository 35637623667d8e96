"""What everything that speaks lines promises: a device, several, a character's own model, servers.

Servers are this pack's, and vLLM-Omni with recorded answers.

What only one of them does is tested beside it: ``tests/morph/batch``, ``tests/morph/kept``, ``tests/serve/remote``.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("aiohttp", reason="not run: aiohttp is not installed")
from qwen3_tts_morph.morph.batch import speech as speech_module
from qwen3_tts_morph.morph.batch.batch import Batch, Fleet
from qwen3_tts_morph.morph.batch.speech import BatchClosed, ByVoice, Delivery, Speech
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.kept.cache import LineCache
from qwen3_tts_morph.morph.kept.render import Listener, RenderOptions, WordCheck, speak_lines
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling
from qwen3_tts_morph.morph.script.dialogue import retime
from qwen3_tts_morph.morph.speech import pieces
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.speech.takes import word_times
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.morph.words.timing import WordTime
from qwen3_tts_morph.postprocess.stretch import Stretch
from qwen3_tts_morph.serve.remote.connection import ask_server
from qwen3_tts_morph.serve.remote.servers import Server
from qwen3_tts_morph.serve.remote.speaks import RemoteSpeaks
from starlette.responses import Response, StreamingResponse

from lab.streams import render_lines
from tests.morph.codec_lines import FLOAT32_DB, signal_to_noise
from tests.patience import wait_until
from tests.serve.conftest import Client, listening, row_is_free
from tests.serve.remote.test_other_servers import VIVIAN, recorded, serving, sound, wav

UNHEARD = Delivery(live=False)
ENDLESS = "word " * 60  # takes all the frames that it may have


@dataclass
class Way:
    """One that speaks.

    Args:
        open: ``open(rows)``: a new one, for as many lines at a time; on several devices, on each.
        made: what it has made so far: frames, or the requests that a server got.
        is_free: whether it speaks no line.
        voice: its own.
        broken: what the error of a line says that goes wrong at work.
        says: what its report says of the settings.
        late: whether a text may come in parts.
        groups: SEQ_GROUPS.
        devices: how many.
    """

    open: Callable[[int], Any]
    made: Callable[[], int]
    is_free: Callable[[], bool]
    voice: Voice
    broken: str
    says: Sequence[str]
    late: bool = True
    groups: int = 5
    devices: int = 1

    def options(self, seconds: float = 0.5, retries: int = 0, **more: Any) -> GenerateOptions:
        return GenerateOptions(self.groups, Sampling(max_seconds=seconds), 1, retries=retries, **more)

    def line(self, text: str = "Hello there.", seed: int = 0, **more: Any) -> Line:
        return Line(text, self.voice, seed=seed, **more)

    @property
    def places(self) -> int:
        """The lines that are given to devices of one row: on several, one waits at each."""
        return 1 if self.devices == 1 else 2 * self.devices

    def fill(self, speaks: Any) -> list[Speech]:
        return [speaks.speak(self.line(ENDLESS, seed), self.options(100), UNHEARD) for seed in range(self.places)]


def local(*models: Model) -> Way:
    opened: list[Batch] = []

    def begin(rows: int) -> Batch | Fleet:
        batches = [Batch(Synthesizer(model), rows) for model in models]
        opened.extend(batches)
        return Fleet(batches) if len(models) > 1 else batches[0]

    return Way(
        begin,
        lambda: sum(one.status.frames for one in opened),
        lambda: not any(one.status.speaking for one in opened),
        preset_voice(models[0], "ryan"),
        "^voice ryan: the model's numbers are not finite",
        ["SEQ_GROUPS 5", models[0].summary()],
        devices=len(models),
    )


@pytest.fixture
def device(load, long_words) -> Way:
    return local(load("tiny", "custom_voice"))


@pytest.fixture(scope="module")
def second(checkpoint) -> Model:
    return load_model(checkpoint("tiny", "custom_voice"), LoadOptions("fp32", "sdpa"))


@pytest.fixture
def devices(load, second, long_words) -> Way:
    return local(load("tiny", "custom_voice"), second)


class Characters(ByVoice):
    """Two models: the lines of "anna" are spoken by the second."""

    def __init__(self, main: Batch, own: Batch):
        super().__init__(main, {"anna": own})
        self.batches = (main, own)

    def __enter__(self) -> Characters:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for batch in self.batches:
            batch.close()


@pytest.fixture
def character(load, second, long_words) -> Way:
    """One whose lines are spoken by a model of their own; the other model is given none."""
    models, opened = (load("tiny", "custom_voice"), second), list[Characters]()

    def begin(rows: int) -> Characters:
        opened.append(Characters(*(Batch(Synthesizer(model), rows) for model in models)))
        return opened[-1]

    def frames(which: int) -> int:
        return sum(one.batches[which].status.frames for one in opened)

    def made() -> int:
        assert frames(0) == 0
        return frames(1)

    return Way(
        begin,
        made,
        lambda: not any(one.batches[1].status.speaking for one in opened),
        replace(preset_voice(second, "ryan"), by="anna"),
        "^voice ryan: the model's numbers are not finite",
        ["SEQ_GROUPS 5", second.summary(), f"characters with models of their own: {second.name}"],
    )


@contextmanager
def at(client: Client) -> Iterator[Way]:
    model, speaker = client.speaker.model, client.speaker
    with listening(client.app) as url:
        facts = ask_server(Server("studio", url))
        yield Way(
            lambda rows: RemoteSpeaks(facts, in_flight=rows),
            lambda: speaker.status.frames,
            lambda: row_is_free(speaker),
            preset_voice(model, "ryan"),
            "^server studio .* the line .* voice ryan: the model's numbers are not finite",
            ["SEQ_GROUPS 5", model.summary(), "server studio"],
            late=False,
        )


@pytest.fixture
def server(client: Client) -> Iterator[Way]:
    with at(client) as way:
        yield way


@pytest.fixture(scope="module")
def tellers(headed: Path) -> list[Model]:
    """The models of two devices, with an alignment head."""
    return [load_model(headed, LoadOptions("fp32", "sdpa")) for _ in range(2)]


@pytest.fixture(params=["device", "devices", "server"])
def teller(tellers: list[Model], telling: Client, request) -> Iterator[Way]:
    """The ways that say when words are heard."""
    if request.param == "server":
        with at(telling) as way:
            yield way
    else:
        yield local(*tellers[: 1 if request.param == "device" else 2])


async def nothing() -> AsyncIterator[bytes]:
    while True:
        await asyncio.sleep(0.01)
        yield b""


def answer(body: dict[str, Any]) -> Response:
    """What vLLM-Omni says to a line: its seed makes the sound."""
    if "word" in body["input"]:
        return StreamingResponse(nothing(), media_type="audio/wav")
    if "broken" in body["input"]:
        return recorded("engine failure non-stream")
    if "wrong" in body["input"] and body["seed"] < 7 + int(body["input"][0]):
        return sound(wav(level=0.0))
    return sound(wav(level=0.1 + body["seed"] % 8 / 10))


@pytest.fixture
def exchanges() -> Iterator[Way]:
    with serving(answer) as (url, bodies):
        facts = ask_server(url)
        yield Way(
            lambda rows: RemoteSpeaks(facts, in_flight=rows),
            lambda: len(bodies),
            lambda: True,
            VIVIAN,
            "^server farm .* failed at the line",
            ["server farm", "lines in flight"],
            late=False,
            groups=15,
        )


@pytest.fixture(params=["device", "devices", "character", "server", "exchanges"])
def way(request) -> Way:
    return request.getfixturevalue(request.param)


@pytest.fixture
def ours(way: Way, request) -> Way:
    """The ways whose sound is made by this pack."""
    if "exchanges" in request.node.callspec.id:
        pytest.skip("the recorded server sends a complete sound, and cuts no text into pieces")
    return way


def heard(speech: Speech) -> np.ndarray:
    chunks = list(speech)
    starts = np.cumsum([0, *(len(chunk.samples) for chunk in chunks)])
    assert [chunk.start for chunk in chunks] == starts[:-1].tolist()
    assert [chunk.last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    return np.concatenate([chunk.samples for chunk in chunks])


def alike(one: np.ndarray, other: np.ndarray) -> bool:
    """Equal up to the rounding of batches, and of the 16 bits that a server sends."""
    same = len(one) == len(other) > 0
    return same and bool(signal_to_noise(other, one) > FLOAT32_DB or np.abs(one - other).max() <= 2 / 32768)


def test_a_seed_decides_the_sound(way: Way) -> None:
    with way.open(2) as speaks:
        speeches = [speaks.speak(way.line(seed=seed), way.options(), UNHEARD) for seed in (3, 3, 4)]
        one, same, other = (speech.result().waveform for speech in speeches)
    assert alike(one, same) and not alike(one, other)


def test_lines_of_a_lower_order_come_first(way: Way) -> None:
    ended: list[int] = []
    with way.open(1) as speaks:
        blocking = way.fill(speaks)
        speeches = [
            speaks.speak(
                way.line(seed=order),
                way.options(),
                Delivery(False, order, on_change=lambda n=order: ended.append(n)),
            )
            for order in (4, 1, 3, 2)
        ]
        for speech in blocking[: len(blocking) + 1 - way.devices]:  # one device is left
            speech.cancel()
        assert all(speech.result().report.frames for speech in speeches)
    assert ended == [1, 2, 3, 4]


def test_pieces_are_joined_as_a_rendering_joins_them(ours: Way, load) -> None:
    text = "[pause 0.3] This is the first sentence. [pause 0.1] And this is the second one, a longer one. The third."
    options, line = ours.options(4, split_chars=40), ours.line(text, 3)
    [wanted] = render_lines(Synthesizer(load("tiny", "custom_voice")), [line], options)
    with ours.open(2) as speaks:
        live, unheard = speaks.speak(line, options), speaks.speak(line, options, UNHEARD)
        assert alike(heard(live), wanted.waveform) and alike(unheard.result().waveform, wanted.waveform)
    assert live.report.pieces == wanted.report.pieces == 3


def test_a_line_that_is_cancelled_frees_its_row_and_others_go_on(way: Way) -> None:
    with way.open(2) as speaks:
        other = speaks.speak(way.line("Hello there."), way.options(4))
        gone = [speaks.speak(way.line(ENDLESS, seed), way.options(400)) for seed in range(3)]
        first = next(gone[0]).samples if way.groups == 5 else np.zeros(0)  # a complete sound does not come
        for one in gone:
            one.cancel()
        assert list(gone[0]) == [] and [one.result().report.ended for one in gone] == ["cancelled"] * 3
        assert np.array_equal(gone[0].result().waveform[: len(first)], first)
        assert other.result().report.ended in ("eos", "cap")
        wait_until(way.is_free)
        before = way.made()
        frames = speaks.speak(way.line(), way.options()).result().report.frames
    assert 0 < way.made() - before <= frames + 1, "only the last line makes frames"


@pytest.fixture
def broken_prompts(long_words, monkeypatch) -> None:
    """The numbers of a text with "broken" in it are not finite."""
    original = pieces.build_piece

    def build(builder, line, text):
        prompt = original(builder, line, text)
        return replace(prompt, inputs=prompt.embeds * torch.nan) if "broken" in text else prompt

    monkeypatch.setattr(pieces, "build_piece", build)


def test_a_line_that_fails_ends_alone_with_its_own_error(way: Way, broken_prompts) -> None:
    unknown = replace(way.line(), voice=replace(way.voice, speaker="nobody"))
    with way.open(2) as speaks:
        before = way.made()
        for refuses in (speaks.check, speaks.speak):
            with pytest.raises(ValueError, match="nobody"):
                refuses(unknown, way.options())
        assert way.made() == before
        broken, other = (speaks.speak(way.line(text), way.options()) for text in ("It is broken.", "It is whole."))
        with pytest.raises((ValueError, ConnectionError), match=way.broken):
            broken.result()
        assert broken.outcome.error and other.result().report.frames == other.progress.done > 0


def test_a_text_may_come_in_parts_where_it_is_spoken_here(way: Way) -> None:
    parts = ["The first sentence. The ", "second one."]
    line = way.line(iter(parts))
    with way.open(2) as speaks:
        if not way.late:
            with pytest.raises(ValueError, match="text is list_iterator, not a string: join it"):
                speaks.speak(line, way.options())
            return
        late, whole = (speaks.speak(one, way.options(4)) for one in (line, way.line(iter(["".join(parts)]))))
        assert alike(heard(late), heard(whole))
    assert late.report.pieces == 2 and late.report.text == "".join(parts)


@pytest.mark.parametrize(("wrong", "takes", "better"), [(1, 2, 1), pytest.param(3, 3, 0, marks=pytest.mark.slow)])
def test_a_piece_that_went_wrong_is_spoken_again_and_the_better_take_stays(
    way: Way, monkeypatch, wrong: int, takes: int, better: int
) -> None:
    """Of takes that are alike the first one."""
    line, options = way.line(f"{wrong} wrong.", 7), way.options(20)
    monkeypatch.setattr(pieces, "judge_end", lambda *_: "eos")
    with way.open(2) as speaks:
        by_itself = [speaks.speak(replace(line, seed=seed), options).result().waveform for seed in (7, 8)]
        ends = iter(["early"] * wrong)
        monkeypatch.setattr(pieces, "judge_end", lambda *_: next(ends, "eos"))
        speech = speaks.speak(line, replace(options, retries=2))
        assert alike(heard(speech), by_itself[0]), "the first take is heard"
        spoken = speech.result()
    assert (spoken.report.ended == "eos", spoken.report.takes) == (wrong == 1, takes)
    assert speech.report == spoken.report and alike(spoken.waveform, by_itself[better])


def test_lines_are_kept_across_restarts(way: Way, tmp_path) -> None:
    once = RenderOptions(LineCache(tmp_path / "lines", 10**8))
    lines = [way.line(f"This is line {seed}.", seed) for seed in range(3)]
    with way.open(2) as speaks:
        first = speak_lines(speaks, lines, way.options(), once)
        keys, before = [speaks.key(line, way.options()) for line in lines], way.made()
    with way.open(2) as speaks:
        again = speak_lines(speaks, lines, way.options(), once)
        assert keys == [speaks.key(line, way.options()) for line in lines] and len(set(keys)) == 3
        assert way.made() == before and all(one.report.from_before for one in again)
        assert [one.waveform.tobytes() for one in again] == [one.waveform.tobytes() for one in first]
        assert [one.report for one in again] == [replace(one.report, device="", from_before=True) for one in first]
        changed = speak_lines(speaks, [*lines[:2], replace(lines[2], seed=9)], way.options(), once)
    assert [one.report.from_before for one in changed] == [True, True, False] and way.made() > before


class Ear:
    """Hears other words in the first take of each line, and then the right ones."""

    name = "ear"

    def __init__(self, lines: Sequence[Line]):
        self.words = iter(["nothing"] * len(lines) + [str(line.text) for line in lines])

    def transcribe(self, waveform, sample_rate, language) -> str:
        return next(self.words)


def test_words_are_checked_and_other_takes_are_spoken_and_kept(way: Way, tmp_path) -> None:
    lines, ready = [way.line(f"This is line {seed}.", seed) for seed in range(2)], []
    once = RenderOptions(LineCache(tmp_path / "lines", 10**8), WordCheck(Ear(lines), 0.2, 1))
    with way.open(2) as speaks:
        listener = Listener(on_line=lambda index, _: ready.append(index))
        made = speak_lines(speaks, lines, way.options(), once, listener)
        before = way.made()
        again = speak_lines(speaks, lines, way.options(), once)
    assert [(one.report.heard.takes, one.report.heard.errors) for one in made] == [(2, 0)] * 2
    assert sorted(ready) == [0, 1], "other takes are not heard one by one"
    assert way.made() == before and once.cache.size().lines == 4
    assert [one.waveform.tobytes() for one in again] == [one.waveform.tobytes() for one in made]


def times_of(words: Sequence[WordTime]) -> np.ndarray:
    return np.array([(word.start_s, word.end_s) for word in words])


def test_words_have_times_also_of_kept_lines_and_at_another_speed(teller, tellers, tmp_path) -> None:
    line, options = (
        teller.line("This is a word. [pause 0.2] It costs $5, and\nno more.", 3),
        teller.options(4),
    )
    once = RenderOptions(LineCache(tmp_path / "lines", 10**8))
    [ours] = render_lines(Synthesizer(tellers[0]), [line], options)
    wanted = word_times(tellers[0], ours)
    with teller.open(2) as speaks:
        speaks.check_words()
        [made], [kept] = (speak_lines(speaks, [line], options, once) for _ in range(2))
        live = speaks.speak(line, options)
        assert len(heard(live)) == len(made.waveform) == len(ours.waveform) and kept.report.from_before
        for spoken in (made, kept):
            assert np.abs(times_of(speaks.words(spoken)) - times_of(wanted)).max() < 0.002
            assert [replace(one, start_s=0, end_s=0) for one in speaks.words(spoken)] == [
                replace(one, start_s=0, end_s=0) for one in wanted
            ]
        faster = speaks.words(retime(made, Stretch(speed=2.0)))
        assert np.abs(times_of(faster) * 2 - times_of(wanted)).max() < 0.05
        while_made = speaks.words(live.result())
    assert [one.text for one in while_made] == [str(word.text) for word in wanted]
    assert np.diff(times_of(while_made).ravel()).min() >= 0
    assert while_made[-1].end_s <= len(made.waveform) / 24000


def test_what_says_no_word_times_says_so_before_a_line_is_spoken(way: Way) -> None:
    with way.open(1) as speaks, pytest.raises(ValueError, match=r"times.*, or do without them"):
        speaks.check_words()


def test_the_chunks_of_a_line_are_its_sound_also_if_it_is_heard_later(way: Way) -> None:
    with way.open(1) as speaks:
        blocking = way.fill(speaks)
        live = speaks.speak(way.line(seed=1), way.options())
        later = speaks.speak(way.line(seed=1), way.options(), UNHEARD)
        never = speaks.speak(way.line(seed=1), way.options(), UNHEARD)
        later.stream()
        for speech in blocking:
            speech.cancel()
        for speech in (live, later):
            assert alike(heard(speech), speech.result().waveform)
        assert never.result() and list(never) == []
        assert alike(live.result().waveform, never.result().waveform)


def test_a_reader_that_takes_nothing_has_a_bounded_part_and_holds_up_no_other(ours: Way, monkeypatch) -> None:
    most, of_piece, text = 4, 10, " ".join(["word " * 7 + "ends here."] * 4)
    monkeypatch.setattr(speech_module, "QUEUED_FRAMES", most)
    monkeypatch.setattr(pieces, "longest_frames", lambda _: of_piece)
    with ours.open(1) as speaks:
        slow = [
            speaks.speak(ours.line(text, seed), ours.options(100, split_chars=60)) for seed in range(1 + ours.places)
        ]
        assert speaks.speak(ours.line(), ours.options(), UNHEARD).result().report.frames
        for one in slow:
            wait_until(lambda one=one: one.is_full)
        # What makes it full, the rest of that piece, and the next one.
        assert all(one.queued < most + 2 * of_piece and not one.ended for one in slow)
        assert alike(heard(slow[-1]), slow[-1].result().waveform)
    assert (slow[-1].report.frames, slow[-1].report.pieces) == (4 * of_piece, 4)


def test_closing_ends_all_lines(way: Way) -> None:
    with way.open(1) as speaks:
        speeches = [*way.fill(speaks), speaks.speak(way.line(), way.options())]
    for speech in speeches:
        with pytest.raises(BatchClosed, match="closed"):
            speech.result()
    speaks.close()
    speeches[0].cancel()
    with pytest.raises(BatchClosed, match="closed"):
        speaks.speak(way.line(), way.options())
    assert not [one for one in threading.enumerate() if one.name == "remote speech"]
    wait_until(way.is_free)


def test_the_report_names_the_settings(way: Way) -> None:
    with way.open(2) as speaks:
        spoken = [speaks.speak(way.line(name="Ann"), way.options(), UNHEARD).result()]
        said = speaks.describe(spoken, way.options(), 1.0)
    assert all(words in said for words in ("Ann", *way.says))
    assert (
        speaks.name and speaks.rate == spoken[0].sample_rate == 24000 and "english" in map(str.lower, speaks.languages)
    )
