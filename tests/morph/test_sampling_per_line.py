"""Lines of different sampling share a batch, in both engines: each has the codes that it has among lines of its own."""

from dataclasses import replace

import pytest
import torch
from qwen3_tts_morph.morph.graph import engine as graph
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling, TokenSampling
from qwen3_tts_morph.morph.synthesizer import Engine

from tests.morph.decoding import FILTERED, GREEDY, SEEDS, guards_of, line_requests, prompts_of
from tests.morph.recorded import Recordings

WARM = Sampling(TokenSampling(temperature=0.8), TokenSampling(temperature=1.2), 1.1)
SAMPLINGS = (GREEDY, WARM, FILTERED)
WAYS = {
    "eager, S = 15": ("eager", GenerateOptions(15)),
    "graph": ("graph", GenerateOptions(5)),
}


def decode(engine: Engine, model, options, samplings) -> list[torch.Tensor]:
    prompts = prompts_of(model)
    requests = line_requests(prompts, guards_of(prompts, 9), SEEDS)
    lines = [replace(one, sampling=own) for one, own in zip(requests, samplings, strict=True)]
    return [one.codes for one in engine.decode(model, lines, options)]


@pytest.mark.parametrize("way", WAYS)
def test_each_line_has_the_codes_of_its_own_sampling(load, monkeypatch, way):
    """Also in rows that sampled otherwise before, and where frames are replayed rather than run."""
    model, (engine, options) = load("tiny", "custom_voice"), WAYS[way]
    monkeypatch.setattr(graph, "CapturedGraphs", Recordings)
    alike = [decode(Engine(engine), model, options, [one] * 3) for one in SAMPLINGS]
    assert not any(torch.equal(alike[0][row], alike[1][row]) for row in range(3))
    mixed = Engine(engine)
    for first in (0, 2, 0):
        order = [(first + row) % 3 for row in range(3)]
        made = decode(mixed, model, options, [SAMPLINGS[index] for index in order])
        for row, index in enumerate(order):
            assert torch.equal(made[row], alike[index][row])


@pytest.mark.parametrize("engine", ["eager", "graph"])
def test_a_line_without_a_sampling_takes_that_of_the_options(load, engine):
    model = load("tiny", "custom_voice")
    wanted = decode(Engine(engine), model, GenerateOptions(5), [FILTERED] * 3)
    options = GenerateOptions(5, FILTERED)
    made = decode(Engine(engine), model, options, [None, WARM, None])
    assert all(torch.equal(made[row], wanted[row]) for row in (0, 2))
    assert not torch.equal(made[1], wanted[1])
