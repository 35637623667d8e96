"""Kokoro-82M (Apache-2.0) in torch: phonemes and a style vector to 24 kHz speech with the duration of every phoneme.

Needs the wheels ``kokoro==0.9.4`` (only its model code, no dependencies) and ``loguru``, and torch with transformers.
The model is that of the package kokoro, after StyleTTS 2.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

SAMPLE_RATE = 24000
SAMPLES_PER_STEP = 600  # a predicted duration is a whole number of steps, at 40 Hz
STYLE_SIZE = 256
MOST_PHONEMES = 510
CONFIG = {
    "istftnet": {
        "upsample_kernel_sizes": [20, 12],
        "upsample_rates": [10, 6],
        "gen_istft_hop_size": 5,
        "gen_istft_n_fft": 20,
        "resblock_dilation_sizes": [[1, 3, 5]] * 3,
        "resblock_kernel_sizes": [3, 7, 11],
        "upsample_initial_channel": 512,
    },
    "plbert": {
        "hidden_size": 768,
        "num_attention_heads": 12,
        "intermediate_size": 2048,
        "max_position_embeddings": 512,
        "num_hidden_layers": 12,
        "dropout": 0.1,
    },
    "dropout": 0.2,
    "hidden_dim": 512,
    "max_dur": 50,
    "n_layer": 3,
    "n_mels": 80,
    "n_token": 178,
    "style_dim": 128,
    "text_encoder_kernel_size": 5,
}
# Not in the ONNX model: the pooler, which is never used, and norms without weights, which keep their ones and zeros.
_NOT_SHIPPED = ("bert.pooler.", ".norm.")


@dataclass(frozen=True)
class Teacher:
    """A loaded Kokoro on one device."""

    module: Any
    vocabulary: Mapping[str, int]
    device: torch.device

    def speak(self, phonemes: str, style: torch.Tensor, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Speak one line.

        Args:
            phonemes: symbols of the vocabulary.
            style: ``[256]``, the voice's style for this number of phonemes.
            seed: of the excitation noise.

        Returns:
            The waveform, float32 ``[T]`` on the CPU, and samples per token, int64 ``[len(phonemes) + 2]`` including
            the padding at both ends; they sum to T.

        Raises:
            ValueError: no phonemes, too many, or some that are not in the vocabulary.
        """
        if not 0 < len(phonemes) <= MOST_PHONEMES:
            raise ValueError(
                f"{len(phonemes)} phonemes: the teacher speaks 1 to {MOST_PHONEMES}, split the line"
            )
        if unknown := sorted(set(phonemes) - set(self.vocabulary)):
            raise ValueError(f"phonemes {unknown} are not in the vocabulary: phonemise the line with misaki")
        ids = torch.tensor([[0, *(self.vocabulary[symbol] for symbol in phonemes), 0]], device=self.device)
        torch.manual_seed(seed)
        audio, steps = self.module.forward_with_tokens(ids, style[None].to(self.device))
        durations = steps.cpu() * SAMPLES_PER_STEP
        if durations.sum() != audio.shape[-1]:
            raise ValueError(
                f"{durations.sum()} samples predicted, {audio.shape[-1]} spoken: install kokoro 0.9.4"
            )
        return audio.float().cpu(), durations


def load_teacher(
    weights: Mapping[str, torch.Tensor], vocabulary: Mapping[str, int], device: str | torch.device = "cpu"
) -> Teacher:
    """Build Kokoro with these float weights; raises ValueError if one is missing or has another shape."""
    module = _build_module(vocabulary)
    module.load_state_dict(_matched(module.state_dict(), weights))
    return Teacher(module.eval().to(device), vocabulary, torch.device(device))


def _matched(
    state: Mapping[str, torch.Tensor], weights: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return the module's state with our weights in it."""
    matched = {}
    for name, own in state.items():
        if name not in weights and not any(part in name for part in _NOT_SHIPPED):
            raise ValueError(f"the teacher's weights lack {name}: make the bundle again")
        given = weights.get(name, own)
        if given.numel() != own.numel():
            raise ValueError(
                f"{name} has shape {tuple(given.shape)}, the teacher {tuple(own.shape)}: make the bundle again"
            )
        matched[name] = given.reshape(own.shape).to(own.dtype)
    return matched


def parameter_names() -> set[str]:
    """Return the names of the teacher's parameters and buffers."""
    return set(_build_module({}).state_dict())


def _build_module(vocabulary: Mapping[str, int]) -> Any:
    """Build Kokoro with random weights and without weight norms, which are folded into the published weights."""
    nothing = io.BytesIO()
    torch.save({}, nothing)  # KModel requires a file of weights; ours have other names
    nothing.seek(0)
    module = _import_kokoro().KModel(
        repo_id="bundle", config={**CONFIG, "vocab": dict(vocabulary)}, model=nothing
    )
    for part in module.modules():
        if hasattr(part, "weight_g"):
            torch.nn.utils.remove_weight_norm(part)
    return module


def _import_kokoro() -> Any:
    """Import ``kokoro.model`` without running ``kokoro/__init__.py``, which imports the packages of its G2P."""
    if "kokoro" not in sys.modules:
        spec = importlib.util.find_spec("kokoro")
        if spec is None:
            raise ImportError("the package kokoro is missing: pip install --no-deps kokoro==0.9.4 loguru")
        sys.modules["kokoro"] = importlib.util.module_from_spec(spec)
    return importlib.import_module("kokoro.model")
