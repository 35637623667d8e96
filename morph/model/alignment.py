"""The alignment head: which text token a position is on, and its share of the head's attention."""

from dataclasses import dataclass

import torch

from ..words.alignment import NO_TOKEN, SCALE
from ..words.head import AlignmentHead


@dataclass(frozen=True)
class AlignmentProbe:
    """A reading of the alignment head in a pass over N lines."""

    head: AlignmentHead
    spans: torch.Tensor  # int64 [N, 2]: first text token's position, number of text tokens
    positions: torch.Tensor  # int64 [N], contiguous: query positions; each attends to those up to it
    out: torch.Tensor  # int64 [N, 3], the result, see ``words.alignment``
    before: torch.Tensor | None = None  # [N, 3], gets the old ``out`` (kernels only)

    def measure(self, queries: torch.Tensor, keys: torch.Tensor) -> None:
        """Compute ``out`` from queries ``[N, heads, T, D]`` and keys ``[N, kv_heads, S, D]`` of the head's layer.

        Both are after norm and RoPE. T is 1, or the queries are those of positions 0 .. T - 1.
        """
        group = queries.shape[1] // keys.shape[1]
        own, length = queries[:, self.head.head], queries.shape[2]
        if length > 1:
            index = self.positions.clamp(max=length - 1)[:, None, None]
            own = own.gather(1, index.expand(-1, 1, own.shape[2]))
        seen = torch.arange(keys.shape[2], device=keys.device)[None] <= self.positions[:, None]
        answers = token_on(own[:, 0], keys[:, self.head.head // group], self.spans, seen)
        self.out.copy_(answers)


def token_on(queries: torch.Tensor, keys: torch.Tensor, spans: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Return one head's result, int64 ``[N, 3]``, for queries ``[N, D]`` and keys ``[N, S, D]`` after norm and RoPE."""
    scores = (keys.float() * queries[:, None].float()).sum(2) * keys.shape[2] ** -0.5
    weights = scores.masked_fill(~seen, -torch.inf).softmax(dim=1)
    first, count = spans[:, :1], spans[:, 1:]
    index = torch.arange(keys.shape[1], device=keys.device)[None]
    is_text = seen & (index >= first) & (index < first + count)
    best, place = weights.masked_fill(~is_text, -1.0).max(dim=1, keepdim=True)
    token = torch.where(best < 0, NO_TOKEN, place - first + 1)
    mass = weights.masked_fill(~is_text, 0.0).sum(1, keepdim=True)
    shares = torch.cat((best.clamp(min=0), mass), dim=1)
    return torch.cat((token, (shares * SCALE).round().long()), dim=1)
