"""A checkpoint's config.json as attributes, with upstream's defaults for missing fields."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

# The defaults of upstream's config classes, for the fields that the pack reads; an object is a config of its own.
PREDICTOR: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 5,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000,
    "rope_scaling": None,
    "attention_bias": False,
    "use_sliding_window": False,
    "layer_types": [],
    "num_code_groups": 32,
}
TALKER: dict[str, Any] = {
    "vocab_size": 3072,
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_hidden_layers": 20,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000,
    "rope_scaling": None,
    "attention_bias": False,
    "use_sliding_window": False,
    "max_position_embeddings": 32768,
    "num_code_groups": 32,
    "text_hidden_size": 2048,
    "codec_eos_token_id": 4198,
    "codec_think_id": 4202,
    "codec_nothink_id": 4203,
    "codec_think_bos_id": 4204,
    "codec_think_eos_id": 4205,
    "codec_pad_id": 4196,
    "codec_bos_id": 4197,
    "spk_id": None,
    "spk_is_dialect": None,
    "codec_language_id": None,
    "code_predictor_config": PREDICTOR,
}
SPEAKER_ENCODER: dict[str, Any] = {
    "mel_dim": 128,
    "enc_dim": 1024,
    "enc_channels": [512, 512, 512, 512, 1536],
    "enc_kernel_sizes": [5, 3, 3, 3, 1],
    "enc_dilations": [1, 2, 3, 4, 1],
    "enc_attention_channels": 128,
    "enc_res2net_scale": 8,
    "enc_se_channels": 128,
}
MODEL: dict[str, Any] = {
    "talker_config": TALKER,
    "speaker_encoder_config": SPEAKER_ENCODER,
    "tts_model_size": None,
    "tts_model_type": None,
    "im_start_token_id": 151644,
    "im_end_token_id": 151645,
    "tts_pad_token_id": 151671,
    "tts_bos_token_id": 151672,
    "tts_eos_token_id": 151673,
}

CODEC_DECODER: dict[str, Any] = {
    "codebook_size": 2048,
    "hidden_size": 1024,
    "latent_dim": 1024,
    "rope_theta": 10000,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "attention_bias": False,
    "sliding_window": 72,
    "intermediate_size": 3072,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "num_hidden_layers": 8,
    "num_quantizers": 16,
    "upsample_rates": [8, 5, 4, 3],
    "upsampling_ratios": [2, 2],
    "decoder_dim": 1536,
}
CODEC_ENCODER: dict[str, Any] = {
    "sampling_rate": 24000,
    "audio_channels": 1,
    "hidden_size": 512,
    "num_filters": 64,
    "num_residual_layers": 1,
    "upsampling_ratios": [8, 6, 5, 4],
    "kernel_size": 7,
    "last_kernel_size": 3,
    "residual_kernel_size": 3,
    "dilation_growth_rate": 2,
    "use_causal_conv": True,
    "pad_mode": "constant",
    "compress": 2,
    "codebook_size": 2048,
    "codebook_dim": 256,
    "num_quantizers": 32,
    "num_semantic_quantizers": 1,
    "use_conv_shortcut": False,
    "vector_quantization_hidden_dimension": 256,
    "num_hidden_layers": 8,
    "intermediate_size": 2048,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "hidden_act": "gelu",
    "norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "sliding_window": 250,
    "attention_bias": False,
}
CODEC: dict[str, Any] = {
    "encoder_config": CODEC_ENCODER,
    "decoder_config": CODEC_DECODER,
    "encoder_valid_num_quantizers": 16,
    "output_sample_rate": 24000,
    "decode_upsample_rate": 1920,
}


def fill_in(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> SimpleNamespace:
    """Return a config's fields as attributes, with the defaults for missing fields."""
    fields = {**defaults, **given}
    for name, inner in defaults.items():
        if isinstance(inner, dict):
            fields[name] = fill_in(given.get(name) or {}, inner)
    rope = given.get("rope_parameters")
    if isinstance(rope, dict):  # written by transformers 5
        fields |= {"rope_theta": given.get("rope_theta", rope.get("rope_theta")), "rope_scaling": rope}
    return SimpleNamespace(**fields)
