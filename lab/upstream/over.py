"""Upstream's own model over a loaded model's tensors, for comparisons."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.model.network import inverse_frequencies
from tokenizers import Tokenizer

from .package import default_rope_registered, import_qwen_tts


def upstream_of(model: Model) -> Any:
    """Return upstream's ``Qwen3TTSForConditionalGeneration`` that shares the tensors of a model with full weights."""
    models = import_qwen_tts().core.models
    with torch.device("meta"), default_rope_registered():
        config = models.Qwen3TTSConfig(**_fields(model.config))
        for part in (config, config.talker_config, config.talker_config.code_predictor_config):
            part._attn_implementation = model.attention
        upstream = models.Qwen3TTSForConditionalGeneration(config)
    upstream.load_state_dict(model.network.state_dict(), assign=True)
    for part in upstream.modules():
        if hasattr(part, "inv_freq"):
            part.inv_freq = part.original_inv_freq = inverse_frequencies(part.config, "cpu").to(model.device)
    return upstream.eval().requires_grad_(False)


def codec_of(model: Model) -> Any:
    """Return upstream's ``Qwen3TTSTokenizer`` that shares the tensors of a model's codec on the CPU."""
    from transformers import EncodecFeatureExtractor

    package = import_qwen_tts()
    with default_rope_registered():
        codec = package.core.Qwen3TTSTokenizerV2Model(
            package.core.Qwen3TTSTokenizerV2Config(**_fields(model.codec.config))
        )
    codec.load_state_dict(model.codec.state_dict(), assign=True)
    tokenizer = package.inference.qwen3_tts_tokenizer.Qwen3TTSTokenizer()
    tokenizer.model, tokenizer.config = codec.eval().requires_grad_(False), codec.config
    tokenizer.feature_extractor = EncodecFeatureExtractor(return_attention_mask=True)
    tokenizer.device = torch.device("cpu")
    return tokenizer


def wrap(model: Model, upstream: Any) -> Any:
    """Return upstream's public class around its model, with our tokenizer."""
    tokenizer = Tokenizer.from_str(model.texts.backend.to_str())  # ours reads control tokens as text

    def process(text: str, **_: Any) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.tensor([tokenizer.encode(text, add_special_tokens=False).ids])}

    return import_qwen_tts().Qwen3TTSModel(upstream, process, {})


def _fields(config: SimpleNamespace) -> dict[str, Any]:
    return {
        name: _fields(value) if isinstance(value, SimpleNamespace) else value
        for name, value in vars(config).items()
        if name != "attention"
    }
