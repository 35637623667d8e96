"""The losses of one batch: group 0 with the end, groups 1-15, the phones and the speaker."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from .batch import Fields
from .codes import unpack_mel
from .config import GROUPS, PREDICTED, Training
from .layout import NOTHING
from .network import Network

PREDICTOR_NOISE = 0.03  # of the groups that the predictor is shown
GAIN_SPREAD = 0.7  # of the reference's level, in nepers: about 6 dB either way


class Learner(nn.Module):
    """The network, the speaker encoder, and the two heads that only training needs.

    Args:
        network: talker and predictor.
        encoder: log mel ``[B, M, 128]`` to speaker embeddings ``[B, H]``.
        phones: how many phone labels there are; 0 for none.
        speakers: how many voices.
        encoder_share: of a training batch's references, at the front, whose gradients go into the encoder.
    """

    def __init__(
        self, network: Network, encoder: nn.Module, phones: int, speakers: int, encoder_share: float = 1.0
    ):
        super().__init__()
        self.encoder_share = encoder_share
        self.network, self.encoder = network, encoder
        wide = network.shape.talker.hidden
        self.phones = phones
        self.phone_head = nn.Linear(wide, 2 * phones) if phones else None
        self.speaker_head = nn.Linear(wide, speakers)

    def embed_speakers(self, mels: torch.Tensor, noise: bool) -> torch.Tensor:
        """Packed mels uint8 ``[B, M, 128]`` to speaker embeddings, in float32: its variances are small."""
        log_mel = unpack_mel(mels)
        if noise:
            gain = torch.rand(len(mels), 1, 1, device=mels.device) * 2 - 1
            log_mel = (log_mel + GAIN_SPREAD * gain).clamp(min=-11.513)
        with torch.autocast(mels.device.type, enabled=False):
            embedding: torch.Tensor = self.encoder(log_mel)
        return embedding

    def hear(self, mels: torch.Tensor) -> torch.Tensor:
        """Speaker embeddings for a batch: it has more references than the encoder needs to learn, and they cost."""
        taught = max(1, round(self.encoder_share * len(mels))) if self.training else len(mels)
        heard = [self.embed_speakers(mels[:taught], noise=self.training)]
        if taught < len(mels):
            with torch.no_grad():
                heard.append(self.embed_speakers(mels[taught:], noise=self.training))
        return torch.cat(heard)

    def forward(self, batch: Fields, mels: torch.Tensor) -> Outputs:
        """Everything that the losses need; ``mels`` are the references, packed ``[B, M, 128]``.

        Nothing here waits for the device: indexes are integers, and no shape follows from a value.
        """
        speakers = self.hear(mels)
        inputs = self.network.embed(batch.text, batch.codes, batch.speaker_at, speakers)
        hidden, middle = self.network.talker(inputs)
        frames = batch.targets.flatten(0, 1).index_select(0, batch.picked)
        shown = frames[:, :PREDICTED]
        if self.training:
            replaced = torch.rand(shown.shape, device=shown.device) < PREDICTOR_NOISE
            shown = torch.where(replaced, shown.roll(1, 0), shown)
        return Outputs(
            first=self.network.first_head(hidden).flatten(0, 1),
            first_target=batch.targets[..., 0].flatten(),
            rest=self.network.predict(hidden.flatten(0, 1).index_select(0, batch.picked), shown),
            rest_target=frames[:, 1:],
            phones=None if self.phone_head is None else self.phone_head(middle).view(-1, self.phones),
            phone_target=batch.phones.flatten(),
            speakers=self.speaker_head(speakers),
            speaker_target=batch.speaker,
        )


@dataclass(frozen=True)
class Outputs:
    """Logits and targets: group 0 ``[N, V0]``, groups 1-15 ``[K, 15, V]``, phones ``[2N, P]``, speakers ``[B, S]``."""

    first: torch.Tensor
    first_target: torch.Tensor
    rest: torch.Tensor
    rest_target: torch.Tensor
    phones: torch.Tensor | None
    phone_target: torch.Tensor
    speakers: torch.Tensor
    speaker_target: torch.Tensor

    def losses(self, smoothing: float) -> dict[str, torch.Tensor]:
        """Mean losses over the known targets: "groups" ``[16]``, "phones" and "speakers" (0-dim)."""
        first = _mean_known(self._first_loss(smoothing), self.first_target)
        # In the heads' own order [15, K, V]: anything else copies the largest tensor of the step.
        logits, targets = self.rest.transpose(0, 1), self.rest_target.transpose(0, 1)
        rest = functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="none")
        rest = rest.view(PREDICTED, -1).mean(1)
        losses = {"groups": torch.cat((first[None], rest))}
        if self.phones is not None:
            phones = functional.cross_entropy(
                self.phones.float(), self.phone_target, ignore_index=NOTHING, reduction="none"
            )
            losses["phones"] = _mean_known(phones, self.phone_target)
        losses["speakers"] = functional.cross_entropy(self.speakers.float(), self.speaker_target)
        return losses

    def _first_loss(self, smoothing: float) -> torch.Tensor:
        """Group 0's ``[N]``, smoothed over the codebook alone: the special ids are never to be likely."""
        logits = self.first.float()
        exact = functional.cross_entropy(logits, self.first_target, ignore_index=NOTHING, reduction="none")
        if not smoothing:
            return exact
        codebook = self.rest.shape[-1]
        spread = logits.logsumexp(-1) - logits[:, :codebook].mean(-1)
        return (1 - smoothing) * exact + smoothing * spread

    @torch.no_grad()
    def accuracies(self) -> dict[str, torch.Tensor]:
        """Shares of right first choices, by the losses' names."""
        known = self.first_target != NOTHING
        first = (self.first.argmax(-1) == self.first_target)[known].float().mean()
        rest = (self.rest.argmax(-1) == self.rest_target).float().mean(0)
        found = {"groups": torch.cat((first[None], rest))}
        if self.phones is not None:
            known = self.phone_target != NOTHING
            found["phones"] = (self.phones.argmax(-1) == self.phone_target)[known].float().mean()
        found["speakers"] = (self.speakers.argmax(-1) == self.speaker_target).float().mean()
        return found


def _mean_known(losses: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean where there is a target; 0, not NaN, where there is none at all."""
    known = targets != NOTHING
    return (losses * known).sum() / known.sum().clamp(min=1)


def total_loss(losses: dict[str, torch.Tensor], options: Training, shares: torch.Tensor) -> torch.Tensor:
    """One number to go down.

    Args:
        losses: means over this process's targets.
        options: the weights.
        shares: ``[3]``, in the order of ``batch.COUNTED``: how many targets this process has, by the mean of all
            processes. Gradients of totals weighted so average to that of the mean over all processes' targets.
    """
    groups = losses["groups"]
    if groups.shape != (GROUPS,):
        raise ValueError(f"losses of {tuple(groups.shape)} groups, not {GROUPS}")
    weights = [group * weight for group, weight in zip(groups.unbind(), options.group_weights, strict=True)]
    # Groups 1-15 have the same number of frames in every batch.
    total = shares[0] * weights[0] + torch.stack(weights[1:]).sum()
    total = total + shares[2] * options.speaker_weight * losses["speakers"]
    if "phones" in losses:
        total = total + shares[1] * options.phone_weight * losses["phones"]
    return total
