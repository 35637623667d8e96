"""Lines that come while others are decoded, text that comes late, and lines that are cancelled, on both engines."""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from qwen3_tts_morph.morph.decode.guard import Guard
from qwen3_tts_morph.morph.decode.request import LatePart, LineRequest
from qwen3_tts_morph.morph.decode.source import Ahead, GivenLines, rows_of
from qwen3_tts_morph.morph.engine import Engine
from qwen3_tts_morph.morph.options import AUTO_ROWS, MOST_LINES, GenerateOptions, Sampling

from tests.morph.decoding import assert_equal, prompts_of
from tests.morph.pairwise import each_value

OPTIONS = GenerateOptions(5, Sampling(), batch_size=3)
ENGINES = ["eager", "graph"]
FRAMES = 24


class Arriving:
    """The trailing text of a prompt: ``arrive`` lets one more row come, and after all of them the end."""

    def __init__(self, prompt):
        self.rows, self.minimum = prompt.text_rows, prompt.min_frames
        self.there, self.given, self.ended = 0, 0, False

    def arrive(self) -> None:
        self.ended = self.there == len(self.rows)
        self.there += not self.ended

    def ready(self, frame: int) -> bool:
        return self.ended or frame < self.there

    def take(self) -> LatePart | None:
        if self.given == self.there:
            return None
        part = LatePart(self.rows[self.given : self.there], self.minimum)
        self.given = self.there
        return part


class Source:
    """Lines that come one at a time when nothing can go on, and whose texts come by ``schedule``."""

    late = collected = True
    ahead = Ahead()
    most = None
    rows = AUTO_ROWS

    def __init__(self, requests: list[LineRequest], schedule: Callable[[list[Arriving]], None]):
        self.coming, self.ready = deque(requests), deque()
        self.texts = [request.text for request in requests if request.text is not None]
        self.schedule, self.waits = schedule, 0

    @property
    def done(self) -> bool:
        return not self.coming and not self.ready

    def take(self) -> LineRequest:
        return self.ready.popleft()

    def follow(self) -> None:
        pass

    def meanwhile(self) -> None:
        pass

    def wait(self) -> None:
        self.waits += 1
        assert self.waits < 1000
        if self.coming:
            self.ready.append(self.coming.popleft())
        self.schedule(self.texts)


def one_at_a_time(texts: list[Arriving]) -> None:
    for text in texts:
        text.arrive()


def all_at_once(texts: list[Arriving]) -> None:
    for text in texts:
        while not text.ended:
            text.arrive()


def at_random(texts: list[Arriving]) -> None:
    for text in texts:
        for _ in range(random.Random(sum(one.there for one in texts)).randrange(1, 4)):
            text.arrive()


def requests_of(prompts, late: bool) -> list[LineRequest]:
    return [
        LineRequest(
            replace(prompt, trailing=prompt.text_rows[:0]) if late else prompt,
            Guard(FRAMES, False),
            seed,
            text=Arriving(prompt) if late else None,
        )
        for seed, prompt in enumerate(prompts)
    ]


@pytest.mark.parametrize(
    ("engine", "schedule"),
    each_value(
        {engine: engine for engine in ENGINES},
        {schedule.__name__: schedule for schedule in (one_at_a_time, all_at_once, at_random)},
    ),
)
def test_late_text_gives_the_codes_of_the_same_text_at_once(load, recording, engine, schedule):
    """No row is stepped without its text, and the random stream does not move on while it is stopped."""
    model = load("tiny", "base")
    prompts = prompts_of(model, "x_vector", recording=recording)
    whole = [Engine(engine).decode(model, [one], OPTIONS)[0] for one in requests_of(prompts, False)]
    if engine == "graph":  # its rows are computed together
        whole = Engine(engine).decode(model, requests_of(prompts, False), OPTIONS)
    source = Source(requests_of(prompts, True), schedule)
    assert_equal(Engine(engine).decode(model, source, OPTIONS), whole)
    assert source.waits


@pytest.mark.parametrize("engine", ENGINES)
def test_a_line_whose_text_is_late_holds_up_no_other(load, recording, engine):
    model = load("tiny", "base")
    prompts = prompts_of(model, "x_vector", recording=recording)
    requests, ends = [requests_of(prompts, True)[0], *requests_of(prompts, False)[1:]], []
    requests = [
        replace(one, on_end=lambda _, line=line: ends.append(line)) for line, one in enumerate(requests)
    ]

    def when_the_others_have_ended(texts: list[Arriving]) -> None:
        if len(ends) == 2:
            all_at_once(texts)

    decoded = Engine(engine).decode(model, Source(requests, when_the_others_have_ended), OPTIONS)
    assert ends[-1] == 0 and len(decoded) == 3 and len(decoded[0].codes)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_line_that_is_stopped_keeps_its_place_in_the_cache(load, recording, engine):
    """Its row is near the end of the window while another is far behind: what it overwrites is its own."""
    model = load("tiny", "base")
    prompt = prompts_of(model, "x_vector", [2], recording)[0]
    fill = 256 - len(prompt.embeds) - 3
    long = replace(prompt, inputs=torch.cat((prompt.embeds[:1].expand(fill, -1), prompt.embeds)))
    whole = Engine(engine).decode(model, requests_of([long, prompt], False), OPTIONS)
    if engine == "eager":
        whole = [
            Engine(engine).decode(model, [one], OPTIONS)[0] for one in requests_of([long, prompt], False)
        ]
    source = Source(requests_of([long, prompt], True), one_at_a_time)
    assert_equal(Engine(engine).decode(model, source, OPTIONS), whole)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cancelled_line_ends_within_a_frame_and_the_others_go_on(load, engine):
    model = load("tiny", "custom_voice")
    prompts = prompts_of(model)
    whole = Engine(engine).decode(model, requests_of(prompts, False), OPTIONS)
    heard: list = []
    requests = requests_of(prompts, False)
    requests[1] = replace(
        requests[1], on_codes=heard.append, on_end=heard.append, cancelled=lambda: len(heard) >= 2
    )
    decoded = Engine(engine).decode(model, requests, OPTIONS)
    assert decoded[1].ended == heard[-1] == "cancelled" and len(heard) == 3
    assert torch.equal(decoded[1].codes, whole[1].codes[:2])
    assert_equal(decoded[::2], whole[::2])


@pytest.mark.parametrize("engine", ENGINES)
def test_lines_that_are_cancelled_before_they_begin(load, engine):
    model = load("tiny", "custom_voice")
    requests = [replace(one, cancelled=lambda: True) for one in requests_of(prompts_of(model), False)]
    decoded = Engine(engine).decode(model, requests, OPTIONS)
    assert [(one.ended, len(one.codes)) for one in decoded] == [("cancelled", 0)] * 3


def test_given_lines_never_wait():
    with pytest.raises(RuntimeError, match="no other will come"):
        GivenLines([]).wait()


@pytest.mark.gpu
@pytest.mark.parametrize("engine", ENGINES)
def test_on_a_gpu_late_text_gives_the_codes_of_the_same_text_at_once(load, recording, engine):
    """With kernels and graphs: plain, captured and replayed frames, with rows that stop between them."""
    model = load("tiny", "base")
    prompts = [on_cuda(prompt) for prompt in prompts_of(model, "x_vector", recording=recording)]
    model.module.to("cuda")
    try:
        one = Engine(engine)
        given = requests_of(prompts, False)
        batches = [given] if engine == "graph" else [[request] for request in given]
        whole = [line for batch in batches for line in one.decode(model, batch, OPTIONS)]
        for schedule in (one_at_a_time, all_at_once, at_random):
            source = Source(requests_of(prompts, True), schedule)
            source.ready, source.coming = source.coming, deque()  # their prompts are read together, as above
            assert_equal(one.decode(model, source, OPTIONS), whole)
        one.free()
    finally:
        model.module.to("cpu")


def on_cuda(prompt):
    """Return the prompt with its rows, which the model on the CPU makes, on the GPU."""
    inputs, trailing = prompt.embeds.to("cuda"), prompt.text_rows.to("cuda")
    return replace(prompt, inputs=inputs, trailing=trailing, pad=prompt.pad.to("cuda"))


def test_rows_are_those_asked_for_or_all_that_are_given():
    requests = [None] * 5
    assert [rows_of(size, requests) for size in (AUTO_ROWS, 3, 8)] == [5, 3, 5]
    assert rows_of(AUTO_ROWS, [None] * 600) == MOST_LINES
    source = Source([], lambda _: None)
    assert [rows_of(size, source) for size in (AUTO_ROWS, 3)] == [1, 3]
    source.rows = 4  # as a running batch says: its lines may ask for anything
    assert [rows_of(size, source) for size in (AUTO_ROWS, 3, 8)] == [4, 4, 4]
    source.most = 2
    assert rows_of(8, source) == 2
