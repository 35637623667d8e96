"""Lines that nobody hears, beside others that go on: none waits for their end, and none is passed by for ever."""

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.batch.codec import offline as offline_module
from qwen3_tts_morph.morph.batch.codec.offline import CodedPiece, OfflineCodec
from qwen3_tts_morph.morph.batch.speech import Delivery
from qwen3_tts_morph.morph.model.finite import NotFinite
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.synthesizer import Choice, Engine, Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.morph.waveform.engine import InFlight

from tests.morph.endless import pin_ends
from tests.patience import wait_until

SHORT = GenerateOptions(5, Sampling(max_seconds=0.4), retries=0)
LONG = replace(SHORT, sampling=Sampling(max_seconds=100))
COMPLETE = Delivery(live=False)
ENDLESS = "word " * 60


@pytest.fixture
def voice(synthesizer: Synthesizer, monkeypatch: pytest.MonkeyPatch) -> Voice:
    """Lines with "word" take all the frames that they may have."""
    pin_ends(monkeypatch)
    return preset_voice(synthesizer.model, "ryan")


@pytest.mark.parametrize("other", [Delivery(), COMPLETE])
def test_a_complete_line_does_not_wait_for_one_that_goes_on(synthesizer, voice: Voice, other) -> None:
    with Batch(synthesizer, 3) as batch:
        endless = batch.speak(Line(ENDLESS, voice), LONG, other)
        wait_until(lambda: endless.progress.done > 0)
        for seed in range(2):
            assert batch.speak(Line("Hello there.", voice, seed=seed), SHORT, COMPLETE).result().report.frames
        assert not endless.ended
        endless.cancel()


def test_a_complete_line_does_not_wait_until_as_many_as_rows_are_coded(synthesizer, voice: Voice) -> None:
    """While others wait for a row: somebody waits for this one, too."""
    with Batch(synthesizer, 2) as batch:
        endless = [batch.speak(Line(ENDLESS, voice), LONG, COMPLETE)]
        wait_until(lambda: batch.status.speaking == 1)
        options = replace(SHORT, sampling=Sampling(max_seconds=2))
        short = batch.speak(Line("One word.", voice), options, COMPLETE)
        wait_until(lambda: batch.status.speaking == 2)
        endless += [batch.speak(Line(ENDLESS, voice), LONG, COMPLETE) for _ in range(2)]
        assert short.result().report.frames == 25
        assert not any(one.ended for one in endless) and batch.status.waiting
        for one in endless:
            one.cancel()


def test_a_line_that_is_not_kept_has_its_sound_as_one_chunk(synthesizer, voice: Voice, caplog) -> None:
    line = Line("My own words.", voice, seed=3)
    with Batch(synthesizer, 2) as batch:
        kept, other = (batch.speak(line, SHORT, one) for one in (COMPLETE, Delivery(live=False, keep=False)))
        [chunk], spoken = list(other), kept.result()
    assert chunk.last and np.allclose(chunk.samples, spoken.waveform, atol=1e-5)
    assert other.report == spoken.report and list(kept) == []
    assert caplog.text.count("My own words.") == (spoken.report.ended == "cap"), "of the one that is kept"
    with pytest.raises(RuntimeError, match="was not kept"):
        other.result()


def wait_for_frames(batch: Batch) -> None:
    """Wait until the batch has taken all lines that it got: it does so before every frame."""
    before = batch.status.frames
    wait_until(lambda: batch.status.frames >= before + 2)


class Codes:
    def __init__(self, frames: int):
        self._count = frames
        self.frames = self

    def __len__(self) -> int:
        return self._count

    def codes(self) -> torch.Tensor:
        return torch.zeros(self._count, 16)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    now = [100.0]
    monkeypatch.setattr(offline_module.time, "perf_counter", lambda: now[0])
    yield now
    monkeypatch.undo()
    assert time.perf_counter() != now[0]


def add(codec: OfflineCodec, *pieces: Codes) -> None:
    for piece in pieces:
        codec.add(CodedPiece(None, piece))


def taken(codec: OfflineCodec, wait: bool = False) -> list[Codes]:
    """The pieces of which there are samples."""
    made = iter(lambda: codec.take(wait), None)
    return [one.piece for one, samples in made if isinstance(samples, np.ndarray)]


def test_as_many_pieces_fit_as_readers_have_time_for(clock: list[float]) -> None:
    def begin(codes, _):
        clock[0] += 0.01 * sum(map(len, codes))
        return InFlight([np.zeros(1, np.float32) for _ in codes])

    codec = OfflineCodec(begin)
    add(codec, Codes(10))
    assert codec.fit(0.0) == 1, "what it takes is not known"
    codec.start(1)
    assert len(taken(codec)) == 1 and codec.waited_s == 0 and not (codec.waiting or codec.work)
    add(codec, *map(Codes, (10, 20, 30)))
    assert [codec.fit(seconds) for seconds in (-1.0, 0.05, 0.15, 0.35, 0.65)] == [0, 0, 1, 2, 3]
    clock[0] += 0.6  # more than five times what the first one takes
    assert codec.fit(-1.0) == 1 and codec.waited_s == pytest.approx(0.6)
    codec.start(1)
    assert len(codec.waiting) == 2 and codec.fit(-1.0) == 0


class Later:
    """Samples that the device makes when the test says so, of one piece after another or of all together."""

    def __init__(self, codes: list[torch.Tensor]):
        self.made, self._waves = 0, dict(enumerate(np.zeros(len(one), np.float32) for one in codes))

    @property
    def is_done(self) -> bool:
        return not self._waves

    def take(self, wait: bool = False) -> dict[int, np.ndarray]:
        self.made += wait
        return {line: self._waves.pop(line) for line in [*self._waves] if line < self.made}


@pytest.fixture
def begun() -> list[Later]:
    return []


def test_who_hears_a_line_does_not_wait_for_samples_that_a_device_makes(
    synthesizer, voice: Voice, monkeypatch, begun: list[Later]
) -> None:
    monkeypatch.setattr(
        synthesizer.engine,
        "begin_waveforms",
        lambda _, __, codes, *___, **____: begun.append(Later(codes)) or begun[-1],
    )
    with Batch(synthesizer, 3) as batch:
        endless = batch.speak(Line(ENDLESS, voice), LONG, COMPLETE)
        first = batch.speak(Line("Hello there.", voice), SHORT, COMPLETE)
        wait_until(lambda: len(begun) == 1)
        heard = batch.speak(Line(ENDLESS, voice), LONG)
        second = batch.speak(Line("Hello there.", voice), SHORT, COMPLETE)
        wait_until(lambda: second.progress.done == 5 and heard.progress.done > 0)
        wait_for_frames(batch)
        assert begun[0].made == 0 and len(begun) == 1, "nobody waited for the device"
        begun[0].made = 1
        assert first.result().report.frames
        wait_until(lambda: len(begun) == 2)
        assert second.result().report.frames
        for one in (endless, heard):
            one.cancel()


def test_where_lines_are_decoded_one_by_one_frames_come_between_them(model, voice: Voice, monkeypatch) -> None:
    together, begin = list[int](), Engine.begin_waveforms

    def note(engine: Engine, of: Model, choice: Choice, codes: list, *rest, **more) -> InFlight:
        together.append(len(codes))
        return begin(engine, of, choice, codes, *rest, **more)

    monkeypatch.setattr(Engine, "begin_waveforms", note)
    synthesizer = Synthesizer(model, Engine("eager"))
    with Batch(synthesizer, 3) as batch:
        said = [batch.speak(Line("Hello there.", voice, seed=seed), SHORT, COMPLETE) for seed in range(3)]
        assert all(one.result().report.frames for one in said) and together == [1, 1, 1]


def test_samples_that_are_not_finite_are_noticed_while_frames_go_on() -> None:
    """Each piece is then made by itself, and only the line whose samples they are loses them."""

    class Broken(Later):
        def take(self, wait: bool = False) -> dict[int, np.ndarray]:
            if self.made:
                raise NotFinite("of one of them")
            self.made = 1
            return super().take()

    def begin(codes, _):
        if len(codes) > 1:
            return Broken(codes)
        if len(codes[0]) == 2:
            raise NotFinite("of this one")
        return InFlight([np.zeros(1, np.float32)])

    codec = OfflineCodec(begin)
    pieces = [Codes(4), Codes(1), Codes(2), Codes(3)]
    add(codec, *pieces)
    codec.start()
    assert codec.take()[0].piece is pieces[0] and codec.work
    made = {one.piece: samples for one, samples in iter(codec.take, None)}
    assert [isinstance(made[piece], NotFinite) for piece in pieces[1:]] == [False, True, False]
    assert not codec.work


def test_a_piece_that_is_not_finite_at_once_was_waited_for() -> None:
    """Its line is looked at again: it may end, or want another take."""

    def begin(*_):
        raise NotFinite("of this one")

    codec = OfflineCodec(begin)
    add(codec, Codes(1))
    codec.start()
    assert isinstance(codec.take(wait=True)[1], NotFinite)
    assert codec.take(wait=True) is None and not (codec.waiting or codec.work)
