"""Lines of several groups (SEQ_GROUPS and tail) in the rows of one decoding, and lines that leave their rows."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.decode.loop import Decoding, Suspended
from qwen3_tts_morph.morph.decode.rows import Ahead, Decoded, Group, Guard, LineRequest, RowPlan
from qwen3_tts_morph.morph.graph import engine as graph
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.model.tail import Tail, TailInfo
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling
from qwen3_tts_morph.morph.synthesizer import Engine

from tests.morph.decode.test_late import Arriving
from tests.morph.decoding import FILTERED, GREEDY, assert_equal, prompts_of
from tests.morph.pairwise import each_value
from tests.morph.recorded import AsOnGpu, Recordings

ROWS = 4
GROUPS = [Group(15, "auto"), Group(5, "auto"), Group(5, "stock"), Group(1, "auto")]
KINDS = {
    "eager": ("eager", None),
    "graph": ("graph", None),
    "late": ("graph", AsOnGpu),
    "recorded": ("graph", Recordings),
}


@pytest.fixture
def model(checkpoint) -> Model:
    """A model with a trained tail for SEQ_GROUPS 5."""
    model = load_model(checkpoint("tiny", "base"), LoadOptions("fp32", "sdpa"))
    heads = torch.stack([head.weight for head in model.talker.code_predictor.lm_head])
    token = torch.randn(heads.shape[1:], generator=torch.Generator().manual_seed(0)) / 4
    model.add_tails({5: Tail(5, {"token": token}, TailInfo("token", 0.25, 0.5), heads)})
    return model


class EndsAt:
    """A word guard that ends its line at a frame."""

    def __init__(self, frames: int):
        self._left = frames

    def take(self, token: int, weight: float) -> object | None:
        self._left -= 1
        return None if self._left else self


def requests_of(prompts, sampling: Sampling) -> list[LineRequest]:
    """Lines of all groups; every third is streamed, and the text of every third comes late."""
    requests = []
    for line in range(2 * len(GROUPS)):
        prompt, is_late = prompts[line % len(prompts)], line % 3 == 1
        requests.append(
            LineRequest(
                replace(prompt, trailing=prompt.text_rows[:0]) if is_late else prompt,
                Guard(70 if line == 3 else 8 + 5 * line % 17),
                line,
                text=Arriving(prompt) if is_late else None,
                sampling=sampling if line % 3 else FILTERED,
                is_streamed=line % 3 == 0,
                words=EndsAt(7) if line == 5 else None,
                group=GROUPS[line % len(GROUPS)],
            )
        )
    return requests


def alone(engine: Engine, model: Model, request: LineRequest) -> Decoded:
    group = request.group or GROUPS[0]
    if isinstance(request.text, Arriving):
        request = replace(request, prompt=replace(request.prompt, trailing=request.text.rows), text=None)
    [line] = engine.decode(model, [replace(request, group=None)], GenerateOptions(group.seq_groups, tail=group.tail))
    return line


def decode_in_turns(
    engine: Engine, model: Model, requests: Sequence[LineRequest], seed: int, suspends: float = 0.0
) -> list[Decoded]:
    """Decode lines in ``ROWS`` rows, with a group that is chosen anew for every frame.

    ``suspends``: how likely it is that a line leaves its row before a frame, which others then get.
    """
    choose, plan = random.Random(seed), RowPlan(ROWS, ROWS, late=seed % 2 == 0)
    with engine.open_rows(model, GenerateOptions(15), plan) as rows:
        decoding, waiting, running, made = Decoding(model, rows), [*range(len(requests))], {}, {}
        left: dict[int, Suspended] = {}
        while waiting or running or left:
            if left and ((len(running) < ROWS and choose.random() < 0.4) or not running):
                line = choose.choice([*left])
                running[decoding.resume(left.pop(line))] = line
            if room := rows.room(len(waiting)):
                taken, waiting = waiting[:room], waiting[room:]
                admitted = decoding.admit([requests[line] for line in taken])
                running |= dict(zip(admitted, taken, strict=True))
            for line in running.values():
                if requests[line].text is not None and choose.random() < 0.7:
                    requests[line].text.arrive()
            if running:
                decoding.step(choose.choice([requests[line].group for line in running.values()]))
            if choose.random() < 0.5:
                end_lines(decoding, running, made)
            for row in [row for row in running if choose.random() < suspends]:
                rows.settle()
                end_lines(decoding, running, made)
                if row in running:
                    left[running.pop(row)] = decoding.suspend(row)
            end_lines(decoding, running, made)
        return [made[line] for line in range(len(requests))]


def end_lines(decoding: Decoding, running: dict[int, int], made: dict[int, Decoded]) -> None:
    while (ended := decoding.read()) is not None:
        for row, end in ended:
            made[running.pop(row)] = Decoded.of(decoding.release(row), end)


@pytest.mark.parametrize(
    ("kind", "sampling"), each_value(KINDS, {"greedy": GREEDY, "sampled": Sampling(), "filtered": FILTERED})
)
def test_lines_in_turns_and_interrupted_have_the_codes_that_they_have_alone(
    model, recording, monkeypatch, kind, sampling
):
    engine, recorded = kind
    prompts = prompts_of(model, "x_vector", recording=recording)
    wanted = [alone(Engine(engine), model, request) for request in requests_of(prompts, sampling)]
    if recorded is not None:
        monkeypatch.setattr(graph, "CapturedGraphs", recorded)
        monkeypatch.setattr(graph, "SMALLEST_WINDOW", 16)
        monkeypatch.setattr(graph, "LATE_CONTEXT", 32)
    one = Engine(engine)
    for seed in range(2):  # the second time what was recorded is replayed
        assert_equal(decode_in_turns(one, model, requests_of(prompts, sampling), seed), wanted)
    for seed in range(2, 4):
        assert_equal(decode_in_turns(one, model, requests_of(prompts, sampling), seed, 0.15), wanted)


def test_a_group_that_was_spoken_alone_is_captured_for_lines_of_all_lengths(model, recording, monkeypatch):
    monkeypatch.setattr(graph, "CapturedGraphs", Recordings)
    monkeypatch.setattr(graph, "LONGEST_PREPARED", graph.PROMPT_STEP)
    monkeypatch.setattr(graph, "SMALLEST_WINDOW", 64)
    monkeypatch.setattr(graph, "LATE_CONTEXT", 128)
    prompt = replace(prompts_of(model, "x_vector", recording=recording)[0], min_frames=100)
    requests = [LineRequest(prompt, Guard(length, False), group=group) for length in (2, 70) for group in GROUPS]
    made, engine = list[int](), Engine("graph")
    with engine.open_rows(model, GenerateOptions(15), RowPlan(2, 2, late=True, ahead=Ahead(2))) as rows:
        for request in requests:
            decoding = Decoding(model, rows)
            [row] = decoding.admit([request])
            while not decoding.read():
                decoding.step(request.group)
            decoding.release(row)
            while engine.prepare_next():
                pass
            made.append(Recordings.made)
    assert len({*made[len(GROUPS) - 1 :]}) == 1 < len({*made})


@pytest.mark.gpu
@pytest.mark.parametrize("engine", ["eager", "graph"])
def test_on_a_gpu_too(model, recording, engine):
    model.module.to("cuda")
    prompts, one = prompts_of(model, "x_vector", recording=recording), Engine(engine)
    wanted = [alone(one, model, request) for request in requests_of(prompts, GREEDY)]
    for seed in range(6):
        made = decode_in_turns(one, model, requests_of(prompts, GREEDY), seed, 0.15 * (seed > 2))
        assert [line.ended for line in made] == [line.ended for line in wanted]
        assert all(torch.equal(ours.codes, theirs.codes) for ours, theirs in zip(made, wanted, strict=True))
    if engine == "graph":
        assert not one.fallbacks(model, one.choose(model))
