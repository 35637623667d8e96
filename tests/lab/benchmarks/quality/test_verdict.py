"""The rule of lossless decoding, case by case; ``test_lossless.py`` checks the resulting distribution."""

from __future__ import annotations

import torch

from lab.benchmarks.quality.verdict import Noise, pick, residual, settle, try_candidates


def test_the_rule_keeps_tokens_up_to_the_first_rejection_and_corrects_only_that():
    exact = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.2, 0.8], [1.0, 0.0, 0.0]]).repeat(3, 1, 1)
    drafted = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]).repeat(3, 1, 1)
    tokens = torch.tensor([[0, 1, 0]] * 3)
    known = torch.tensor([[False] * 3, [False] * 3, [True, False, False]])
    verdicts = torch.tensor([[0.4, 0.1, 0.5], [0.4, 0.3, 0.5], [0.9, 0.3, 0.9]])
    first = known.sum(1)
    noise = Noise(torch.ones(3, 3, 3), torch.ones(3, 3), (verdicts.gather(1, first[:, None]),), verdicts)
    settled = settle(exact[:, None], drafted, tokens[:, None], known, noise)
    assert settled.kept.tolist() == [3, 1, 1] and settled.row.tolist() == [0, 0, 0]
    assert settled.tokens.tolist() == [[0, 1, 0], [0, 2, 0], [0, 2, 0]]


def test_filtered_tokens_are_never_sampled_or_kept():
    exact, drafted = torch.tensor([[[0.0, 1.0]]]), torch.tensor([[[1.0, 0.0]]])
    noise = Noise(torch.ones(1, 1, 2), torch.tensor([[1e-30, 1e30]]), (torch.zeros(1, 1),), torch.zeros(1, 1))
    tokens = torch.zeros(1, 1, 1, dtype=torch.long)
    settled = settle(exact[:, None], drafted, tokens, torch.zeros(1, 1).bool(), noise)
    assert settled.kept.tolist() == [0] and settled.tokens.tolist() == [[1]]
    assert pick(torch.tensor([0.0, 1e-20]), torch.tensor([1e-30, 1e10])) == 1


def test_a_candidate_is_judged_against_the_residual_of_those_before_it():
    """p is 0.2, 0.5, 0.3 and q 0.6, 0.3, 0.1: rejecting code 0 leaves p = 0, 0.5, 0.5 and q = 0, 0.75, 0.25."""
    exact, drafted = torch.tensor([[0.2, 0.5, 0.3]] * 4), torch.tensor([[0.6, 0.3, 0.1]] * 4)
    candidates = torch.tensor([[0, 1]] * 4)
    verdicts = torch.tensor([[0.3, 0.0], [0.4, 0.6], [0.4, 0.7], [0.99, 0.99]])
    row, found, left = try_candidates(exact, drafted, candidates, verdicts)
    assert row.tolist() == [0, 1, 0, 0] and found.tolist() == [True, True, False, False]
    assert torch.allclose(left[2], torch.tensor([0.0, 0.0, 1.0]))


def test_the_row_of_the_kept_candidate_is_used():
    """Each row's later groups were computed after its own candidate."""
    exact = torch.zeros(1, 2, 2, 3)
    exact[0, :, 0], exact[0, 0, 1, 1], exact[0, 1, 1, 2] = torch.tensor([0.0, 1.0, 0.0]), 1, 1
    drafted = torch.tensor([[[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]])
    tries = torch.tensor([[[0, 2], [1, 2]]])
    noise = Noise(torch.ones(1, 2, 3), torch.ones(1, 3), (torch.full((1, 2), 0.5),), torch.full((1, 2), 0.5))
    settled = settle(exact, drafted, tries, torch.zeros(1, 2).bool(), noise)
    assert settled.row.tolist() == [1] and settled.kept.tolist() == [2]
    assert settled.tokens.tolist() == [[1, 2]]


def test_equal_distributions_leave_a_token_to_sample_if_rounding_rejects_one():
    weights = torch.tensor([[0.25, 0.75]])
    assert torch.equal(residual(weights, weights), weights)
