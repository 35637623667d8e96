"""Concurrent branches of an update: forward and backward results equal those of sequential execution."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from lab.training.branches import IN_ORDER, Branches


def test_on_a_cpu_they_run_in_order():
    ran: list[int] = []
    branches = Branches(torch.device("cpu"), 4)
    assert not branches.streams
    assert branches.run([partial(ran.append, number) for number in range(5)]) == [None] * 5
    assert ran == list(range(5))


def chains(weights: list[torch.Tensor], x: torch.Tensor, branches: Branches) -> list[torch.Tensor]:
    """Return the gradients at the weights and at x of a sum of chains of small matrix products."""

    def chain(weight: torch.Tensor) -> torch.Tensor:
        hidden = x
        for _ in range(20):
            hidden = torch.tanh(hidden @ weight)
        return hidden.square().mean()

    told = torch.stack(branches.run([partial(chain, weight) for weight in weights])).sum()
    return [told.detach(), *torch.autograd.grad(told, [*weights, x])]


@pytest.mark.gpu
def test_captured_branches_equal_sequential_execution():
    torch.manual_seed(0)
    weights = [torch.randn(64, 64, device="cuda", requires_grad=True) for _ in range(6)]
    x = torch.randn(32, 64, device="cuda", requires_grad=True)
    branches = Branches(x.device, 4)
    wanted = chains(weights, x, IN_ORDER)
    for found, value in zip(chains(weights, x, branches), wanted, strict=True):
        assert torch.allclose(found, value, rtol=1e-4, atol=1e-6)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = chains(weights, x, branches)
    for _ in range(20):
        graph.replay()
        for found, value in zip(captured, wanted, strict=True):
            assert torch.allclose(found, value, rtol=1e-4, atol=1e-6)
