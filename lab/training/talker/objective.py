"""The losses of a batch: group 0 including EOS, groups 1-15, the phones, the speaker and its style."""

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

PREDICTOR_NOISE = 0.03  # share of the predictor's input codes that are replaced
GAIN_SPREAD = 0.7  # maximum change of the reference's level, in nepers: about 6 dB up or down


@dataclass(frozen=True)
class Labels:
    """What the heads learn to tell.

    Args:
        phones: number of phone labels; 0 for none.
        styles: each voice's style, float32 ``[voices, numbers]``; no numbers if the styles are unknown.
    """

    phones: int
    styles: torch.Tensor


class Learner(nn.Module):
    """The network, the speaker encoder, and three heads that only training needs.

    Args:
        network: talker and predictor.
        encoder: log mel ``[B, M, 128]`` to speaker embeddings ``[B, H]``.
        labels: what the heads learn.
        encoder_share: share of a training batch's references, the first ones, that train the encoder.
    """

    styles: torch.Tensor

    def __init__(self, network: Network, encoder: nn.Module, labels: Labels, encoder_share: float = 1.0):
        super().__init__()
        self.encoder_share = encoder_share
        self.network, self.encoder = network, encoder
        wide = network.shape.talker.hidden
        self.phones = labels.phones
        self.phone_head = nn.Linear(wide, 2 * labels.phones) if labels.phones else None
        voices, numbers = labels.styles.shape
        self.speaker_head = nn.Linear(wide, voices)
        self.style_head = nn.Linear(wide, numbers) if numbers else None
        self.register_buffer("styles", labels.styles, persistent=False)

    def embed_speakers(self, mels: torch.Tensor, noise: bool) -> torch.Tensor:
        """Embed packed mels uint8 ``[B, M, 128]``, in float32 because the encoder computes small variances."""
        log_mel = unpack_mel(mels)
        if noise:
            gain = torch.rand(len(mels), 1, 1, device=mels.device) * 2 - 1
            log_mel = (log_mel + GAIN_SPREAD * gain).clamp(min=-11.513)
        with torch.autocast(mels.device.type, enabled=False):
            embedding: torch.Tensor = self.encoder(log_mel)
        return embedding

    def embed_references(self, mels: torch.Tensor) -> torch.Tensor:
        """Embed a batch's references, most of them without gradient: the encoder learns enough from a share."""
        taught = max(1, round(self.encoder_share * len(mels))) if self.training else len(mels)
        heard = [self.embed_speakers(mels[:taught], noise=self.training)]
        if taught < len(mels):
            with torch.no_grad():
                heard.append(self.embed_speakers(mels[taught:], noise=self.training))
        return torch.cat(heard)

    def forward(self, batch: Fields, mels: torch.Tensor) -> Outputs:
        """Compute everything that the losses need; ``mels`` are the references, packed ``[B, M, 128]``.

        Nothing here synchronises with the device: indices are integer tensors, and no shape depends on a value.
        """
        speakers = self.embed_references(mels)
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
            styles=None if self.style_head is None else self.style_head(speakers),
            style_target=self.styles.index_select(0, batch.speaker),
        )


@dataclass(frozen=True)
class Outputs:
    """What was found, and what is right.

    Logits of group 0 ``[N, V0]``, of groups 1-15 ``[K, 15, V]``, phones ``[2N, P]`` and speakers ``[B, S]``; the
    references' styles ``[B, D]``.
    """

    first: torch.Tensor
    first_target: torch.Tensor
    rest: torch.Tensor
    rest_target: torch.Tensor
    phones: torch.Tensor | None
    phone_target: torch.Tensor
    speakers: torch.Tensor
    speaker_target: torch.Tensor
    styles: torch.Tensor | None
    style_target: torch.Tensor

    def losses(self, smoothing: float) -> dict[str, torch.Tensor]:
        """Return mean losses over the known targets: "groups" ``[16]``, "phones", "speakers" and "styles"."""
        first = _mean_known(self._first_loss(smoothing), self.first_target)
        # Keep the heads' order [15, K, V]: any other order copies the largest tensor of the step.
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
        if self.styles is not None:
            losses["styles"] = functional.mse_loss(self.styles.float(), self.style_target)
        return losses

    def _first_loss(self, smoothing: float) -> torch.Tensor:
        """Return group 0's losses ``[N]``, smoothed only over the codebook: special ids must stay improbable."""
        logits = self.first.float()
        exact = functional.cross_entropy(logits, self.first_target, ignore_index=NOTHING, reduction="none")
        if not smoothing:
            return exact
        codebook = self.rest.shape[-1]
        spread = logits.logsumexp(-1) - logits[:, :codebook].mean(-1)
        return (1 - smoothing) * exact + smoothing * spread

    @torch.no_grad()
    def accuracies(self) -> dict[str, torch.Tensor]:
        """Return the share of correct greedy predictions, by the names of the losses."""
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
    """Return the mean over known targets; 0, not NaN, if there are none."""
    known = targets != NOTHING
    return (losses * known).sum() / known.sum().clamp(min=1)


def total_loss(losses: dict[str, torch.Tensor], options: Training, shares: torch.Tensor) -> torch.Tensor:
    """Return the weighted sum of the losses.

    Args:
        losses: means over this process's targets.
        options: the weights.
        shares: ``[3]``, in the order of ``batch.COUNTED``: this process's number of targets relative to the mean of all
            processes. With this weighting the average of the processes' gradients is that of the mean over all targets.
    """
    groups = losses["groups"]
    if groups.shape != (GROUPS,):
        raise ValueError(f"losses of {tuple(groups.shape)} groups: need {GROUPS}")
    weights = [group * weight for group, weight in zip(groups.unbind(), options.group_weights, strict=True)]
    # Groups 1-15 have the same number of frames in every batch.
    total = shares[0] * weights[0] + torch.stack(weights[1:]).sum()
    total = total + shares[2] * options.speaker_weight * losses["speakers"]
    if "styles" in losses:
        total = total + shares[2] * options.style_weight * losses["styles"]
    if "phones" in losses:
        total = total + shares[1] * options.phone_weight * losses["phones"]
    return total
