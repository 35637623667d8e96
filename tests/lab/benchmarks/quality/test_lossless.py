"""Lossless decoding has the distribution of exact decoding: by enumerating outcomes, and by sampling many frames."""

from __future__ import annotations

import pytest
import torch
from qwen3_tts_morph.morph.decode import predictor as predictor_module
from qwen3_tts_morph.morph.decode.eager import Experiment, decode
from qwen3_tts_morph.morph.decode.predictor import Predictor
from qwen3_tts_morph.morph.decode.sampling import line_streams
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling, TokenSampling

from lab.benchmarks.quality import lossless as speculative
from lab.benchmarks.quality import verdict
from lab.benchmarks.quality.lossless import (
    LosslessPredictor,
    Reached,
    RewindingCache,
    Tally,
    crossbar_drafter,
    tails_drafter,
)
from tests.lab.benchmarks.quality.small_predictor import Small, exact_joint, make_small, number_of
from tests.morph.decoding import (
    GREEDY,
    SEEDS,
    assert_equal,
    eager_lines,
    guards_of,
    line_requests,
    prompts_of,
)
from tests.morph.pairwise import pairwise, thinned

# The laboratory alone decodes so: no user waits for it.
pytestmark = pytest.mark.slow

PLAIN = TokenSampling(temperature=1.0, top_k=0)
FILTERED = TokenSampling(temperature=0.8, top_k=3, top_p=0.9)


class Outcomes:
    """Enumerates every outcome of decoding one line: where it would sample, the next untried choice is taken.

    Its methods replace the functions that sample. ``weight`` is the probability of the current outcome. Groups with
    candidates are decided by ``rank`` and the candidates' verdicts, so ``pick`` and ``accept`` skip them.
    """

    def __init__(self, counts: tuple[int, ...]) -> None:
        self.counts = counts
        self.found: list[bool] = []  # for the current pass: whether each group with candidates keeps one
        self.choices: list[tuple[int, int]] = []  # (index of the choice taken, number of choices)
        self.depth, self.weight = 0, 1.0

    def choose(self, weights: list[float]) -> int:
        possible = [index for index, weight in enumerate(weights) if weight > 0]
        if self.depth == len(self.choices):
            self.choices.append((0, len(possible)))
        taken = possible[self.choices[self.depth][0]]
        self.weight *= weights[taken] / sum(weights)
        self.depth += 1
        return taken

    def advance(self) -> bool:
        """Go to the next outcome; return False after the last."""
        while self.choices and self.choices[-1][0] + 1 == self.choices[-1][1]:
            self.choices.pop()
        if not self.choices:
            return False
        self.choices[-1] = (self.choices[-1][0] + 1, self.choices[-1][1])
        self.depth, self.weight = 0, 1.0
        return True

    def pick(self, weights: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        if weights.dim() == 2:
            return torch.tensor([self.choose(weights[0].double().tolist())])
        self.found, after = [], weights[0, len(self.counts) :].double().tolist()
        settled = [0] * min(len(self.counts), weights.shape[1])
        return torch.tensor([settled + [self.choose(row) for row in after]])

    def sample_tokens(self, logits: torch.Tensor, sampling: TokenSampling, _: object) -> torch.Tensor:
        return self.pick(speculative.distribution(logits, sampling), logits)

    def rank(self, weights: torch.Tensor, _: torch.Tensor, count: int) -> torch.Tensor:
        """Choose tokens without replacement; if none is left, return any."""
        [left], ranked = weights.double().tolist(), []
        for _ in range(count):
            ranked.append(self.choose(left) if any(left) else 0)
            left[ranked[-1]] = 0.0
        return torch.tensor([ranked])

    def accept(self, exact, drafted, tokens, _) -> torch.Tensor:
        if len(self.found) < len(self.counts):  # a group's candidates
            kept: list[bool] = []
            for index in range(tokens.shape[1]):
                kept.append(
                    not any(kept) and self.judge(exact[0, index], drafted[0, index], tokens[0, index])
                )
            self.found.append(any(kept))
            return torch.tensor([kept])
        verdicts = self.found[: tokens.shape[1]]
        for group in range(len(verdicts), tokens.shape[1]):
            verdicts.append(
                all(verdicts) and self.judge(exact[0, group], drafted[0, group], tokens[0, group])
            )
        return torch.tensor([verdicts])

    def judge(self, exact: torch.Tensor, drafted: torch.Tensor, token: torch.Tensor) -> bool:
        wanted, offered = float(exact[token].double()), float(drafted[token].double())
        probability = min(1.0, wanted / offered) if offered else 0.0
        return self.choose([1 - probability, probability]) == 1


@torch.inference_mode()
def count_all(
    small: Small,
    sampling: TokenSampling,
    seq_groups: int,
    candidates: tuple[int, ...],
    monkeypatch,
    wrong: bool = False,
) -> torch.Tensor:
    """Return the probability of every frame of the lossless decoder, by enumerating all outcomes."""
    decoder, ways = LosslessPredictor(small.module, candidates=candidates), Outcomes(candidates)
    groups, codes = decoder.heads.shape[:2]
    joint = torch.zeros(codes**groups, dtype=torch.float64)
    with monkeypatch.context() as patch:
        patch.setattr(predictor_module, "sample_tokens", ways.sample_tokens)
        for name in ("pick", "rank", "accept"):
            patch.setattr(verdict, name, getattr(ways, name))
        if wrong:
            patch.setattr(verdict, "residual", lambda exact, drafted: exact)
        while True:
            frame = decoder.decode_frame(small.hidden, small.embedding, seq_groups, sampling, None)
            joint[number_of(frame, codes)] += ways.weight
            if not ways.advance():
                return joint


# By default the filtered sampling, which covers the plain one's rule, where many outcomes are enumerated.
SMALL = [(3, 4, (1,)), (3, 3, (2,)), (2, 4, (3,)), (4, 2, (2,))]
LARGE = [(5, 2, (1,)), (4, 2, (1, 2)), (4, 2, (2, 1, 2))]
OUTCOMES = [
    *(
        (*case, seq_groups, sampling)
        for case in SMALL
        for seq_groups in (1, 2)
        for sampling in (PLAIN, FILTERED)
    ),
    (*LARGE[0], 1, FILTERED),
    (*LARGE[0], 2, PLAIN),
]
LENGTHY = [
    *(
        (*case, seq_groups, sampling)
        for case in LARGE[1:]
        for seq_groups, sampling in ((1, FILTERED), (2, PLAIN))
    ),
    *((*case, 1, PLAIN) for case in LARGE),
    *((*case, 2, FILTERED) for case in LARGE),
    *((3, 3, (2, 2), seq_groups, sampling) for seq_groups in (1, 2) for sampling in (PLAIN, FILTERED)),
]


@pytest.mark.parametrize(
    ("groups", "codes", "candidates", "seq_groups", "sampling"),
    [*thinned(OUTCOMES, 3), *(pytest.param(*case, marks=pytest.mark.slow) for case in LENGTHY)],
    ids=lambda value: {PLAIN: "plain", FILTERED: "filtered"}.get(value, str(value)),
)
def test_all_outcomes_together_have_the_exact_distribution(
    monkeypatch, groups, codes, candidates, seq_groups, sampling
):
    small = make_small(groups, codes)
    joint, exact = (
        count_all(small, sampling, seq_groups, candidates, monkeypatch),
        exact_joint(small, sampling),
    )
    assert torch.allclose(joint, exact, rtol=0, atol=1e-5)
    assert exact.max() < 0.9 and (exact > 1e-3).sum() > 5, "too sharp for a meaningful test"


@pytest.mark.parametrize("candidates", [(1,), pytest.param((2,), marks=pytest.mark.slow)])
def test_enumeration_detects_a_wrong_correction(monkeypatch, candidates):
    """Power of the test: a rejected token is sampled from p instead of max(p - q, 0)."""
    small = make_small(3, 3)
    joint = count_all(small, PLAIN, 1, candidates, monkeypatch, wrong=True)
    assert joint.sum() == pytest.approx(1)
    assert 0.5 * (joint - exact_joint(small, PLAIN)).abs().sum() > 0.01


def chi_square(counts: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the p-value of counts against expected ones; cells that expect fewer than 5 are merged."""
    rare = expected < 5
    cells = torch.stack((counts, expected))
    cells = torch.cat((cells[:, ~rare], cells[:, rare].sum(1, keepdim=True)), dim=1)
    cells = cells[:, cells[1] > 0]
    statistic = ((cells[0] - cells[1]) ** 2 / cells[1]).sum()
    half = torch.tensor((cells.shape[1] - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(half, statistic / 2))


@torch.inference_mode()
def p_values_of_two_inputs(
    lines: int,
    sampling: TokenSampling,
    seq_groups: int,
    per_line: bool,
    candidates: tuple[int, ...],
    seed: int = 0,
) -> list[float]:
    """Return the p-values of the frames of two inputs that alternate in one batch."""
    small = make_small(4, 3)
    other = Small(small.module, small.hidden.flip(-1), -small.embedding)
    turns = (lines // 2, 1, 1)
    hidden = torch.cat((small.hidden, other.hidden)).repeat(turns)
    embedding = torch.cat((small.embedding, other.embedding)).repeat(turns)
    seeds = range(seed * lines, (seed + 1) * lines)
    streams = line_streams(seeds, hidden.device) if per_line else torch.Generator().manual_seed(seed)
    decoder = LosslessPredictor(small.module, candidates=candidates)
    frames = decoder.decode_frame(hidden, embedding, seq_groups, sampling, streams)
    result = []
    for kind, inputs in enumerate((small, other)):
        counts = torch.bincount(number_of(frames[kind::2], 3), minlength=81).double()
        result.append(chi_square(counts, exact_joint(inputs, sampling) * (lines // 2)))
    return result


@pytest.mark.parametrize(
    ("seq_groups", "seeding", "candidates", "sampling"),
    thinned(
        pairwise(
            {"1": 1, "3": 3},
            {"one stream": (40000, False), "a stream per line": (4000, True)},
            {"1 candidate": (1,), "2 candidates": (2,), "2, 2 candidates": (2, 2)},
            {"plain": PLAIN, "filtered": FILTERED},
        ),
        2,
    ),
)
def test_two_inputs_in_one_batch_each_have_the_exact_distribution(seq_groups, seeding, candidates, sampling):
    lines, per_line = seeding
    assert min(p_values_of_two_inputs(lines, sampling, seq_groups, per_line, candidates)) > 0.001


@pytest.mark.parametrize("wrong", ["correction", "always accept", "draft again", "with replacement"])
def test_the_p_values_detect_wrong_rules(monkeypatch, wrong):
    if wrong == "correction":
        monkeypatch.setattr(verdict, "residual", lambda exact, drafted: exact)
    elif wrong == "always accept":
        monkeypatch.setattr(verdict, "accept", lambda *given: torch.ones_like(given[2], dtype=torch.bool))
    elif wrong == "draft again":
        monkeypatch.setattr(verdict, "residual", lambda exact, drafted: drafted)
    else:  # candidates are sampled without replacement; this rule judges them in the wrong order
        rule = verdict.try_candidates
        monkeypatch.setattr(
            verdict, "try_candidates", lambda *given: rule(given[0], given[1], given[2].flip(1), given[3])
        )
    assert max(p_values_of_two_inputs(10000, PLAIN, 1, False, (2, 2))) < 1e-6


def random_inputs(model, lines: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random inputs of a frame: states and embedded codes of group 0, ``[lines, 1, H]`` each."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(lines, 1, model.width, generator=generator)
    codes = torch.randint(64, (lines, 1), generator=generator)
    return hidden, model.talker.get_input_embeddings()(codes)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("shape", ["tiny", "tiny-1.7B"])
@pytest.mark.parametrize("seq_groups", [1, 4, 14, 15])
@torch.inference_mode()
def test_greedy_frames_equal_those_of_15_groups(load, seq_groups, shape, attention):
    """In float32; lines whose drafts are accepted for different lengths share the batch."""
    model = load(shape, "base", "fp32", attention)
    hidden, embedding = random_inputs(model, 24, seed=3)
    greedy = TokenSampling(do_sample=False)
    exact = Predictor(model.talker.code_predictor).decode_frame(hidden, embedding, 15, greedy, None)
    decoder = LosslessPredictor(model.talker.code_predictor, candidates=(5, 3))
    before = torch.get_rng_state()
    assert torch.equal(decoder.decode_frame(hidden, embedding, seq_groups, greedy, None), exact)
    assert torch.equal(torch.get_rng_state(), before), "greedy decoding uses no randomness"
    assert seq_groups <= decoder.tally.passes <= 15


@torch.inference_mode()
def test_a_perfect_draft_takes_one_pass_and_a_useless_one_at_most_15(load):
    model = load("tiny")
    hidden, embedding = random_inputs(model, 3, seed=3)
    greedy, module = TokenSampling(do_sample=False), model.talker.code_predictor
    exact = Predictor(module).decode_frame(hidden, embedding, 15, greedy, None)
    vocabulary = LosslessPredictor(module).heads.shape[1]

    def draft(shift: int):
        wanted = torch.nn.functional.one_hot((exact + shift) % vocabulary, vocabulary).float()
        return lambda reached: 100 * wanted[:, reached.start :]

    for shift, passes in ((0, 2), (1, 15)):
        decoder = LosslessPredictor(module, draft(shift), candidates=(1,))
        assert torch.equal(decoder.decode_frame(hidden, embedding, 1, greedy, None), exact)
        assert decoder.tally.passes == passes


@torch.inference_mode()
def test_a_second_candidate_saves_passes(load):
    """The exact code is every draft's second choice: a single candidate is rejected 14 times, two never are."""
    model = load("tiny")
    hidden, embedding = random_inputs(model, 3, seed=3)
    greedy, module = TokenSampling(do_sample=False), model.talker.code_predictor
    exact = Predictor(module).decode_frame(hidden, embedding, 15, greedy, None)
    vocabulary = LosslessPredictor(module).heads.shape[1]
    code = torch.nn.functional.one_hot
    wanted = (3.0 * code(exact, vocabulary) + 4.0 * code((exact + 1) % vocabulary, vocabulary)).float()
    taken = {}
    for candidates in ((1,), (2,), (2, 2), (1, 2), (2, 2, 2)):
        decoder = LosslessPredictor(module, lambda reached: wanted[:, reached.start :], None, candidates)
        assert torch.equal(decoder.decode_frame(hidden, embedding, 1, greedy, None), exact)
        taken[candidates] = decoder.tally.passes
    # Accepted groups per pass before a rejection: 0, 1, 2, 0 and 3, of 14 groups.
    assert taken == {(1,): 15, (2,): 8, (2, 2): 6, (1, 2): 15, (2, 2, 2): 5}


@torch.inference_mode()
def test_a_drafter_gets_the_state_that_the_latest_exact_token_was_sampled_from(load):
    """The states and tokens are those of teacher forcing on the finished frame."""
    model = load("tiny")
    hidden, embedding = random_inputs(model, 4, seed=4)
    told, decoder = [], LosslessPredictor(model.talker.code_predictor)
    stock = decoder.draft

    def draft(reached):
        told.append(reached)
        return stock(reached)

    decoder.draft = draft
    codes = decoder.decode_frame(hidden, embedding, 2, PLAIN, line_streams(range(4), hidden.device))
    tables = model.code_tables()
    embedded = tables[torch.arange(15), codes]
    states = decoder.teacher_force(hidden, torch.cat((embedding, embedded[:, :-1]), dim=1))
    checked = 0
    for reached in told:
        assert reached.start == min(reached.done)
        for row, done in enumerate(reached.done):
            if done < 15:
                checked += 1
                assert torch.allclose(reached.states[row], states[row, done - 1], atol=1e-5)
                assert reached.tokens[row] == codes[row, done - 1]
    assert checked > 20 and any(len(set(reached.done)) > 1 for reached in told)


@torch.inference_mode()
def test_trained_tails_draft_for_their_own_seq_groups_and_the_stock_crossbar_otherwise(load):
    predictor = Predictor(load("tiny").talker.code_predictor)
    states = torch.randn(4, predictor.heads.shape[2], generator=torch.Generator().manual_seed(5))
    reached = Reached(2, (2, 5, 3, 5), states, torch.arange(4))
    seen = []

    class Constant:
        def logits(self, heads, states, tokens):
            seen.append((states, tokens.tolist()))
            return torch.full((len(states), 10, heads.shape[1]), 7.0)

    stock = crossbar_drafter(predictor.heads)(reached)
    trained = tails_drafter(predictor.heads, {5: Constant(), 9: None})(reached)
    assert torch.equal(trained[[0, 2]], stock[[0, 2]])
    assert (trained[[1, 3], 3:] == 7).all() and trained.shape == stock.shape
    [(given, tokens)] = seen
    assert torch.equal(given, states[[1, 3]]) and tokens == [1, 3]


def speculative_lines(model, rows, sampling=None, seq_groups=1, candidates=None):
    prompts = prompts_of(model, rows=rows)
    seeds = [SEEDS[row] for row in rows]
    decoder = LosslessPredictor(model.talker.code_predictor, candidates=candidates)
    guards = guards_of(prompts, 20)
    return decode(
        model,
        line_requests(prompts, guards, seeds),
        GenerateOptions(seq_groups, sampling or Sampling()),
        experiment=Experiment(predictor=decoder),
    )


@pytest.mark.parametrize("candidates", [(1,), (3, 2)])
def test_a_line_is_the_same_alone_and_in_any_batch(load, candidates):
    """In fp32 on the CPU, where another batch size rounds the same for these shapes."""
    model = load("tiny", "custom_voice")
    together = speculative_lines(model, [0, 1, 2], candidates=candidates)
    for row in range(3):
        assert_equal(speculative_lines(model, [row], candidates=candidates), together[row : row + 1])
    assert_equal(speculative_lines(model, [2, 0], candidates=candidates), [together[2], together[0]])


@pytest.mark.parametrize("seq_groups", [1, 5])
def test_greedy_lines_equal_those_of_15_groups(load, monkeypatch, seq_groups):
    model = load("tiny", "custom_voice")
    prompts = prompts_of(model)
    exact = eager_lines(model, prompts, 15, GREEDY, SEEDS, monkeypatch, guards=guards_of(prompts, 20))
    assert_equal(speculative_lines(model, [0, 1, 2], GREEDY, seq_groups, candidates=(4, 2)), exact)


def test_the_tally_counts_frames_and_passes():
    tally = Tally()
    tally.add(2)
    tally.add(5)
    assert (tally.frames, tally.passes, tally.mean_passes) == (2, 7, 3.5)


def test_cropping_forgets_the_latest_positions_of_every_layer():
    cache = RewindingCache(2)
    keys, values = torch.randn(2, 2, 1, 4, 5, 8)
    for layer in (0, 1):
        cache.update(keys[layer], values[layer], layer)
    cache.crop(3)
    for layer in (0, 1):
        grown, _ = cache.update(keys[layer][:, :, :1], values[layer][:, :, :1], layer)
        assert torch.equal(grown, torch.cat((keys[layer][:, :, :3], keys[layer][:, :, :1]), dim=2))
