"""The codec under training: upstream's modules, with a quantiser that learns instead of upstream's.

Export is a state dict: upstream's ``Qwen3TTSTokenizerV2Model`` with the learnt code vectors copied in twice, for the
encoder and for the decoder.
"""

from __future__ import annotations

import copy
import math
import re
from dataclasses import dataclass
from typing import Any

import torch
from qwen3_tts_morph.morph.checkpoint.qwen_tts import default_rope_registered, import_qwen_tts
from torch import nn

from .config import GROUPS, Config, Shape
from .crops import CropForward
from .quantizer import Quantised, ResidualQuantiser

HALVES = 2  # phone predictions per frame
UNUSED = re.compile(
    r".*(embedding_sum|cluster_usage)$|encoder\.quantizer\..*output_proj|decoder\.quantizer\..*input_proj"
)

DECODING = re.compile(r"decoder\.")


def build_upstream(shape: Shape) -> Any:
    """Return upstream's ``Qwen3TTSTokenizerV2Model``, float32, initialised to keep activations near unit size."""
    core = import_qwen_tts().core
    with default_rope_registered():
        config = core.Qwen3TTSTokenizerV2Config(**copy.deepcopy(shape.upstream_config()))
        model = core.Qwen3TTSTokenizerV2Model(config)
    _initialise(model)
    return model.float()


@torch.no_grad()
def _initialise(model: Any) -> None:
    """Upstream initialises its own classes with a standard deviation of 0.02: a signal vanishes after a few layers."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Conv1d | nn.ConvTranspose1d):
            fan = module.weight[0].numel()
            if isinstance(module, nn.ConvTranspose1d):  # each output sees kernel / stride taps
                fan = module.in_channels * module.kernel_size[0] // module.stride[0]
            nn.init.normal_(module.weight, std=1 / math.sqrt(fan))
            if module.bias is not None:
                # Not zero: on digital silence the norms would divide by almost zero.
                nn.init.uniform_(module.bias, -1 / math.sqrt(fan), 1 / math.sqrt(fan))
        if name.startswith("decoder.decoder") and name.endswith("conv2.conv"):
            module.weight.mul_(0.5)  # three residual units per block
        if hasattr(module, "gamma"):  # ConvNeXt's layer scale, 1e-6 upstream
            nn.init.constant_(module.gamma, 0.1)
    model.decoder.decoder[-1].conv.weight.mul_(0.01)  # speech is quiet


def quantiser_projections(model: Any) -> tuple[nn.Module, nn.Module, nn.Module, nn.Module]:
    """Return the projections into the code spaces of group 0 and of the others, and the projections out of them."""
    encoder, decoder = model.encoder.quantizer, model.decoder.quantizer
    return (
        encoder.semantic_residual_vector_quantizer.input_proj,
        encoder.acoustic_residual_vector_quantizer.input_proj,
        decoder.rvq_first.output_proj,
        decoder.rvq_rest.output_proj,
    )


def unused_parameters(model: Any) -> set[str]:
    """Return the names of parameters that only the format needs: codebooks (filled at export) and two projections."""
    return {name for name, _ in model.named_parameters() if UNUSED.match(name)}


@dataclass(frozen=True)
class Coded:
    """Result for crops: ``wave`` ``[B, T]``, logits of ``phones`` ``[B, frames, 2, P]``, and the quantised vectors."""

    wave: torch.Tensor
    phones: torch.Tensor
    quantised: Quantised


class Codec(nn.Module):
    """Upstream's codec, the learning quantiser, and the phone classifier on group 0.

    Args:
        config: shapes and quantiser.
        phones: number of phone symbols.
        fast: fuse SnakeBeta with torch.compile, and run the convolutions in channels-last layout (CUDA).
    """

    def __init__(self, config: Config, phones: int, fast: bool = False):
        super().__init__()
        self.config = config
        self.phone_count = phones
        self.upstream = build_upstream(config.shape)
        self.quantiser = ResidualQuantiser(
            GROUPS, config.shape.codebook, config.shape.code_dim, config.quantiser
        )
        self.phone_head = nn.Sequential(
            nn.Linear(config.shape.code_dim, 256), nn.GELU(), nn.Linear(256, HALVES * phones)
        )
        unused = unused_parameters(self.upstream)
        for name, parameter in self.upstream.named_parameters():
            frozen = config.training.decoder_only and not DECODING.match(name)
            parameter.requires_grad_(name not in unused and not frozen)
        if config.training.decoder_only:
            self.phone_head.requires_grad_(False)
        self.crops = CropForward(self.upstream, fast)

    def forward(self, wave: torch.Tensor, groups: torch.Tensor | None = None, quantise: bool = True) -> Coded:
        """Encode and decode crops ``[B, T]`` of whole frames, each with its first ``groups`` ``[B]`` groups."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.config.training.decoder_only):
            quantised = self.quantise(wave, groups) if quantise else self.quantiser.skip(*self.embed(wave))
        return self.decode_quantised(quantised)

    def decode_codes(self, codes: torch.Tensor, groups: torch.Tensor) -> Coded:
        """Decode given codes ``[B, frames, 16]``; the encoder is not used."""
        return self.decode_quantised(self.quantiser.look_up(codes, groups))

    def decode_quantised(self, quantised: Quantised) -> Coded:
        """Return the waveform, and group 0's phone predictions."""
        logits = self.phone_head(quantised.first.transpose(1, 2))
        return Coded(
            wave=self.decode(self.damp(quantised.first), quantised.rest),
            phones=logits.unflatten(-1, (HALVES, self.phone_count)),
            quantised=quantised,
        )

    def quantise(self, wave: torch.Tensor, groups: torch.Tensor | None) -> Quantised:
        """Quantise crops; codes are chosen in float32, as upstream does."""
        first, rest = self.embed(wave)
        with torch.autocast(wave.device.type, enabled=False):
            return self.quantiser(first, rest, groups)

    def damp(self, first: torch.Tensor) -> torch.Tensor:
        """Return the same values with a smaller gradient from the reconstruction."""
        share = self.config.quantiser.semantic_gradient
        return share * first + (1 - share) * first.detach()

    def embed(self, wave: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Encode crops to the vectors to quantise, float32 ``[B, code_dim, frames]``: group 0's and groups 1-15's."""
        hidden = self.crops.encode(wave).float()
        into_first, into_rest, _, _ = quantiser_projections(self.upstream)
        with torch.autocast(hidden.device.type, enabled=False):
            return into_first(hidden), into_rest(hidden)

    def decode(self, first: torch.Tensor, rest: torch.Tensor) -> torch.Tensor:
        """Decode quantised vectors to the waveform ``[B, T]``, not clamped."""
        _, _, out_of_first, out_of_rest = quantiser_projections(self.upstream)
        with torch.autocast(first.device.type, enabled=False):
            latent = out_of_first(first.float()) + out_of_rest(rest.float())
        return self.crops.decode(latent).float()

    def train(self, mode: bool = True) -> Codec:
        """See ``nn.Module.train``; with ``decoder_only`` the codebooks do not learn."""
        super().train(mode)
        self.quantiser.train(mode and not self.config.training.decoder_only)
        return self

    def trained(self) -> dict[str, nn.Parameter]:
        """Return the parameters that learn by gradient."""
        return {name: parameter for name, parameter in self.named_parameters() if parameter.requires_grad}

    def output_layer(self) -> list[nn.Parameter]:
        """Return the parameters of the final convolution: its weights are a hundredth of the others'."""
        return list(self.upstream.decoder.decoder[-1].parameters())

    def averaged(self) -> dict[str, torch.Tensor]:
        """Return the tensors to average: the parameters in use and the code vectors."""
        unused = {f"upstream.{name}" for name in unused_parameters(self.upstream)}
        used = {name: value.data for name, value in self.named_parameters() if name not in unused}
        return {**used, "codes": self.quantiser.vectors}


@torch.no_grad()
def fill_codebooks(codec: Codec) -> None:
    """Copy the learnt vectors into upstream's two sets of codebooks."""
    encoder, decoder = codec.upstream.encoder.quantizer, codec.upstream.decoder.quantizer
    ours = [encoder.semantic_residual_vector_quantizer, encoder.acoustic_residual_vector_quantizer]
    theirs = [decoder.rvq_first, decoder.rvq_rest]
    encoding = [layer.codebook for part in ours for layer in part.layers]
    decoding = [layer._codebook for part in theirs for layer in part.vq.layers]
    for vectors, into, out_of in zip(codec.quantiser.vectors, encoding, decoding, strict=True):
        into.embed_sum.copy_(vectors)
        into.cluster_usage.fill_(1)
        into._embed = None  # Mimi caches the table on first use
        out_of.embedding_sum.copy_(vectors)
        out_of.cluster_usage.fill_(1)


def parameter_counts(model: Any) -> dict[str, int]:
    """Return the number of values in the exported file by part."""
    counts: dict[str, int] = {}
    for name, value in model.state_dict().items():
        part = ".".join(name.split(".")[:2])
        counts[part] = counts.get(part, 0) + value.numel()
    return {**counts, "all": sum(counts.values())}
