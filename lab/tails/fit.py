"""Train one tail: the mean Kullback-Leibler divergence of its groups from the exact distributions, by Adam.

A group's exact distribution depends on the groups before it, which the tail does not see. The examples contain samples
of those groups, so the optimal tail is the exact distribution averaged over them. Distributions are compared at the
sub-talker's temperature, before top-k and top-p, which would remove tokens that the averaging makes improbable.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass

import torch
from qwen3_tts_morph.morph.model.tail import tail_logits
from qwen3_tts_morph.morph.options import TokenSampling

from .config import Config
from .examples import Examples
from .variants import Trainable, initial

log = logging.getLogger("lab.tails")

LOG_EVERY = 100


@dataclass(frozen=True)
class Teacher:
    """The reference for a tail: the stock heads ``[15, V, H]``, all code tables, and the sub-talker's sampling."""

    heads: torch.Tensor
    tables: torch.Tensor
    sampling: TokenSampling

    @property
    def temperature(self) -> float:
        """Return 1 for a sub-talker that does not sample: its most probable token does not depend on it."""
        return self.sampling.temperature if self.sampling.do_sample else 1.0


def divergences(parts: dict[str, torch.Tensor], teacher: Teacher, examples: Examples, seq_groups: int) -> torch.Tensor:
    """Return the divergence of each tail group in nats, ``[15 - S]``, averaged over the examples."""
    heads = teacher.heads[seq_groups:].float()
    states, tokens = examples.last_states(seq_groups).float(), examples.codes[:, seq_groups]
    logits = tail_logits(parts, heads, states, tokens) / teacher.temperature
    probabilities = examples.probabilities[:, seq_groups:]
    ours = logits.log_softmax(-1).gather(-1, examples.tokens[:, seq_groups:].long())
    theirs = probabilities.clamp(min=1e-30).log()
    return (probabilities * (theirs - ours)).sum(-1).mean(0)


def fit(
    teacher: Teacher,
    examples: Examples,
    seq_groups: int,
    config: Config,
    minutes: float = math.inf,
) -> dict[str, torch.Tensor]:
    """Train a tail until its steps or minutes are used, and the learning rate has decayed; return its parts."""
    heads = teacher.heads[seq_groups:].float()
    trained = initial(config.variant, heads, teacher.tables[seq_groups - 1], config.width, config.seed)
    optimizer = torch.optim.Adam(list(trained.weights.values()), config.learning_rate, betas=(0.9, 0.98))
    random = torch.Generator().manual_seed(config.seed)
    batch, started, step, progress = min(config.batch_frames, len(examples)), time.monotonic(), 0, 0.0
    while progress < 1:
        warm = min(1.0, (step + 1) / max(1, config.warmup_steps))
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * warm * 0.5 * (1 + math.cos(math.pi * progress))
        rows = torch.randint(len(examples), (batch,), generator=random).to(teacher.heads.device)
        losses = _update(trained, teacher, examples.take(rows), seq_groups, optimizer)
        if step % LOG_EVERY == 0:
            log.info("S=%d step %d: %s", seq_groups, step, " ".join(f"{one:.3f}" for one in losses.tolist()))
        step += 1
        progress = max(step / config.steps, (time.monotonic() - started) / (60 * minutes))
    log.info("S=%d: %d steps in %.0f s", seq_groups, step, time.monotonic() - started)
    return {name: part.detach() for name, part in trained.parts().items()}


def _update(
    trained: Trainable,
    teacher: Teacher,
    examples: Examples,
    seq_groups: int,
    optimizer: torch.optim.Optimizer,
) -> torch.Tensor:
    losses = divergences(trained.parts(), teacher, examples, seq_groups)
    optimizer.zero_grad(set_to_none=True)
    losses.mean().backward()
    optimizer.step()
    return losses.detach()
