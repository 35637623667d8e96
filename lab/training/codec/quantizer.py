"""A residual vector quantiser that learns its codebooks as moving averages (van den Oord 2017, SoundStream, Mimi).

Group 0 quantises one projection of the embedding, groups 1-15 the residuals of another, as upstream's split quantiser
does; upstream itself only looks codes up.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from ..parallel import ALONE, World
from .config import Quantiser


@dataclass(frozen=True)
class Quantised:
    """What the quantiser makes of embeddings.

    Args:
        first, rest: ``[B, D, frames]``, with the gradient passed straight through.
        codes: ``[B, groups, frames]``.
        commitment: how far the embeddings are from their codes, relative to their energy.
        scale: how far their energy is from 1; the codebooks could not follow a scale that wanders.
    """

    first: torch.Tensor
    rest: torch.Tensor
    codes: torch.Tensor
    commitment: torch.Tensor
    scale: torch.Tensor


def nearest(rows: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    """The nearest of ``[K, D]`` for each of ``[N, D]``; rows' own lengths do not matter to the choice."""
    return (vectors.square().sum(1) - 2 * rows @ vectors.T).argmin(1)


def sample(rows: torch.Tensor, count: int, generator: torch.Generator) -> torch.Tensor:
    """``count`` rows drawn with replacement."""
    return rows[torch.randint(len(rows), (count,), generator=generator).to(rows.device)]


def kmeans(rows: torch.Tensor, count: int, rounds: int, generator: torch.Generator) -> torch.Tensor:
    """``count`` centres of ``[N, D]``; an empty centre moves to a random row."""
    centres = sample(rows, count, generator)
    for _ in range(rounds):
        codes = nearest(rows, centres)
        sums = torch.zeros_like(centres).index_add_(0, codes, rows)
        use = torch.bincount(codes, minlength=count)[:, None]
        centres = torch.where(use > 0, sums / use.clamp(min=1), sample(rows, count, generator))
    return centres


def scale_loss(*embeddings: torch.Tensor) -> torch.Tensor:
    """Squared logarithm of each one's mean energy."""
    return torch.stack([(one.square().mean() + 1e-6).log().square() for one in embeddings]).mean()


class ResidualQuantiser(nn.Module):
    """Codebooks ``vectors`` ``[groups, codebook, dim]``, learnt from what is quantised while in training mode.

    ``use`` and ``sums`` are the moving averages behind them, of the rows of all processes of ``world``.
    """

    vectors: torch.Tensor
    use: torch.Tensor
    sums: torch.Tensor

    def __init__(self, groups: int, codebook: int, dim: int, options: Quantiser):
        super().__init__()
        self.options = options
        self.world: World = ALONE
        self.recent: torch.Tensor | None = None
        self.register_buffer("vectors", torch.zeros(groups, codebook, dim))
        self.register_buffer("use", torch.ones(groups, codebook))
        self.register_buffer("sums", torch.zeros(groups, codebook, dim))

    def skip(self, first: torch.Tensor, rest: torch.Tensor) -> Quantised:
        """No quantisation: for the first steps."""
        codes = torch.zeros(
            len(first), len(self.vectors), first.shape[-1], dtype=torch.long, device=first.device
        )
        return Quantised(first, rest, codes, first.new_zeros(()), scale_loss(first, rest))

    def forward(
        self, first: torch.Tensor, rest: torch.Tensor, groups: torch.Tensor | None = None
    ) -> Quantised:
        """Quantise ``[B, D, frames]`` with the first ``groups`` ``[B]`` of the groups (all: None); float32."""
        batch, dim, frames = first.shape
        rows = torch.stack((_rows(first), _rows(rest)))
        active = torch.full((batch,), len(self.vectors), device=first.device) if groups is None else groups
        active = active.repeat_interleave(frames)
        codes, inputs, taken = self._search(rows.detach(), active)
        if self.training:
            self._learn(inputs, codes)
        commitment = self._commitment(rows, codes, active)
        straight = rows + (taken - rows).detach()
        return Quantised(
            first=straight[0].view(batch, frames, dim).transpose(1, 2),
            rest=straight[1].view(batch, frames, dim).transpose(1, 2),
            codes=codes.view(-1, batch, frames).transpose(0, 1),
            commitment=commitment,
            scale=scale_loss(first, rest),
        )

    def look_up(self, codes: torch.Tensor, groups: torch.Tensor) -> Quantised:
        """What codes ``[B, frames, groups]`` stand for, decoded with the first ``groups`` ``[B]``; nothing learns."""
        places = torch.arange(len(self.vectors), device=codes.device)
        chosen = self.vectors[places, codes] * (groups[:, None] > places)[:, None, :, None]
        none = chosen.new_zeros(())
        return Quantised(
            first=chosen[:, :, 0].transpose(1, 2),
            rest=chosen[:, :, 1:].sum(2).transpose(1, 2),
            codes=codes.transpose(1, 2),
            commitment=none,
            scale=none,
        )

    @torch.no_grad()
    def _search(
        self, rows: torch.Tensor, active: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Codes ``[groups, N]``, what each group quantised ``[groups, N, D]``, and the active groups' sums."""
        codes, inputs, taken = [], [], torch.zeros_like(rows)
        residual = rows.clone()
        for group, vectors in enumerate(self.vectors):
            part = min(group, 1)
            inputs.append(residual[part].clone())
            codes.append(nearest(residual[part], vectors))
            chosen = vectors[codes[-1]]
            residual[part] -= chosen
            taken[part] += chosen * (active > group)[:, None]
        return torch.stack(codes), torch.stack(inputs), taken

    def _commitment(self, rows: torch.Tensor, codes: torch.Tensor, active: torch.Tensor) -> torch.Tensor:
        """Mean distance of the rows to what each active group makes of them, relative to their energy.

        Relative, because an absolute distance grows with the embeddings, and the encoder with it, without end.
        """
        energy = rows.detach().square().mean((1, 2)).clamp(min=1e-8)
        groups = torch.arange(len(codes), device=codes.device)
        chosen = self.vectors[groups[:, None], codes]
        first = (rows[:1] - chosen[:1]).square().mean(2) / energy[0]
        rest = (rows[1:] - chosen[1:].cumsum(0)).square().mean(2) / energy[1]
        errors = torch.cat((first, rest)) * (active > groups[:, None])
        return errors.sum() / active.sum()

    @torch.no_grad()
    def _learn(self, inputs: torch.Tensor, codes: torch.Tensor) -> None:
        groups, codebook = self.use.shape
        places = (codes + codebook * torch.arange(groups, device=codes.device)[:, None]).flatten()
        use = torch.zeros_like(self.use).flatten().index_add_(0, places, inputs.new_ones(places.shape))
        sums = torch.zeros_like(self.sums).flatten(0, 1).index_add_(0, places, inputs.flatten(0, 1))
        self.world.add([use, sums])
        self.use.lerp_(use.view_as(self.use), 1 - self.options.decay)
        self.sums.lerp_(sums.view_as(self.sums), 1 - self.options.decay)
        # A code out of use keeps its place until it is restarted.
        alive = self.use > 1e-4
        self.vectors.copy_(
            torch.where(alive[..., None], self.sums / self.use.clamp(min=1e-4)[..., None], self.vectors)
        )
        self._remember(inputs)

    def _remember(self, inputs: torch.Tensor) -> None:
        """Keep rows for ``restart``, always in the same place: graphs that are captured share their memory."""
        if self.recent is None:
            self.recent = inputs.clone()
            return
        count = min(inputs.shape[1], self.recent.shape[1])
        self.recent[:, :count] = inputs[:, :count]

    def learnt(self) -> list[torch.Tensor]:
        """The codebooks and what they were learnt from: what processes must have in common."""
        return [self.vectors, self.use, self.sums]

    @torch.no_grad()
    def restart(self, seed: int) -> None:
        """Move the codes that are hardly used to random ones of what their group quantised last."""
        if self.recent is None:
            raise ValueError("nothing was quantised in training yet: no code can be restarted")
        inputs = self.recent
        generator = torch.Generator().manual_seed(seed)
        mean = self.use.mean(1, keepdim=True)
        dead = self.use < self.options.restart_below * mean
        for group, rows in enumerate(inputs):
            fresh = sample(rows, self.use.shape[1], generator)
            self.vectors[group] = torch.where(dead[group, :, None], fresh, self.vectors[group])
        self.use.copy_(torch.where(dead, mean.expand_as(self.use), self.use))
        self.sums.copy_(torch.where(dead[..., None], self.vectors * self.use[..., None], self.sums))

    @torch.no_grad()
    def fill(self, first: torch.Tensor, rest: torch.Tensor, seed: int) -> None:
        """Set the codebooks by k-means on rows ``[N, D]``, group after group."""
        if len(first) < 2:
            raise ValueError(f"{len(first)} frames to fill codebooks from: raise kmeans_frames")
        generator = torch.Generator().manual_seed(seed)
        residual = [first.clone(), rest.clone()]
        for group in range(len(self.vectors)):
            rows = residual[min(group, 1)]
            self.vectors[group] = kmeans(rows, self.vectors.shape[1], self.options.kmeans_rounds, generator)
            codes = nearest(rows, self.vectors[group])
            rows -= self.vectors[group][codes]
            # As if every step brought as many rows as a training step roughly does: one a code.
            self.use[group] = (
                torch.bincount(codes, minlength=self.use.shape[1]) / len(rows) * self.use.shape[1]
            )
        self.sums.copy_(self.vectors * self.use[..., None])


def _rows(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).reshape(-1, x.shape[1])


def perplexity(use: torch.Tensor) -> torch.Tensor:
    """How many entries each group really uses, ``[groups]``: e to the entropy of its use ``[groups, codebook]``."""
    return torch.special.entr(use / use.sum(1, keepdim=True)).sum(1).exp()
