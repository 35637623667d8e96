"""Numbers that are not finite are noticed in every engine and precision, before anything is spoken."""

from contextlib import suppress
from dataclasses import replace
from functools import reduce

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.decode.rows import FLAG, LineRequest, RowPlan
from qwen3_tts_morph.morph.decode.sampling import check_finite
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.synthesizer import Engine, Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice

from lab.streams import render_lines
from tests.morph.decoding import (
    GREEDY,
    SEEDS,
    assert_equal,
    decode_coming,
    guards_of,
    line_requests,
    prompts_of,
)
from tests.morph.pairwise import pairwise, thinned

# One weight each: of layers whose outputs feed others, and of heads, which only one code depends on.
WEIGHTS = [
    "model.layers.0.mlp.down_proj",
    "code_predictor.model.layers.0.self_attn.o_proj",
    "code_predictor.lm_head.0",
    "code_predictor.lm_head.11",
    "codec_head",
]
SENTENCE = r"not finite \(NaN or infinite\) in {}: its weights or the voice are damaged"


RUNS = {"-".join(run): run for run in (("eager", "fp32"), ("graph", "fp32"), ("graph", "bf16"), ("eager", "bf16"))}


@pytest.fixture(params=RUNS.values(), ids=RUNS)
def synthesizer(checkpoint, request):
    """Return a separate model, whose weights may be damaged."""
    engine, precision = request.param
    made = load_model(checkpoint("tiny", "custom_voice"), LoadOptions(precision, "sdpa"))
    return Synthesizer(made, Engine(engine))


@pytest.fixture
def precision(synthesizer):
    return str(synthesizer.model.dtype).replace("torch.float32", "fp32").replace("torch.bfloat16", "bf16")


def decode(synthesizer, sampling=GREEDY, seq_groups=5, on_frame=None):
    prompts = prompts_of(synthesizer.model)
    return synthesizer.engine.decode(
        synthesizer.model,
        line_requests(prompts, guards_of(prompts, 6), SEEDS),
        GenerateOptions(seq_groups, sampling, 4),
        on_frame,
    )


def weight_of(model, path: str) -> torch.Tensor:
    return reduce(getattr, path.split("."), model.talker).weight.data


@pytest.mark.parametrize(
    ("synthesizer", "path", "value"),
    thinned(pairwise(RUNS, {path: path for path in WEIGHTS}, {"NaN": torch.nan, "inf": torch.inf}), 6),
    indirect=["synthesizer"],
)
def test_one_damaged_weight_is_noticed_within_a_frame(synthesizer, precision, path, value):
    wanted, weight, frames = decode(synthesizer), weight_of(synthesizer.model, path), []
    kept = weight.clone()
    for sampling in (GREEDY, Sampling()):
        weight[3] = value  # a complete row: one infinite weight alone may give -inf, a token that is never sampled
        with pytest.raises(ValueError, match=SENTENCE.format(precision)):
            decode(synthesizer, sampling, on_frame=frames.append)
        assert frames == []
        weight.copy_(kept)
        assert_equal(decode(synthesizer), wanted)


def broken(request: LineRequest, at: int | None) -> LineRequest:
    """Return a request whose voice is NaN, or whose text is from frame ``at`` on."""
    prompt = request.prompt
    if at is None:
        prompt = replace(prompt, inputs=prompt.embeds * torch.nan)
    else:
        rows = torch.cat((prompt.text_rows, prompt.pad.expand(at, -1)))[:at]
        prompt = replace(prompt, trailing=torch.cat((rows, prompt.pad * torch.nan)))
    return replace(request, prompt=prompt)


WAYS = {
    "eager": ("eager", GenerateOptions(5, batch_size=4)),
    "eager, S = 15": ("eager", GenerateOptions(15, batch_size=4)),
    "graph": ("graph", GenerateOptions(5, batch_size=4)),
}


@pytest.mark.parametrize("at", [None, 2], ids=["from the first frame", "later"])
@pytest.mark.parametrize("way", WAYS)
def test_a_line_that_is_not_finite_ends_alone(load, way, at):
    """The others have the codes that they have without it, and so has the line that gets its row."""
    model, (engine, options) = load("tiny", "custom_voice"), WAYS[way]
    prompts = prompts_of(model, rows=(0, 1, 2, 2))
    run = Engine(engine)

    def decode(change=lambda request: request):
        requests = line_requests(prompts, guards_of(prompts, 9), [*SEEDS, 14])
        requests[2] = change(requests[2])
        plan = RowPlan.of_lines(requests, options.batch_size)
        return decode_coming(run.open_rows(model, options, plan), model, requests)

    wanted = decode()
    made = decode(lambda request: broken(request, at))
    assert_equal([made[row] for row in (0, 1, 3)], [wanted[row] for row in (0, 1, 3)])
    assert made[2].ended == "broken"
    frames = len(made[2].codes)  # the graph engine reads a frame with the beginning of the next one
    assert frames in ((0,) if at is None else (at, at + 1))
    assert torch.equal(made[2].codes, wanted[2].codes[:frames])
    assert_equal(decode(), wanted)


def test_a_broken_line_that_leaves_unread_breaks_no_other(load):
    """Its reader has left before its first frame, or the device has failed: the row's next line is well."""
    model, options = load("tiny", "custom_voice"), GenerateOptions(5, batch_size=1)
    first, second = line_requests(prompts_of(model, rows=(2, 0)))
    run, plan = Engine("graph"), RowPlan.of_lines([first], 1)

    def speaks(rows) -> bool:
        rows.admit([second])
        rows.step(())
        return not rows.read().report[:, FLAG].any()

    with run.open_rows(model, options, plan) as rows:
        rows.release(*rows.admit([broken(first, None)]))
        assert speaks(rows)
    with suppress(OSError), run.open_rows(model, options, plan) as rows:
        rows.admit([broken(first, None)])
        raise OSError("the device has failed")
    with run.open_rows(model, options, plan) as rows:
        assert speaks(rows)


def test_a_broken_line_ends_the_decoding_of_given_lines(load):
    model = load("tiny", "custom_voice")
    prompts = prompts_of(model)
    for engine in (Engine("eager"), Engine("graph")):
        requests = line_requests(prompts, guards_of(prompts, 9), SEEDS)
        lines = [*requests[:2], broken(requests[2], None)]
        with pytest.raises(ValueError, match=SENTENCE.format("fp32")):
            engine.decode(model, lines, GenerateOptions(5))


def test_samples_that_are_not_finite_are_never_returned(synthesizer):
    # Not a query's weight: with NaN scores, torch's attention on a CPU can return finite numbers.
    weight = synthesizer.model.codec.decoder.get_parameter("pre_transformer.layers.0.mlp.down_proj.weight")
    weight.data.fill_(torch.nan)
    line = Line("One.", preset_voice(synthesizer.model, "ryan"))
    with pytest.raises(ValueError, match="not finite"):
        render_lines(synthesizer, [line], GenerateOptions(5, Sampling(max_new_tokens=5)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("index", [0, 1, 63, 64, 2047])
def test_nan_is_found_at_any_index_and_suppressed_tokens_are_ignored(dtype, index):
    logits = torch.randn(3, 2, 2048).to(dtype)
    logits[:, :, 1::2] = -torch.inf
    check_finite(logits)
    for value in (torch.nan, torch.inf):
        logits[1, 1, index] = value
        with pytest.raises(ValueError, match=r"overflow in fp16|not finite"):
            check_finite(logits)
