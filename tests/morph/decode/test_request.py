"""What a request's listeners are told while both engines decode: its frames, and how it ended."""

import numpy as np
import pytest
from qwen3_tts_morph.morph.decode.decoded import REPORT_WIDTH
from qwen3_tts_morph.morph.decode.guard import Guard
from qwen3_tts_morph.morph.decode.request import LineRequest
from qwen3_tts_morph.morph.engine import Engine
from qwen3_tts_morph.morph.options import GenerateOptions

from tests.morph.decoding import prompts_of


@pytest.mark.parametrize("engine", ["eager", "graph"])
def test_every_frame_arrives_in_order_and_then_the_end(load, engine):
    model = load("tiny", "custom_voice")
    heard = [[] for _ in range(3)]
    requests = [
        LineRequest(prompt, Guard(frames, False), seed, heard[seed].append, heard[seed].append)
        for seed, (prompt, frames) in enumerate(zip(prompts_of(model), (12, 1, 30), strict=True))
    ]
    options = GenerateOptions(5, batch_size=2)
    counts: list[int] = []
    decoded = Engine(engine).decode(model, requests, options, counts.append)
    for line, told in zip(decoded, heard, strict=True):
        *codes, ended = told
        assert ended == line.ended
        assert all(one.shape == (REPORT_WIDTH,) and one.dtype == np.int64 for one in codes)
        assert np.array_equal(np.stack(codes)[:, :16], line.codes)
    assert sum(counts) == sum(len(line.codes) for line in decoded)


@pytest.mark.parametrize("engine", ["eager", "graph"])
@pytest.mark.parametrize("listener", ["on_codes", "on_end"])
def test_what_a_listener_raises_ends_the_decoding(load, engine, listener):
    def refuse(_: object) -> None:
        raise InterruptedError

    model, options = load("tiny", "custom_voice"), GenerateOptions(5)
    prompt = prompts_of(model)[0]
    one, seen = Engine(engine), []
    with pytest.raises(InterruptedError):
        one.decode(model, [LineRequest(prompt, Guard(5, False), **{listener: refuse})], options)
    one.decode(model, [LineRequest(prompt, Guard(5, False), on_codes=seen.append)], options)
    assert len(seen) == 5
