"""The eager engine's loop: lines, their ends, progress, and cancelling, after which nothing is left."""

from contextlib import contextmanager
from dataclasses import replace
from itertools import count

import pytest
import torch
from qwen3_tts_morph.morph.decode import eager
from qwen3_tts_morph.morph.decode.eager import Experiment, FirstGroup, choose_kernels
from qwen3_tts_morph.morph.decode.predictor import Predictor
from qwen3_tts_morph.morph.decode.rows import Guard, LineRequest, RowPlan
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling, TokenSampling
from qwen3_tts_morph.morph.voice.create import preset_voice
from qwen3_tts_morph.morph.voice.prompt import PromptBuilder
from transformers import (
    MinNewTokensLengthLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from tests.morph.decoding import GREEDY, decode_coming, decode_eager, line_requests

TEXTS = ["Hello there, how are you?", "No.", "A longer line that has more to say than the others."]
SEEDS = [11, 12, 13]


def decode(model, rows, frames: int = 30, seq_groups: int = 5, on_frame=None, guards=None):
    voice = preset_voice(model, "ryan")
    prompts = [PromptBuilder(model).build(TEXTS[row], voice) for row in rows]
    guards = guards or [Guard(frames, detect_loops=False) for _ in rows]
    seeds = [SEEDS[row] for row in rows]
    return decode_eager(model, line_requests(prompts, guards, seeds), GenerateOptions(seq_groups, Sampling()), on_frame)


def test_another_seed_gives_other_codes(load) -> None:
    model = load("tiny", "custom_voice")
    voice = preset_voice(model, "ryan")
    prompt = PromptBuilder(model).build(TEXTS[0], voice)
    runs = [
        decode_eager(model, line_requests([prompt], [Guard(10, False)], [seed]), GenerateOptions(5, Sampling()))
        for seed in (1, 1, 2)
    ]
    assert torch.equal(runs[0][0].codes, runs[1][0].codes)
    assert not torch.equal(runs[0][0].codes, runs[2][0].codes)


def test_lines_end_by_eos_and_by_cap_and_keep_their_frames(load) -> None:
    model = load("tiny", "custom_voice")
    ends = {one.ended: one for one in decode(model, [0, 1, 2], frames=30)}
    assert set(ends) <= {"eos", "cap"} and "cap" in ends
    assert len(ends["cap"].codes) == 30
    free = decode(model, [0, 1, 2], frames=2000)
    assert {one.ended for one in free} == {"eos"}
    eos = model.config.talker_config.codec_eos_token_id
    for one in free:
        assert 2 <= len(one.codes) < 2000, "no EOS among the first two tokens"
        assert not (one.codes[:, 0] == eos).any()
        assert one.codes.max() < 64


def test_a_list_is_decoded_line_by_line_and_streams_take_turns(load) -> None:
    model = load("tiny", "custom_voice")
    prompt = PromptBuilder(model).build(TEXTS[2], preset_voice(model, "ryan"))
    requests = [LineRequest(prompt, Guard(3, False)) for _ in range(2)]
    for late, turns in ((False, [1, 1, 1, 1, 1, 1]), (True, [2, 2, 2])):
        counted: list[int] = []
        opened = eager.open_rows(model, GenerateOptions(5, Sampling()), RowPlan(2, 2, late=late))
        decode_coming(opened, model, requests, on_frame=counted.append)
        assert counted == turns


def test_a_cancel_ends_within_one_frame_and_leaves_the_model_usable(load) -> None:
    model = load("tiny", "custom_voice")
    before = decode(model, [0])[0].codes
    frames: list[int] = []

    def cancel(lines: int) -> None:
        frames.append(lines)
        if len(frames) == 4:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        decode(model, [0, 2], frames=500, on_frame=cancel)
    assert len(frames) == 4
    assert torch.equal(decode(model, [0])[0].codes, before)


@contextmanager
def talker_says(model, logits_at):
    """Replace group 0's logits by ``logits_at(step)`` ``[V]`` for every line."""
    steps = count()

    def replace(_module, _inputs, output):
        return logits_at(next(steps)).expand(output.shape)

    handle = model.talker.codec_head.register_forward_hook(replace)
    try:
        yield
    finally:
        handle.remove()


def one_likely(model, token: int) -> torch.Tensor:
    logits = torch.zeros(model.config.talker_config.vocab_size)
    logits[token] = 100.0
    return logits


def test_no_line_ends_within_its_first_two_tokens(load) -> None:
    model = load("tiny", "custom_voice")
    eos = model.config.talker_config.codec_eos_token_id
    with talker_says(model, lambda step: one_likely(model, eos)):
        decoded = decode(model, [0, 1])
    assert [(one.ended, len(one.codes)) for one in decoded] == [("eos", 2), ("eos", 2)]
    with talker_says(model, lambda step: one_likely(model, eos if step == 4 else 9)):
        line = decode(model, [0])[0]
    assert line.ended == "eos"
    assert line.codes[:, 0].tolist() == [9] * 4


def test_each_line_ends_no_earlier_than_its_own_minimum(load) -> None:
    model = load("tiny", "custom_voice")
    eos = model.config.talker_config.codec_eos_token_id
    plain = PromptBuilder(model).build(TEXTS[0], preset_voice(model, "ryan"))
    prompts = [plain, replace(plain, min_frames=7), replace(plain, min_frames=3)]
    guards = [Guard(20, False) for _ in prompts]
    with talker_says(model, lambda step: one_likely(model, eos)):
        decoded = decode_eager(
            model,
            line_requests(prompts, guards, SEEDS),
            GenerateOptions(1, Sampling()),
        )
    assert [(one.ended, len(one.codes)) for one in decoded] == [("eos", 2), ("eos", 7), ("eos", 3)]


def test_special_codes_are_never_sampled(load) -> None:
    """The last 1024 codes of the vocabulary except EOS, however probable they are."""
    model = load("tiny", "custom_voice")
    vocab = model.config.talker_config.vocab_size
    logits = torch.zeros(vocab)
    logits[-1024:] = 50.0
    logits[model.config.talker_config.codec_eos_token_id] = -50.0
    with talker_says(model, lambda step: logits):
        line = decode(model, [0], frames=40)[0]
    assert line.ended == "cap"
    assert line.codes.max() < vocab - 1024


@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(TokenSampling(temperature=0.7, top_k=9, top_p=0.8), repetition_penalty=1.7)],
    ids=["default", "filtered"],
)
def test_group_0_is_sampled_as_by_transformers_processors_in_their_order(load, sampling):
    model = load("tiny", "custom_voice")
    config = model.config.talker_config
    eos, vocab = config.codec_eos_token_id, config.vocab_size
    special = [token for token in range(vocab - 1024, vocab) if token != eos]
    processors = [
        RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty),
        MinNewTokensLengthLogitsProcessor(0, 2, eos),
        SuppressTokensLogitsProcessor(special),
        TemperatureLogitsWarper(sampling.talker.temperature),
        TopKLogitsWarper(sampling.talker.top_k),
        *([TopPLogitsWarper(sampling.talker.top_p)] if sampling.talker.top_p < 1 else []),
    ]
    generator = torch.Generator().manual_seed(0)
    first = FirstGroup(model, 2, sampling, torch.Generator().manual_seed(1))
    stream = torch.Generator().manual_seed(1)
    ids = torch.zeros(1, 0, dtype=torch.long)
    for _ in range(40):
        logits = 2 * torch.randn(1, vocab, generator=generator).to(torch.bfloat16)
        logits[:, vocab - 1024 :] += 4
        scores = logits.float()
        for processor in processors:
            scores = processor(ids, scores)
        wanted = torch.multinomial(scores.softmax(-1), 1, generator=stream)
        assert torch.equal(first.sample(logits), wanted[:, 0])
        ids = torch.cat((ids, wanted), dim=1)


@torch.inference_mode()
def test_an_observer_gets_the_states_that_each_frame_was_made_from(load):
    model = load("tiny", "custom_voice")
    prompt = PromptBuilder(model).build(TEXTS[0], preset_voice(model, "ryan"))
    seen = []
    [line] = decode_eager(
        model,
        line_requests([prompt], [Guard(6)]),
        GenerateOptions(15, GREEDY),
        experiment=Experiment(observe=lambda *two: seen.append(two)),
    )
    assert torch.equal(torch.cat([codes for _, codes in seen]), line.codes)
    predictor = Predictor(model.talker.code_predictor)
    for hidden, codes in seen:
        embedding = model.talker.model.codec_embedding(codes[:, :1])
        again = predictor.decode_frame(hidden, embedding, 15, GREEDY.subtalker, None)
        assert torch.equal(again, codes[:, 1:])


@pytest.mark.parametrize(("seq_groups", "cudnn"), [(15, True), (14, False)])
def test_cudnn_attention_is_excluded_only_below_15_groups(seq_groups, cudnn):
    assert torch.backends.cuda.cudnn_sdp_enabled()
    with choose_kernels(seq_groups):
        assert torch.backends.cuda.cudnn_sdp_enabled() is cudnn
        assert torch.backends.cuda.math_sdp_enabled()
    assert torch.backends.cuda.cudnn_sdp_enabled()
