"""A residual vector quantiser that learns its codebooks as moving averages (van den Oord 2017, SoundStream, Mimi).

Group 0 quantises one projection of the embedding, groups 1-15 the residuals of another, like upstream's split
quantiser, which cannot learn.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from ..parallel import ALONE, World
from .config import Quantiser


@dataclass(frozen=True)
class Quantised:
    """Result of quantising embeddings.

    Args:
        first, rest: ``[B, D, frames]``, with straight-through gradients.
        codes: ``[B, groups, frames]``.
        commitment: distance of the embeddings from their codes, relative to their energy.
        scale: deviation of their energy from 1; the codebooks could not follow a drifting scale.
    """

    first: torch.Tensor
    rest: torch.Tensor
    codes: torch.Tensor
    commitment: torch.Tensor
    scale: torch.Tensor


def nearest(rows: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    """Return the index of the nearest of ``[K, D]`` for each of ``[N, D]``; the rows' own norms cancel out."""
    return (vectors.square().sum(1) - 2 * rows @ vectors.T).argmin(1)


def sample(rows: torch.Tensor, count: int, generator: torch.Generator) -> torch.Tensor:
    """Return ``count`` rows sampled with replacement."""
    return rows[torch.randint(len(rows), (count,), generator=generator).to(rows.device)]


def kmeans(rows: torch.Tensor, count: int, rounds: int, generator: torch.Generator) -> torch.Tensor:
    """Return ``count`` centres of ``[N, D]``; an empty centre moves to a random row."""
    centres = sample(rows, count, generator)
    for _ in range(rounds):
        codes = nearest(rows, centres)
        sums = torch.zeros_like(centres).index_add_(0, codes, rows)
        use = torch.bincount(codes, minlength=count)[:, None]
        centres = torch.where(use > 0, sums / use.clamp(min=1), sample(rows, count, generator))
    return centres


def scale_loss(*embeddings: torch.Tensor) -> torch.Tensor:
    """Return the mean squared logarithm of each embedding's mean energy."""
    return torch.stack([(one.square().mean() + 1e-6).log().square() for one in embeddings]).mean()


class ResidualQuantiser(nn.Module):
    """Codebooks ``vectors`` ``[groups, codebook, dim]``, which learn from their input in training mode.

    ``use`` and ``sums`` are their moving averages, over the rows of all processes of ``world``.
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
        """Return the embeddings unquantised, for the first steps."""
        codes = torch.zeros(
            len(first), len(self.vectors), first.shape[-1], dtype=torch.long, device=first.device
        )
        return Quantised(first, rest, codes, first.new_zeros(()), scale_loss(first, rest))

    def forward(
        self, first: torch.Tensor, rest: torch.Tensor, groups: torch.Tensor | None = None
    ) -> Quantised:
        """Quantise float32 ``[B, D, frames]`` with the first ``groups`` ``[B]`` groups (None: all)."""
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
        """Return the vectors of codes ``[B, frames, groups]``, with the first ``groups`` ``[B]``; nothing learns."""
        numbers = torch.arange(len(self.vectors), device=codes.device)
        chosen = self.vectors[numbers, codes] * (groups[:, None] > numbers)[:, None, :, None]
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
        """Return codes ``[groups, N]``, each group's input ``[groups, N, D]``, and the sums of the active groups."""
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
        """Mean distance of the rows from the sum of each active group's vectors, relative to the rows' energy.

        An absolute distance grows with the embeddings, and would grow with the encoder without limit.
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
        entries = (codes + codebook * torch.arange(groups, device=codes.device)[:, None]).flatten()
        use = torch.zeros_like(self.use).flatten().index_add_(0, entries, inputs.new_ones(entries.shape))
        sums = torch.zeros_like(self.sums).flatten(0, 1).index_add_(0, entries, inputs.flatten(0, 1))
        self.world.add([use, sums])
        self.use.lerp_(use.view_as(self.use), 1 - self.options.decay)
        self.sums.lerp_(sums.view_as(self.sums), 1 - self.options.decay)
        # An unused code keeps its vector until it is restarted.
        alive = self.use > 1e-4
        self.vectors.copy_(
            torch.where(alive[..., None], self.sums / self.use.clamp(min=1e-4)[..., None], self.vectors)
        )
        self._remember(inputs)

    def _remember(self, inputs: torch.Tensor) -> None:
        """Keep rows for ``restart``, always in the same tensor: captured graphs share their memory."""
        if self.recent is None:
            self.recent = inputs.clone()
            return
        count = min(inputs.shape[1], self.recent.shape[1])
        self.recent[:, :count] = inputs[:, :count]

    def learnt(self) -> list[torch.Tensor]:
        """Return the codebooks and their moving averages: the state that processes must share."""
        return [self.vectors, self.use, self.sums]

    @torch.no_grad()
    def restart(self, seed: int) -> None:
        """Move rarely used codes to random rows of their group's last input."""
        if self.recent is None:
            raise ValueError("no code can be restarted before a training step has quantised something")
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
        """Set the codebooks by k-means on rows ``[N, D]``, one group after another."""
        if len(first) < 2:
            raise ValueError(f"{len(first)} frames are too few to fill the codebooks: raise kmeans_frames")
        generator = torch.Generator().manual_seed(seed)
        residual = [first.clone(), rest.clone()]
        for group in range(len(self.vectors)):
            rows = residual[min(group, 1)]
            self.vectors[group] = kmeans(rows, self.vectors.shape[1], self.options.kmeans_rounds, generator)
            codes = nearest(rows, self.vectors[group])
            rows -= self.vectors[group][codes]
            # As if every step had one row per code, roughly as in training.
            self.use[group] = (
                torch.bincount(codes, minlength=self.use.shape[1]) / len(rows) * self.use.shape[1]
            )
        self.sums.copy_(self.vectors * self.use[..., None])


def _rows(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).reshape(-1, x.shape[1])


def perplexity(use: torch.Tensor) -> torch.Tensor:
    """Return each group's effective number of entries, ``[groups]``: exp of the entropy of ``use``."""
    return torch.special.entr(use / use.sum(1, keepdim=True)).sum(1).exp()
