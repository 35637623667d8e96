"""One frame over static buffers: against the eager predictor and talker; and it can be captured."""

from dataclasses import replace

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.decode.predictor import Predictor
from qwen3_tts_morph.morph.decode.sampling import filter_logits
from qwen3_tts_morph.morph.decode.talker import Talker
from qwen3_tts_morph.morph.frame.buffers import Buffers, PrefillBatch
from qwen3_tts_morph.morph.frame.noise import gumbel_noise
from qwen3_tts_morph.morph.frame.step import decode_frame, predict, prefill
from qwen3_tts_morph.morph.frame.weights import Weights
from qwen3_tts_morph.morph.options import LoadOptions, Sampling, TokenSampling
from qwen3_tts_morph.morph.voice.prompt import Prompt

from tests.morph.pairwise import each_value
from tests.morph.recorded import Recording

LENGTHS, TRAILING = (9, 4, 1), (2, 5, 1)
GREEDY = Sampling(TokenSampling(do_sample=False), TokenSampling(do_sample=False))
FILTERED = Sampling(
    TokenSampling(top_k=20, top_p=0.8), TokenSampling(temperature=1.1, top_k=0, top_p=0.7), 1.3
)


def prompts_of(model, rows=range(3)) -> list[Prompt]:
    def noise(count: int, seed: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(count, model.width, generator=generator).to(model.dtype)

    return [Prompt(noise(LENGTHS[row], row), noise(TRAILING[row], 9 + row), noise(1, 99), 1) for row in rows]


def started(model, sampling: Sampling, rows=range(3), batch: int | None = None, context: int = 64):
    """Return weights and buffers with some lines prefilled, line ``row`` with seed ``row``."""
    weights, prompts = Weights.of(model), prompts_of(model, rows)
    config, batch = model.config.talker_config, batch or len(prompts)
    buffers = Buffers.allocate(config, weights.talker, weights.predictor, batch, context)
    buffers.put(sampling)
    arrive(weights, buffers, prompts, range(len(prompts)), rows)
    return weights, buffers


def arrive(weights, buffers, prompts, rows, seeds) -> None:
    buffers.put_texts(list(rows), prompts)
    longest = max(len(prompt.embeds) for prompt in prompts)
    arrivals = PrefillBatch.allocate(len(prompts), longest, buffers.state.hidden)
    arrivals.put(list(rows), prompts, list(seeds))
    prefill(weights, buffers, arrivals)


def frames(weights, buffers, count: int, seq_groups: int = 15, window: int = 64) -> torch.Tensor:
    """Return the reports of the next frames, ``[B, count, 17]``."""
    reports = []
    for _ in range(count):
        decode_frame(weights, buffers, seq_groups, window)
        reports.append(buffers.state.report.clone())
    return torch.stack(reports, dim=1)


@pytest.mark.parametrize(
    ("seq_groups", "shape"),
    each_value(
        {str(groups): groups for groups in (1, 3, 5, 14, 15)}, {"tiny": "tiny", "tiny-1.7B": "tiny-1.7B"}
    ),
)
@torch.inference_mode()
def test_groups_1_to_15_are_the_eager_predictors(load, shape, seq_groups):
    model = load(shape, "base")
    for sampling in (GREEDY, FILTERED):
        weights, buffers = started(model, sampling)
        state = buffers.state
        noise = gumbel_noise(state.keys, torch.arange(1, 16).expand(3, -1), buffers.codebook)
        codes = predict(weights, buffers, seq_groups, noise)
        assert torch.equal(codes[:, 0], state.tokens)
        with FixedNoise(noise, sampling.subtalker) as fixed:
            embedding = model.talker.model.codec_embedding(state.tokens[:, None])
            predictor = Predictor(model.talker.code_predictor)
            wanted = predictor.decode_frame(
                state.hidden[:, None], embedding, seq_groups, sampling.subtalker, None
            )
        assert torch.equal(codes[:, 1:], wanted)
        assert fixed.used == 15


class FixedNoise:
    """Makes the eager predictor sample with the given noise during the ``with``."""

    def __init__(self, noise: torch.Tensor, sampling: TokenSampling):
        self.noise, self.sampling, self.used = noise, sampling, 0
        self.patch = pytest.MonkeyPatch()

    def __enter__(self):
        self.patch.setattr("qwen3_tts_morph.morph.decode.predictor.sample_tokens", self.tokens)
        return self

    def __exit__(self, *_: object) -> None:
        self.patch.undo()

    def tokens(self, logits: torch.Tensor, sampling: TokenSampling, _: object) -> torch.Tensor:
        groups = logits.shape[1] if logits.dim() == 3 else 1
        noise = self.noise[:, self.used : self.used + groups].view_as(logits)
        self.used += groups
        scores = logits.float()
        return (filter_logits(scores, sampling) + noise if sampling.do_sample else scores).argmax(-1)


@torch.inference_mode()
def test_states_follow_the_eager_talkers(load):
    """Prefill, then steps: each frame's embeddings plus its text, until the text is used up."""
    model = load("tiny-1.7B", "base")
    weights, buffers = started(model, GREEDY)
    talkers = [Talker(model, prompt) for prompt in prompts_of(model)]
    hidden = [talker.prefill()[0][0] for talker in talkers]
    for _ in range(8):
        assert torch.allclose(buffers.state.hidden, torch.cat(hidden), atol=2e-5)
        decode_frame(weights, buffers, 15, 64)
        codes = buffers.state.report[:, None, :16]
        hidden = [talker.step(own)[0][0] for talker, own in zip(talkers, codes, strict=True)]
    assert buffers.state.positions.tolist() == [length + 8 for length in LENGTHS]
    assert buffers.state.steps.tolist() == [8, 8, 8]


@pytest.mark.parametrize("seq_groups", [15, 5])
@torch.inference_mode()
def test_a_lines_codes_do_not_depend_on_its_row_nor_on_the_other_lines(load, seq_groups):
    model = load("tiny", "base")
    together = frames(*started(model, Sampling()), 12, seq_groups)
    swapped = frames(*started(model, Sampling(), rows=(2, 0), batch=4), 12, seq_groups)
    assert torch.equal(swapped[0], together[2]) and torch.equal(swapped[1], together[0])
    alone = frames(*started(model, Sampling(), rows=(1,)), 12, seq_groups)
    assert torch.equal(alone[0], together[1])
    assert len({tuple(row.flatten().tolist()) for row in together}) == 3


@torch.inference_mode()
def test_arriving_lines_touch_no_other_line_and_decode_as_they_would_alone(load):
    """Rows 2 and 0 get new lines after five frames; row 1 continues bit-equal."""
    model = load("tiny", "base")
    undisturbed = frames(*started(model, FILTERED), 12)
    weights, buffers = started(model, FILTERED)
    before = frames(weights, buffers, 5)
    cache = buffers.cache.keys[:, 1].clone()
    arrive(weights, buffers, prompts_of(model, (0, 2)), (2, 0), (40, 41))
    assert torch.equal(buffers.cache.keys[:, 1], cache)
    assert buffers.state.steps.tolist() == [0, 5, 0]
    after = frames(weights, buffers, 7)
    assert torch.equal(torch.cat((before, after), 1)[1], undisturbed[1])
    for row, line, seed in ((2, 0, 40), (0, 2, 41)):
        alone_weights, alone = started(model, FILTERED, rows=(line,))
        arrive(alone_weights, alone, prompts_of(model, (line,)), (0,), (seed,))
        assert torch.equal(frames(alone_weights, alone, 7)[0], after[row])


@torch.inference_mode()
def test_every_group_and_frame_has_different_noise(load):
    """With flat logits the noise alone decides the code: equal noise would show as equal codes."""
    model = load("tiny", "base")
    weights, buffers = started(model, Sampling(TokenSampling(True, 1.0, 0), TokenSampling(True, 1.0, 0), 1.0))
    kept = weights.heads.clone()
    weights.heads.zero_()
    try:
        codes = frames(weights, buffers, 40)[0, :, 1:16]
    finally:
        weights.heads.copy_(kept)
    assert len({tuple(row) for row in codes.tolist()}) == 40
    assert len({tuple(column) for column in codes.T.tolist()}) == 15
    counts = codes.flatten().bincount(minlength=buffers.codebook).double()
    expected = codes.numel() / buffers.codebook
    assert float(((counts - expected) ** 2 / expected).sum()) < 63 + 6 * 126**0.5


@torch.inference_mode()
def test_a_line_beyond_the_window_disturbs_no_other(load):
    model = load("tiny", "base")
    wanted = frames(*started(model, Sampling()), 12)
    weights, buffers = started(model, Sampling())
    buffers.state.positions[0] = 1000
    buffers.state.steps[0] = 5000
    seen = frames(weights, buffers, 12)
    assert torch.equal(seen[1:], wanted[1:])
    smaller = frames(*started(model, Sampling()), 12, window=24)
    assert torch.equal(smaller, wanted), "a window that covers all positions is enough"


@torch.inference_mode()
def test_a_frame_changes_nothing_but_numbers_in_its_buffers(load):
    model = load("tiny", "base")
    weights, buffers = started(model, Sampling())

    def addresses() -> list[int]:
        state = [value for value in vars(buffers.state).values() if isinstance(value, torch.Tensor)]
        caches = [
            buffers.cache.keys,
            buffers.cache.values,
            buffers.frame_cache.keys,
            buffers.frame_cache.values,
        ]
        return [tensor.data_ptr() for tensor in state + caches]

    before, names = addresses(), sorted(vars(model.talker))
    frames(weights, buffers, 3)
    assert addresses() == before and sorted(vars(model.talker)) == names


@pytest.mark.parametrize("seq_groups", [15, 5, 1])
@torch.inference_mode()
def test_a_recorded_frame_replays_as_it_runs(load, seq_groups):
    """What a captured graph needs: no host sync, and no host number or address that changes between frames."""
    model = load("tiny", "base")
    wanted = frames(*started(model, FILTERED), 10, seq_groups)
    weights, buffers = started(model, FILTERED)
    with Recording() as recording:
        decode_frame(weights, buffers, seq_groups, 64)
    reports = [buffers.state.report.clone()]
    for _ in range(9):
        recording.replay()
        reports.append(buffers.state.report.clone())
    assert torch.equal(torch.stack(reports, dim=1), wanted)


@torch.inference_mode()
def test_a_frame_needs_nothing_from_the_host(checkpoint):
    """On the meta device, which has no data: a read would fail, and so would a tensor created on the CPU."""
    model = load_model(checkpoint("tiny-1.7B", "base"), LoadOptions("fp32", "sdpa"))
    with torch.inference_mode(False):
        model.module.to("meta")
    weights = Weights.of(model)
    buffers = Buffers.allocate(model.config.talker_config, weights.talker, weights.predictor, 2, 64)
    decode_frame(weights, buffers, 5, 64)
    prefill(weights, buffers, PrefillBatch.allocate(2, 8, buffers.state.hidden))


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_number_that_is_not_finite_is_reported_for_its_line_only(checkpoint, dtype):
    model = load_model(checkpoint("tiny", "base"), LoadOptions("fp32", "sdpa"))
    model.module.to(dtype)
    weights, buffers = started(model, GREEDY)
    assert not frames(weights, buffers, 2)[:, :, 16].any()
    buffers.state.hidden[1] = torch.nan
    assert frames(weights, buffers, 2)[:, 1, 16].tolist() == [0, 1, 0]


@torch.inference_mode()
def test_each_line_ends_no_earlier_than_its_own_minimum(load, monkeypatch):
    """EOS is sampled as soon as it is allowed; the next line in a row has its own minimum."""
    model = load("tiny", "base")
    weights, buffers = started(model, GREEDY)
    eos = int(buffers.is_eos.nonzero())

    def sample(scores, *_):
        first_group = scores.shape[-1] > eos
        return scores[:, eos].isfinite() * eos if first_group else scores.argmax(-1)

    monkeypatch.setattr("qwen3_tts_morph.morph.frame.step.sample_static", sample)
    first, second, third = prompts_of(model)
    for minimums in ((5, 2, 3), (2, 6, 2)):
        prompts = [
            replace(one, min_frames=least)
            for one, least in zip((first, second, third), minimums, strict=True)
        ]
        arrive(weights, buffers, prompts, range(3), range(3))
        codes = frames(weights, buffers, 7, seq_groups=1)[:, :, 0]
        assert [row.tolist().index(eos) for row in codes] == list(minimums)


@torch.inference_mode()
def test_a_longer_trailing_text_than_the_context_is_refused(load):
    model = load("tiny", "base")
    with pytest.raises(ValueError, match="trailing text tokens"):
        started(model, GREEDY, rows=(1,), context=5)
