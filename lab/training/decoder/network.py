"""The shipped codec: its decoder learns, in windows; its encoder and codebooks stay as they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from qwen3_tts_morph.morph.checkpoint.qwen_tts import default_rope_registered, import_qwen_tts
from torch import nn

from ..codec.config import GROUPS
from ..codec.crops import CropForward
from ..codec.model import UNUSED

FRAME_FEATURES = 4  # of the decoder's slow layers per frame
PLAIN = ("alpha", "beta", "bias", "gamma", "scale")  # parameters without weight decay, besides norms


def load_codec(folder: Path) -> Any:
    """Load a speech tokenizer with upstream's classes, float32, on the CPU."""
    qwen_tts = import_qwen_tts()
    with default_rope_registered():
        model = qwen_tts.Qwen3TTSTokenizer.from_pretrained(str(folder), dtype=torch.float32).model
    return model.cpu().eval()


def learns(name: str) -> bool:
    """Return whether a parameter of the codec is one of the decoder's that decoding uses and gradients can change."""
    return name.startswith("decoder.") and not UNUSED.match(name)


class WindowDecoder(nn.Module):
    """Decodes windows of codes with a codec's weights.

    Args:
        codec: upstream's model, from ``load_codec``.
        decoded: frames that the fast layers decode.
        fast: fuse SnakeBeta with torch.compile, and run the convolutions in channels-last layout (CUDA).
    """

    vectors: torch.Tensor

    def __init__(self, codec: Any, decoded: int, fast: bool = False):
        super().__init__()
        self.codec, self.decoded = codec, decoded
        for name, parameter in codec.named_parameters():
            parameter.requires_grad_(learns(name))
        self.windows, self.lines = CropForward(codec, fast), CropForward(codec)
        self.register_buffer("vectors", _vectors(codec), persistent=False)

    def forward(self, codes: torch.Tensor, offsets: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
        """Decode windows.

        Args:
            codes: ``[B, frames, 16]``.
            offsets: ``[B]``, the frame at which the fast layers begin.
            groups: ``[B]``, how many groups to decode with.

        Returns:
            float32 ``[B, decoded * 1920]``, not clamped.
        """
        features = self.windows.to_features(self._latent(codes, groups))
        places = torch.arange(self.decoded * FRAME_FEATURES, device=codes.device)
        places = offsets[:, None] * FRAME_FEATURES + places
        chosen = features.gather(2, places[:, None].expand(-1, features.shape[1], -1))
        return self.windows.to_wave(chosen).float()

    def whole(self, codes: torch.Tensor) -> torch.Tensor:
        """Decode ``[B, frames, 16]`` from its start, all frames, as a line is decoded: ``[B, frames * 1920]``."""
        groups = torch.full((len(codes),), GROUPS, device=codes.device)
        return self.lines.decode(self._latent(codes, groups)).float()

    def _latent(self, codes: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
        numbers = torch.arange(GROUPS, device=codes.device)
        chosen = self.vectors[numbers, codes] * (groups[:, None] > numbers)[:, None, :, None]
        first, rest = chosen[:, :, 0].transpose(1, 2), chosen[:, :, 1:].sum(2).transpose(1, 2)
        quantizer = self.codec.decoder.quantizer
        with torch.autocast(codes.device.type, enabled=False):
            return quantizer.rvq_first.output_proj(first) + quantizer.rvq_rest.output_proj(rest)

    def learnt(self) -> dict[str, nn.Parameter]:
        """Return the parameters that learn, by their name in the codec's file."""
        return {name: value for name, value in self.codec.named_parameters() if value.requires_grad}

    def parts(self) -> tuple[list[nn.Parameter], list[nn.Parameter], list[nn.Parameter]]:
        """Return the parameters with weight decay, those without, and the output layer's."""
        output = {id(value) for value in self.codec.decoder.decoder[-1].parameters()}
        learnt = {name: value for name, value in self.learnt().items() if id(value) not in output}
        plain = {name for name, value in learnt.items() if value.ndim == 1 or name.endswith(PLAIN)}
        return (
            [value for name, value in learnt.items() if name not in plain],
            [value for name, value in learnt.items() if name in plain],
            list(self.codec.decoder.decoder[-1].parameters()),
        )

    @torch.no_grad()
    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Copy weights by name into the decoder; raises ValueError if one is missing."""
        learnt = self.learnt()
        if missing := sorted(learnt.keys() - tensors.keys()):
            raise ValueError(
                f"the weights lack {missing[0]} and {len(missing) - 1} more: they belong to another codec"
            )
        for name, value in learnt.items():
            value.copy_(tensors[name])


@torch.no_grad()
def _vectors(codec: Any) -> torch.Tensor:
    """Return the decoder's code vectors ``[16, codebook, dim]``."""
    quantizer = codec.decoder.quantizer
    books = [
        layer._codebook for part in (quantizer.rvq_first, quantizer.rvq_rest) for layer in part.vq.layers
    ]
    if len(books) != GROUPS:
        raise ValueError(f"the codec has {len(books)} groups: only {GROUPS} are supported")
    return torch.stack([book.embedding_sum / book.cluster_usage.clamp(min=1e-5)[:, None] for book in books])
