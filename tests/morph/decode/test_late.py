"""Lines that come while others are decoded, text that comes late, and lines that are cancelled, on both engines."""

import random
from collections import deque
from dataclasses import replace

import pytest
import torch
from qwen3_tts_morph.morph.decode.loop import Decoding
from qwen3_tts_morph.morph.decode.rows import Decoded, Guard, LatePart, LineRequest, RowPlan
from qwen3_tts_morph.morph.options import AUTO_ROWS, MOST_LINES, GenerateOptions, Sampling
from qwen3_tts_morph.morph.synthesizer import Engine

from tests.morph.decoding import assert_equal, decode_coming, prompts_of
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


def decode_late(engine: Engine, model, requests: list[LineRequest], schedule, together: bool = False):
    """Decode lines that come one at a time when nothing can go on; their texts come by ``schedule``.

    Return them, and how often nothing could go on.
    """
    coming, waits = deque(requests), 0
    texts = [request.text for request in requests if request.text is not None]
    frames: list[int] = []

    def come(decoding: Decoding) -> list[LineRequest]:
        nonlocal waits
        if coming and together:
            taken = list(coming)
            coming.clear()
            return taken
        if frames:
            frames.clear()
            return []
        waits += 1
        if not decoding.rows.room(1) or not coming:
            schedule(texts)
            return []
        schedule(texts)
        return [coming.popleft()]

    plan = RowPlan(OPTIONS.batch_size, OPTIONS.batch_size, late=True)
    opened = engine.open_rows(model, OPTIONS, plan)
    return decode_coming(opened, model, [], come, frames.append), waits


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
    made, waits = decode_late(Engine(engine), model, requests_of(prompts, True), schedule)
    assert_equal(made, whole)
    assert waits


@pytest.mark.parametrize("engine", ENGINES)
def test_a_line_whose_text_is_late_holds_up_no_other(load, recording, engine):
    model = load("tiny", "base")
    prompts = prompts_of(model, "x_vector", recording=recording)
    requests, ran = [requests_of(prompts, True)[0], *requests_of(prompts, False)[1:]], []

    def when_the_others_have_ended(texts: list[Arriving]) -> None:
        ran.append(1)
        if len(ran) > 5:
            all_at_once(texts)

    decoded, _ = decode_late(Engine(engine), model, requests, when_the_others_have_ended)
    assert len(decoded) == 3 and all(len(one.codes) for one in decoded)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_line_that_is_stopped_keeps_its_place_in_the_cache(load, recording, engine):
    """Its row is near the end of the window while another is far behind: what it overwrites is its own."""
    model = load("tiny", "base")
    prompt = prompts_of(model, "x_vector", [2], recording)[0]
    fill = 256 - len(prompt.embeds) - 3
    long = replace(prompt, inputs=torch.cat((prompt.embeds[:1].expand(fill, -1), prompt.embeds)))
    whole = Engine(engine).decode(model, requests_of([long, prompt], False), OPTIONS)
    if engine == "eager":
        whole = [Engine(engine).decode(model, [one], OPTIONS)[0] for one in requests_of([long, prompt], False)]
    made, _ = decode_late(Engine(engine), model, requests_of([long, prompt], True), one_at_a_time)
    assert_equal(made, whole)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_row_that_is_released_leaves_nothing_and_the_others_go_on(load, engine):
    model = load("tiny", "custom_voice")
    prompts = prompts_of(model)
    whole = Engine(engine).decode(model, requests_of(prompts, False), OPTIONS)
    rows_of_three = Engine(engine).open_rows(model, OPTIONS, RowPlan(3, 3, late=True))
    with rows_of_three as rows:
        decoding, made = Decoding(model, rows), {}
        at = decoding.admit(requests_of(prompts, False))
        while len(made) < 3:
            decoding.step()
            while (ended := decoding.read()) is not None:
                made |= {row: Decoded.of(decoding.release(row), end) for row, end in ended}
                if at[1] not in made and decoding.buffers.counts[at[1]] == 2:
                    made[at[1]] = Decoded.of(decoding.release(at[1]), "cancelled")
    assert torch.equal(made[at[1]].codes, whole[1].codes[:2])
    assert_equal([made[at[0]], made[at[2]]], whole[::2])


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
            made, _ = decode_late(one, model, requests_of(prompts, True), schedule, together=True)
            assert_equal(made, whole)
        one.free()
    finally:
        model.module.to("cpu")


def on_cuda(prompt):
    """Return the prompt with its rows, which the model on the CPU makes, on the GPU."""
    inputs, trailing = prompt.embeds.to("cuda"), prompt.text_rows.to("cuda")
    return replace(prompt, inputs=inputs, trailing=trailing, pad=prompt.pad.to("cuda"))


def test_rows_are_those_asked_for_or_all_that_are_given():
    requests = [None] * 5
    assert [RowPlan.of_lines(requests, size).rows for size in (AUTO_ROWS, 3, 8)] == [5, 3, 5]
    assert RowPlan.of_lines([None] * 600, AUTO_ROWS).rows == MOST_LINES
