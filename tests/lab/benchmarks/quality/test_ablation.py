"""The paper's rows: the exact ones equal exact decoding, the others do what their names say."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.decode import eager
from qwen3_tts_morph.morph.decode.decoded import Decoded
from qwen3_tts_morph.morph.decode.guard import Guard
from qwen3_tts_morph.morph.decode.predictor import Predictor
from qwen3_tts_morph.morph.decode.sampling import line_streams
from qwen3_tts_morph.morph.model.crossbar import crossbar
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import GenerateOptions, TokenSampling
from qwen3_tts_morph.morph.study.sweep import embed_inputs
from qwen3_tts_morph.morph.voice.create import clone_voice
from qwen3_tts_morph.morph.voice.prompt import Prompt, build_prompt

from lab.benchmarks.ablation.__main__ import TABLE
from lab.benchmarks.quality import paper_predictors as predictors
from lab.benchmarks.quality.paper_predictors import Chunked, Compiled, Refined, TightLoop
from lab.benchmarks.quality.paper_strategies import chunk_distributions, smooth
from lab.benchmarks.quality.registry import STRATEGIES
from lab.benchmarks.quality.strategies import select
from lab.benchmarks.quality.upstream import cut, start_upstream
from tests.morph.decoding import line_requests, one_stream

GREEDY = TokenSampling(do_sample=False)
TEXTS = ("Hello there.", "This is a longer line, is it not?")


@pytest.fixture(scope="module")
def prompts(model: Model) -> list[Prompt]:
    tone = (0.3 * np.sin(np.arange(48000) / 20)).astype(np.float32)
    voice = clone_voice(model, tone, 24000)
    return [build_prompt(model, text, voice) for text in TEXTS]


def guards(model: Model) -> list[Guard]:
    return [Guard(model.sampling.max_frames) for _ in TEXTS]


@pytest.fixture(scope="module")
def frame(model: Model) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the talker's state and group 0's embedding, ``[3, 1, H]`` each, for three lines."""
    stream = torch.Generator().manual_seed(0)
    tokens = torch.tensor([[3], [9], [27]])
    return torch.randn(3, 1, model.width, generator=stream), model.talker.get_input_embeddings()(tokens)


def test_upstream_decodes_the_same_lines_as_fifteen_groups(model: Model, prompts: list[Prompt]) -> None:
    decode = start_upstream(model, 15)
    theirs = decode(prompts, guards(model), model.sampling, [11, 12], None)
    torch.manual_seed(11)
    ours = eager.decode(
        model,
        line_requests(prompts, guards(model), range(len(prompts))),
        GenerateOptions(15, model.sampling),
        experiment=one_stream(model),
    )
    for one, other in zip(theirs, ours, strict=True):
        assert one.ended == other.ended and torch.equal(one.codes, other.codes)


def test_upstreams_lines_are_cut_where_they_end() -> None:
    codes = torch.arange(5)[:, None].expand(5, 16)
    ended: Decoded = cut(codes, Guard(9), eos=3)
    assert (ended.ended, len(ended.codes)) == ("eos", 3)
    capped = cut(codes, Guard(2), eos=99)
    assert (capped.ended, len(capped.codes)) == ("cap", 2)


@pytest.mark.parametrize("sampling", [GREEDY, TokenSampling()])
def test_the_tight_loop_is_exact(
    model: Model, frame: tuple[torch.Tensor, torch.Tensor], sampling: TokenSampling
) -> None:
    module = model.talker.code_predictor
    ours = Predictor(module).decode_frame(*frame, 15, sampling, line_streams([1, 2, 3], model.device))
    loop = TightLoop(module).decode_frame(*frame, 15, sampling, line_streams([1, 2, 3], model.device))
    assert torch.equal(ours, loop)


@pytest.mark.slow
@pytest.mark.skipif(
    not any(map(shutil.which, ("c++", "g++", "clang++", "cl"))), reason="torch.compile needs a C++ compiler"
)
def test_the_compiled_predictor_is_exact(model: Model, frame: tuple[torch.Tensor, torch.Tensor]) -> None:
    compiled = Compiled(model)
    exact = Predictor(model.talker.code_predictor).decode_frame(*frame, 15, GREEDY, None)
    with torch.inference_mode():
        assert torch.equal(compiled.decode_frame(*frame, 15, GREEDY, None), exact)


def test_a_chunk_is_predicted_from_the_state_before_it(
    model: Model, frame: tuple[torch.Tensor, torch.Tensor]
) -> None:
    """Greedy codes of the five passes are the most probable ones of one causal pass over the finished frame."""
    hidden, embedding = frame
    chunked = Chunked(model)
    rest = chunked.decode_frame(hidden, embedding, 5, GREEDY, None)
    codes = torch.cat((torch.tensor([[3], [9], [27]]), rest), dim=1)
    inputs = embed_inputs(model, codes)
    states = chunked.teacher_force(hidden, inputs)
    likeliest = chunk_distributions(model, states, inputs, 5, GREEDY).argmax(-1)
    assert torch.equal(likeliest, rest)
    exact = Predictor(model.talker.code_predictor).decode_frame(hidden, embedding, 15, GREEDY, None)
    assert torch.equal(rest[:, 0], exact[:, 0]) and not torch.equal(rest, exact)


def test_refinement_keeps_to_the_drafts_candidates(
    model: Model, frame: tuple[torch.Tensor, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predictors, "CANDIDATES", 4)
    refined = Refined(model)
    passes = []
    run = refined.run_masked
    monkeypatch.setattr(refined, "run_masked", lambda *args: passes.append(args[-1]) or run(*args))
    codes = refined.decode_frame(*frame, 1, TokenSampling(), line_streams([1, 2, 3], model.device))
    state = refined._run(torch.cat(frame, dim=1), 0, None)[:, -1]
    candidates = crossbar(refined.heads, state).topk(4).indices
    assert (codes[..., None] == candidates).any(-1).all()
    assert len(passes) == 5 and all(visible.all() for visible in passes), "five rounds, none causal"


def test_masks_need_an_attention_that_supports_them(model: Model) -> None:
    class Flash:
        talker, attention = model.talker, "flash_attention_2"

    with pytest.raises(ValueError, match="sdpa"):
        Refined(Flash())  # type: ignore[arg-type]


def test_the_filter_removes_high_frequencies_and_sets_the_peak() -> None:
    time = np.arange(24000) / 24000
    low, high = np.sin(2 * np.pi * 500 * time), np.sin(2 * np.pi * 11900 * time)
    filtered = smooth((0.1 * low + 0.1 * high).astype(np.float32), 24000)
    spectrum = np.abs(np.fft.rfft(filtered))
    assert np.abs(filtered).max() == pytest.approx(0.707, abs=1e-3)
    assert spectrum[11900] < 0.02 * spectrum[500]


def test_the_table_has_the_papers_rows_and_two_more_questions() -> None:
    keys = [condition.key for condition in select(TABLE, [1], STRATEGIES)]
    assert keys == [
        "upstream-15", "tight-loop-15", "crossbar-15", "compiled-15", "refined-01", "chunked-05", "crossbar-07",
        "filtered-05", "crossbar-05", "crossbar-04", "filtered-15",
    ]  # fmt: skip
