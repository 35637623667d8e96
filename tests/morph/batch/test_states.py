"""Random lines in one batch: whatever callers do, every line ends once, and nothing is left of it.

A seed draws the steps, not hypothesis: lines are decoded in a thread of their own, so a fault comes after another step
each time. hypothesis 6.170 then ended with FlakyStrategyDefinition, and showed no shorter history of a planted fault.
"""

import gc
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from queue import SimpleQueue

import pytest
import torch
from qwen3_tts_morph.morph.batch import loop as loop_module
from qwen3_tts_morph.morph.batch import scheduler
from qwen3_tts_morph.morph.batch import speech as speech_module
from qwen3_tts_morph.morph.batch import utterance as utterance_module
from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.batch.loop import Loop
from qwen3_tts_morph.morph.batch.scheduler import Busy
from qwen3_tts_morph.morph.batch.speech import LATER, BatchClosed, Delivery, Speech
from qwen3_tts_morph.morph.batch.utterance import Status, Utterance
from qwen3_tts_morph.morph.graph.engine import GraphDecoder
from qwen3_tts_morph.morph.model.finite import NotFinite
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech import pieces
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.synthesizer import Engine, Synthesizer
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice
from qwen3_tts_morph.morph.voice.voice import Voice

from tests.patience import PATIENCE

SENTENCES = ["One sentence, a piece of its own here.", "Another one, which is longer.", "And there is a third."]
TEXTS = ["Hello there.", " ".join(SENTENCES), "No."]
BAD = "Numberless words."  # of which no number is finite
SAMPLING = Sampling(max_new_tokens=13)
OPTIONS = GenerateOptions(5, SAMPLING, retries=1, split_chars=60)
FULL = 10  # frames that a reader may have waiting
END = None


class Watch:
    """Checks a batch after each iteration, in its thread; ``faults`` are for the test's."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.looks = 0
        self.seen = Counter[tuple[Status, Status]]()

    def look(self, loop: Loop) -> None:
        self.looks += 1
        try:
            self._look(loop)
        except AssertionError as error:
            self.faults.append(str(error))

    def _look(self, loop: Loop) -> None:
        assert loop._decoding.rows._table.running == len(loop._by_row), "rows without lines"
        for row, one in loop._by_row.items():
            assert one.status is Status.RUNNING, f"{one.status.name}, with a row"
            assert one.rows[row].frames._place[1] == row, "a piece is in another row"
            assert one.number in loop._active and not one.speech.ended, "a line that has ended has a row"
        with loop.scheduler.lock:  # callers add to them, in two steps
            places = list(loop.scheduler._places.values())
        pending = [changed() for changed in list(loop.inbox.changed)]
        for one in {*loop._active.values(), *(place.utterance for place in places)}:
            assert one.status is not Status.DONE, "a line that has ended is not forgotten"
            assert (one.status is Status.RUNNING) == bool(one.rows), f"{one.status.name}, rows {list(one.rows)}"
            assert all(loop._by_row[row] is one for row in one.rows), "a row is another line's"
            waits = one.ready and one.status not in (Status.QUEUED, Status.RUNNING)
            assert not waits or one in pending, "a piece waits for ever"
            is_late = one.speech.delivery.live == LATER  # the rows it has may be more than one
            assert len(one.rows) <= 1 or not one.is_live or is_late, "a streamed line has two rows"
            row = None if one.chunks is None else one.chunks.row
            assert row is None or row in one.rows, "a line rests for ever"
        assert loop._turns.begun <= loop._active.keys(), "a line that needs nothing has a codec state"
        for place in places:
            assert place.rows == len(place.utterance.rows), "rows are not counted"
            one = place.utterance
            queued = bool(place.key) == (one.wants > 0 and not (one.is_live and one.rows))
            # A reader may leave at any moment: its event comes next.
            assert queued or one in pending or one.speech.is_cancelled, "a line that wants a row is not queued"

    def note(self, one: Utterance, before: Status) -> None:
        if one.status is not before:
            self.seen[before, one.status] += 1


class Fed:
    """A text that comes in parts; ``give`` gives the next one, END the end."""

    def __init__(self) -> None:
        self._parts: SimpleQueue[str | None] = SimpleQueue()
        self.give = self._parts.put

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts.get, END)


def state_of(batch: Batch) -> str:
    """Return what a batch knows of its lines, to tell which one never ends, and why."""
    loop = batch.loop
    lines = [
        f"{one.number} {one.status.name}: {vars(one)}\n{vars(one.speech)}\n{one.chunks and vars(one.chunks)}"
        for one in loop.scheduler.utterances
    ]
    rows = {row: one.number for row, one in loop._by_row.items()}
    whole = f"rows {rows}, active {list(loop._active)}, events {len(loop.inbox.changed)}"
    return "\n".join([f"{batch.status}", whole, *lines])


class Machine:
    """Callers of one batch, which take random steps."""

    def __init__(self, batch: Batch, voice: Voice, draws: random.Random):
        self.batch, self.voice, self.draws = batch, voice, draws
        self.open: list[Speech] = []
        self.texts: dict[Speech, Fed] = {}
        self.cancelled: set[Speech] = set()
        self.fail_next = False

    def step(self) -> None:
        steps = [self.submit] * 4 + [self.read] * 5 + [self.feed] * 4 + [self.read_all] * 2
        self.draws.choice([*steps, self.cancel, self.stream])()

    def submit(self) -> None:
        draws, late = self.draws, self.draws.random() < 0.3
        text = draws.choice([*TEXTS, BAD]) if not late else Fed()
        line = Line(text, self.voice, seed=draws.randrange(5), layout=draws.choice(["sentence", "token"]))
        options = replace(OPTIONS, seq_groups=draws.choice([5, 5, 1]))
        delivery = Delivery(draws.random() < 0.6 or LATER, keep=draws.random() < 0.7)
        try:
            speech = self.batch.speak(line, options, delivery)
        except Busy:
            return
        self.open.append(speech)
        if isinstance(text, Fed):
            self.texts[speech] = text

    def read(self) -> None:
        for speech in self.draws.sample(self.open, min(2, len(self.open))):
            if speech.unread:
                speech.take()
            elif speech.ended:
                self.check(speech)

    def read_all(self) -> None:
        """Read a line to its end, while others wait for their readers and texts."""
        if left := [speech for speech in self.open if speech not in self.texts]:
            speech = self.draws.choice(left)
            self._read_until(lambda: speech not in self.open, [speech])

    def _read_until(self, is_done: Callable[[], bool], speeches: list[Speech]) -> None:
        until = time.monotonic() + PATIENCE
        while not is_done():
            for speech in list(speeches):
                if speech.unread:
                    speech.take()
                elif speech.ended:
                    self.check(speech)
            assert time.monotonic() < until, f"lines never end: {state_of(self.batch)}"
            time.sleep(0.002)

    def feed(self) -> None:
        if self.texts:
            speech = self.draws.choice(list(self.texts))
            text = self.draws.choice(["One. ", "two three", " four. ", END])
            self.texts[speech].give(text)
            if text is END:
                del self.texts[speech]

    def cancel(self) -> None:
        if self.open and self.draws.random() < 0.5:
            speech = self.draws.choice(self.open)
            speech.cancel()
            self.cancelled.add(speech)

    def stream(self) -> None:
        if self.open:
            self.draws.choice(self.open).stream()

    def check(self, speech: Speech) -> None:
        """Check how a line ended; it is forgotten."""
        self.open.remove(speech)
        if (text := self.texts.pop(speech, None)) is not None:
            text.give(END)
        error = speech.outcome.error
        if error is None:
            assert speech.report.frames or speech in self.cancelled, "a line ended without sound"
        else:
            assert isinstance(error, (NotFinite, BatchClosed, ValueError, OSError)), error
            bad = isinstance(error, NotFinite)
            assert not bad or speech.line.text == BAD, "another line's numbers ended this one"

    def drain(self) -> None:
        """Read all lines to their ends."""
        for text in self.texts.values():
            text.give("Done.")
            text.give(END)
        self._read_until(lambda: not self.open, self.open)


@pytest.fixture
def watch(monkeypatch) -> Watch:
    made, admit, become = Watch(), Loop._iterate, Utterance.become

    def iterate(loop: Loop) -> bool:
        goes_on = admit(loop)
        made.look(loop)
        return goes_on

    def note(one: Utterance, status: Status) -> None:
        before = one.status
        become(one, status)
        made.note(one, before)

    monkeypatch.setattr(Loop, "_iterate", iterate)
    monkeypatch.setattr(Utterance, "become", note)
    monkeypatch.setattr(speech_module, "QUEUED_FRAMES", FULL)
    monkeypatch.setattr(utterance_module, "SHORT", 20)  # longer texts are cut while others speak
    monkeypatch.setattr(scheduler, "AHEAD_S", 0.0)  # rows change hands within pieces
    monkeypatch.setattr(loop_module, "EXCHANGE_S", 0.0)
    original = pieces.build_piece

    def build(builder, line, text):
        prompt = original(builder, line, text)
        if text != BAD:
            return prompt
        return replace(prompt, inputs=prompt.embeds * torch.nan, prefix=None)

    monkeypatch.setattr(pieces, "build_piece", build)
    return made


@pytest.fixture
def voice(load, recording) -> Voice:
    return clone_voice(load("tiny", "base"), recording, 24000, CloneOptions("x_vector"))


MORE = [pytest.param(seed, 2000, marks=pytest.mark.slow) for seed in range(100, 110)]


@pytest.mark.parametrize(("seed", "steps"), [*((seed, 200) for seed in range(1, 11)), *MORE])
def test_random_lines_end_and_leave_nothing(load, voice, watch: Watch, monkeypatch, seed, steps) -> None:
    draws, synthesizer = random.Random(seed), Synthesizer(load("tiny", "base"), Engine("graph"))
    frame = GraphDecoder.frame
    with Batch(synthesizer, draws.choice([1, 3]), waiting=6) as batch:
        machine = Machine(batch, voice, draws)

        def fail(decoder: GraphDecoder, *given) -> None:
            if machine.fail_next:
                machine.fail_next = False
                raise OSError("the device has failed")
            frame(decoder, *given)

        monkeypatch.setattr(GraphDecoder, "frame", fail)
        for count in range(steps):
            machine.step()
            machine.fail_next |= count % 60 == 50
            if count % 100 == 70:
                gc.collect()  # in a caller's thread, while the batch's works
            assert watch.faults == []
        machine.drain()
        status = batch.status
        assert (status.speaking, status.waiting, status.parked, status.silent) == (0, 0, 0, 0)
        machine.fail_next = False
        for _ in range(5):
            machine.submit()
    machine.drain()  # closed: every line has ended, with sound or an error
    assert watch.faults == [] and watch.looks and watch.seen
