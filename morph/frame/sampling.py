"""The sampler of ``sampling.py`` with its settings in tensors: one a line, changed without a new capture."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..options import TokenSampling

OFF = -1.0  # a share that no running sum is below: top-p keeps all


@dataclass(frozen=True)
class SamplingTensors:
    """A ``TokenSampling`` a line, ``[B]`` each.

    ``places`` (int64) is where the k-th likeliest token stands among V sorted upwards; ``shares`` (float32) is the
    share of the unlikeliest that top-p removes; ``scales`` (float32) is 1, or 0 for greedy: no noise.
    """

    temperatures: torch.Tensor
    places: torch.Tensor
    shares: torch.Tensor
    scales: torch.Tensor

    @classmethod
    def allocate(cls, batch: int, device: torch.device) -> SamplingTensors:
        """Greedy for every line, until ``put`` says otherwise."""
        return cls(
            torch.ones(batch, device=device),
            torch.zeros(batch, dtype=torch.int64, device=device),
            torch.full((batch,), OFF, device=device),
            torch.zeros(batch, device=device),
        )

    def take(self, rows: torch.Tensor) -> SamplingTensors:
        """Those of some of the lines (int64 ``[N]``), copied."""
        return SamplingTensors(
            self.temperatures[rows], self.places[rows], self.shares[rows], self.scales[rows]
        )

    def put(self, draw: TokenSampling, vocab: int) -> None:
        """Let every line draw so, from ``vocab`` tokens."""
        sampled = draw.do_sample
        kept = min(draw.top_k, vocab) if draw.top_k and sampled else vocab
        self.temperatures.fill_(draw.temperature if sampled else 1.0)
        self.places.fill_(vocab - kept)
        self.shares.fill_(1 - draw.top_p if draw.top_p < 1 and sampled else OFF)
        self.scales.fill_(float(sampled))


def sample_static(scores: torch.Tensor, draws: SamplingTensors, noise: torch.Tensor) -> torch.Tensor:
    """Draw a token from each row of scores, as ``sampling.filter_logits`` filters them, with the noise given.

    Works among the sorted tokens, so that one sort serves top-k and top-p. Of equal tokens on the edge of top-p as
    many stay as there, the later ones; there, those that the sort leaves last.

    Args:
        scores: float32 ``[B, V]``, or ``[B, G, V]`` for G groups at once.
        draws: the lines' settings.
        noise: Gumbel noise in the shape of ``scores``.

    Returns:
        Tokens ``[B]`` or ``[B, G]``, int64.
    """

    def per_line(values: torch.Tensor) -> torch.Tensor:
        return values.view(-1, *[1] * (scores.dim() - 1))

    ordered, order = (scores / per_line(draws.temperatures)).sort(dim=-1, stable=True)
    place = per_line(draws.places).expand(*ordered.shape[:-1], 1)
    ordered = ordered.masked_fill(ordered < ordered.gather(-1, place), -torch.inf)
    removed = ordered.softmax(dim=-1).cumsum(dim=-1) <= per_line(draws.shares)
    removed[..., -1:].fill_(False)
    chances = ordered.masked_fill(removed, -torch.inf) + noise.gather(-1, order) * per_line(draws.scales)
    return order.gather(-1, chances.argmax(dim=-1, keepdim=True)).squeeze(-1)
