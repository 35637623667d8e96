"""The speaker encoder: upstream's own ECAPA-TDNN, on upstream's mel."""

from __future__ import annotations

from typing import Any

import torch
from qwen3_tts_morph.morph.checkpoint.qwen_tts import import_qwen_tts

from .config import Shape

SAMPLE_RATE = 24000
MEL_HOP = 256


def encoder_config(shape: Shape) -> dict[str, Any]:
    """Return ``speaker_encoder_config`` of config.json."""
    return {
        "enc_dim": shape.talker.hidden,
        "enc_channels": list(shape.encoder_channels),
        "enc_res2net_scale": shape.encoder_scale,
        "enc_attention_channels": shape.encoder_attention,
        "enc_se_channels": shape.encoder_attention,
        "sample_rate": SAMPLE_RATE,
    }


def _upstream() -> Any:
    return import_qwen_tts().core.models.modeling_qwen3_tts


def build_encoder(shape: Shape) -> torch.nn.Module:
    """Return upstream's speaker encoder with new weights: log mel ``[B, M, 128]`` to ``[B, H]``."""
    upstream = _upstream()
    config = upstream.Qwen3TTSSpeakerEncoderConfig(**encoder_config(shape))
    encoder: torch.nn.Module = upstream.Qwen3TTSSpeakerEncoder(config)
    return encoder


def speaker_mels(waveforms: torch.Tensor) -> torch.Tensor:
    """Return upstream's log mel of waveforms ``[B, T]`` at 24 kHz: ``[B, M, 128]``, 93.75 Hz, on the same device.

    Call it once per batch: upstream computes its filters in every call.
    """
    mel: torch.Tensor = _upstream().mel_spectrogram(
        waveforms.float(),
        n_fft=1024,
        num_mels=128,
        sampling_rate=SAMPLE_RATE,
        hop_size=MEL_HOP,
        win_size=1024,
        fmin=0,
        fmax=SAMPLE_RATE // 2,
    )
    return mel.transpose(1, 2)
