"""Numbers that are not finite are noticed in every engine and precision, before anything is spoken."""

from __future__ import annotations

from functools import reduce

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.decode.sampling import check_finite
from qwen3_tts_morph.morph.engine import Engine
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling
from qwen3_tts_morph.morph.render.lines import Line, render_lines
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice

from tests.morph.decoding import GREEDY, SEEDS, assert_equal, guards_of, line_requests, prompts_of
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


RUNS = {
    "-".join(run): run for run in (("eager", "fp32"), ("graph", "fp32"), ("graph", "bf16"), ("eager", "bf16"))
}


@pytest.fixture(params=RUNS.values(), ids=RUNS)
def synthesizer(checkpoint, request):
    """Return a separate model, whose weights may be damaged."""
    engine, precision = request.param
    made = load_model(checkpoint("tiny", "custom_voice"), LoadOptions(precision, "sdpa"))
    return Synthesizer(made, Engine(engine))


@pytest.fixture
def precision(synthesizer):
    return str(synthesizer.model.dtype).replace("torch.float32", "fp32").replace("torch.bfloat16", "bf16")


def decode(synthesizer, sampling=GREEDY, seq_groups=5, on_frame=None, decoding="crossbar"):
    prompts = prompts_of(synthesizer.model)
    return synthesizer.engine.decode(
        synthesizer.model,
        line_requests(prompts, guards_of(prompts, 6), SEEDS),
        GenerateOptions(seq_groups, sampling, 4, decoding=decoding),
        on_frame,
    )


def weight_of(model, path: str) -> torch.Tensor:
    return reduce(getattr, path.split("."), model.talker).weight.data


@pytest.mark.parametrize(
    ("synthesizer", "path", "value"),
    thinned(pairwise(RUNS, {path: path for path in WEIGHTS}, {"NaN": torch.nan, "inf": torch.inf}), 2),
    indirect=["synthesizer"],
)
def test_one_damaged_weight_is_noticed_within_a_frame(synthesizer, precision, path, value):
    wanted, weight, frames = decode(synthesizer), weight_of(synthesizer.model, path), []
    kept = weight.clone()
    for sampling in (GREEDY, Sampling()):
        weight[3] = (
            value  # a complete row: one infinite weight alone may give -inf, a token that is never sampled
        )
        with pytest.raises(ValueError, match=SENTENCE.format(precision)):
            decode(synthesizer, sampling, on_frame=frames.append)
        assert frames == []
        weight.copy_(kept)
        assert_equal(decode(synthesizer), wanted)


def test_lossless_decoding_notices_it_too(synthesizer, precision):
    if synthesizer.engine.choice == "graph":
        synthesizer = Synthesizer(synthesizer.model, Engine("auto"))
    weight_of(synthesizer.model, WEIGHTS[3])[3] = torch.nan
    with pytest.raises(ValueError, match=SENTENCE.format(precision)):
        decode(synthesizer, Sampling(), 1, decoding="lossless")


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
