"""Write Qwen3-TTS checkpoints with random weights, in the published format.

Tests use tiny ones (a few MB), benchmarks full-size ones: the same shapes and kernels as the published models, but
their speech is noise. The text tokenizer is a small byte-level one built here, so nothing is downloaded.
"""

from __future__ import annotations

import copy
import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from .qwen_tokenizer import ROLE_WORDS, read_special_ids, write_tokenizer
from .upstream.package import default_rope_registered, import_qwen_tts

KINDS = ("base", "custom_voice", "voice_design")
# Offsets from the codebook's size, as in the published checkpoints; the speakers' ids are ours.
LANGUAGES = {
    "english": 2,
    "german": 5,
    "spanish": 6,
    "chinese": 7,
    "japanese": 10,
    "french": 13,
    "sichuan_dialect": 14,
    "korean": 16,
    "russian": 21,
    "italian": 22,
    "portuguese": 23,
    "beijing_dialect": 26,
}
SPEAKER_NAMES = ("serena", "vivian", "uncle_fu", "ryan", "aiden", "ono_anna", "sohee", "eric", "dylan")
SPEAKERS = {name: 1018 - index for index, name in enumerate(SPEAKER_NAMES)}
DIALECTS = {"eric": "sichuan_dialect", "dylan": "beijing_dialect"}
LAYER_SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
)


@dataclass(frozen=True)
class Shape:
    """Widths and depths of a checkpoint. ``size`` is upstream's tts_model_size ("0b6" or "1b7")."""

    size: str
    talker: dict[str, int]
    predictor: dict[str, int]
    codebook: int
    text_vocab: int
    text_hidden: int
    codec: dict[str, int]
    mimi: dict[str, int]
    speaker_channels: tuple[int, ...] = (512, 512, 512, 512, 1536)
    mrope: tuple[int, int, int] = (24, 20, 20)
    quantizers: int = 32
    extra: dict[str, int] = field(default_factory=dict)


def _layers(*sizes: int) -> dict[str, int]:
    """Return the config keys of a stack of layers; ``sizes`` in the order of LAYER_SIZES."""
    return dict(zip(LAYER_SIZES, sizes, strict=True))


_TINY = Shape(
    size="0b6",
    talker=_layers(64, 96, 3, 4, 2, 16),
    predictor=_layers(64, 96, 2, 4, 2, 16),
    codebook=64,
    text_vocab=512,
    text_hidden=48,
    codec={**_layers(32, 64, 2, 2, 2, 16), "latent_dim": 32, "codebook_dim": 16, "decoder_dim": 32},
    mimi={**_layers(32, 64, 2, 2, 2, 16), "num_filters": 2, "codebook_dim": 8, "upsample_groups": 32},
    speaker_channels=(32, 32, 32, 32, 96),
    mrope=(4, 2, 2),
    quantizers=16,
)
_FULL = Shape(
    size="0b6",
    talker=_layers(1024, 3072, 28, 16, 8, 128),
    predictor=_layers(1024, 3072, 5, 16, 8, 128),
    codebook=2048,
    text_vocab=151936,
    text_hidden=2048,
    codec={
        **_layers(512, 1024, 8, 16, 16, 64),
        "latent_dim": 1024,
        "codebook_dim": 512,
        "decoder_dim": 1536,
    },
    mimi={
        **_layers(512, 2048, 8, 8, 8, 64),
        "num_filters": 64,
        "codebook_dim": 256,
        "upsample_groups": 512,
    },
)
SHAPES = {
    "tiny": _TINY,
    "tiny-1.7B": replace(_TINY, size="1b7", talker=_layers(96, 128, 3, 4, 2, 16)),
    "0.6B": _FULL,
    "1.7B": replace(_FULL, size="1b7", talker=_layers(2048, 6144, 28, 16, 8, 128)),
}


def write_checkpoint(
    path: Path, shape: str = "tiny", kind: str = "base", seed: int = 0, dtype: torch.dtype = torch.float32
) -> Path:
    """Write a checkpoint folder that upstream's ``from_pretrained`` loads, and return its path.

    Args:
        path: the folder, created if missing.
        shape: a key of ``SHAPES``.
        kind: "base" (with a speaker encoder), "custom_voice" (with speakers) or "voice_design".
        seed: the same seed gives the same weights.
        dtype: the dtype of the saved weights.

    Raises:
        ValueError: an unknown shape or kind.
    """
    if shape not in SHAPES or kind not in KINDS:
        raise ValueError(f"shape must be one of {sorted(SHAPES)} and kind one of {KINDS}, not {shape!r} and {kind!r}")
    generator = torch.Generator().manual_seed(seed)
    path.mkdir(parents=True, exist_ok=True)
    _write_text_tokenizer(path)
    import_qwen_tts()
    with default_rope_registered():
        _write_model(path, SHAPES[shape], kind, generator, dtype)
        _write_codec(path / "speech_tokenizer", SHAPES[shape], generator, dtype)
    return path


def _write_text_tokenizer(path: Path) -> None:
    """Write a byte-level BPE whose only merges build the role words."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    tokens = list(bytes_to_unicode().values())
    merges: list[tuple[str, str]] = []
    for word in ROLE_WORDS:
        for cut in range(1, len(word)):
            merges.append((word[:cut], word[cut]))
            tokens.append(word[: cut + 1])
    write_tokenizer(path, {token: index for index, token in enumerate(dict.fromkeys(tokens))}, merges)


def _talker_config(shape: Shape, kind: str) -> dict[str, object]:
    """Return the talker's config, with ids above the codebook as published: pad at +100, bos at +101, eos at +102."""
    codes = shape.codebook
    speakers = SPEAKERS if kind == "custom_voice" else {}
    predictor = {
        **shape.predictor,
        "vocab_size": codes,
        "num_code_groups": 16,
        "rope_theta": 1000000,
        "max_position_embeddings": 65536,
        "layer_types": ["full_attention"] * shape.predictor["num_hidden_layers"],
    }
    return {
        **shape.talker,
        "vocab_size": codes + 1024,
        "text_vocab_size": shape.text_vocab,
        "text_hidden_size": shape.text_hidden,
        "num_code_groups": 16,
        "rope_theta": 1000000,
        "max_position_embeddings": 32768,
        "code_predictor_config": predictor,
        "rope_scaling": {"interleaved": True, "mrope_section": list(shape.mrope), "rope_type": "default"},
        "codec_pad_id": codes + 100,
        "codec_bos_id": codes + 101,
        "codec_eos_token_id": codes + 102,
        "codec_think_id": codes + 106,
        "codec_nothink_id": codes + 107,
        "codec_think_bos_id": codes + 108,
        "codec_think_eos_id": codes + 109,
        "codec_language_id": {name: codes + offset for name, offset in LANGUAGES.items()},
        "spk_id": {name: codes + offset for name, offset in speakers.items()},
        "spk_is_dialect": {name: DIALECTS.get(name, False) for name in speakers},
    }


def _write_model(path: Path, shape: Shape, kind: str, generator: torch.Generator, dtype: torch.dtype) -> None:
    models = import_qwen_tts().core.models
    ids = read_special_ids(path)
    config = {
        "architectures": ["Qwen3TTSForConditionalGeneration"],
        "model_type": "qwen3_tts",
        "talker_config": _talker_config(shape, kind),
        "speaker_encoder_config": {
            "enc_dim": shape.talker["hidden_size"],
            "enc_channels": list(shape.speaker_channels),
        },
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "tts_model_size": shape.size,
        "tts_model_type": kind,
        "im_start_token_id": ids["<|im_start|>"],
        "im_end_token_id": ids["<|im_end|>"],
        "tts_pad_token_id": ids["<tts_pad>"],
        "tts_bos_token_id": ids["<tts_text_bos>"],
        "tts_eos_token_id": ids["<tts_text_eod>"],
    }
    model = models.Qwen3TTSForConditionalGeneration(models.Qwen3TTSConfig(**copy.deepcopy(config)))
    _save(path, _random_state(model, generator), config, dtype)
    generation = {
        "do_sample": True,
        "repetition_penalty": 1.05,
        "temperature": 0.9,
        "top_p": 1.0,
        "top_k": 50,
        "subtalker_dosample": True,
        "subtalker_temperature": 0.9,
        "subtalker_top_p": 1.0,
        "subtalker_top_k": 50,
        "max_new_tokens": 8192,
    }
    _write_json(path / "generation_config.json", generation)


def _codec_config(shape: Shape) -> dict[str, object]:
    common = {"codebook_size": shape.codebook}
    return {
        "architectures": ["Qwen3TTSTokenizerV2Model"],
        "model_type": "qwen3_tts_tokenizer_12hz",
        "encoder_config": {
            **shape.mimi,
            **common,
            "num_quantizers": shape.quantizers,
            "rope_theta": 10000.0,
            "vector_quantization_hidden_dimension": shape.mimi["codebook_dim"],
        },
        "decoder_config": {**shape.codec, **common, "num_quantizers": 16, "rope_theta": 10000},
    }


def _build_codec(config: dict[str, object]) -> Any:
    core = import_qwen_tts().core
    return core.Qwen3TTSTokenizerV2Model(core.Qwen3TTSTokenizerV2Config(**copy.deepcopy(config)))


def random_codec(shape: str = "tiny", seed: int = 0) -> Any:
    """Return upstream's ``Qwen3TTSTokenizerV2Model`` with random weights: float32, on the CPU, nothing written."""
    with default_rope_registered():
        model = _build_codec(_codec_config(SHAPES[shape]))
    model.load_state_dict(_random_audible_state(model, torch.Generator().manual_seed(seed)))
    return model.eval().requires_grad_(False)


def _write_codec(path: Path, shape: Shape, generator: torch.Generator, dtype: torch.dtype) -> None:
    path.mkdir(exist_ok=True)
    config = _codec_config(shape)
    _save(path, _random_audible_state(_build_codec(config), generator), config, dtype)
    features = {
        "feature_extractor_type": "EncodecFeatureExtractor",
        "feature_size": 1,
        "sampling_rate": 24000,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": True,
    }
    _write_json(path / "preprocessor_config.json", features)


def _save(path: Path, state: dict[str, torch.Tensor], config: dict[str, object], dtype: torch.dtype) -> None:
    # Clones: safetensors refuses tensors that share memory.
    save_file(
        {
            name: tensor.to(dtype if tensor.is_floating_point() else tensor.dtype).clone()
            for name, tensor in state.items()
        },
        path / "model.safetensors",
        metadata={"format": "pt"},
    )
    _write_json(path / "config.json", {**config, "dtype": str(dtype).removeprefix("torch.")})


def _random_state(model: torch.nn.Module, generator: torch.Generator) -> dict[str, torch.Tensor]:
    return {name: _random(name, tensor, generator) for name, tensor in model.state_dict().items()}


def _random(name: str, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return weights that keep activations near unit size, so that logits are neither flat nor one-hot."""
    if not tensor.is_floating_point() or name.endswith(("initialized", "cluster_usage")):
        return tensor.clone()
    noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float32)
    if name.endswith(("alpha", "beta")):  # SnakeBeta takes their exponentials
        return 0.1 * noise
    if tensor.dim() == 1:
        return (0.05 * noise) if name.endswith("bias") else 1.0 + 0.1 * noise
    if "embedding" in name or "embed_sum" in name:
        return noise
    return noise / math.sqrt(tensor[0].numel())


@torch.no_grad()
def _random_audible_state(model: Any, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Return a codec's weights, with the last convolution scaled so that random codes decode to about -20 dBFS."""
    state = _random_state(model, generator)
    model.load_state_dict(state)
    config = model.config.decoder_config
    codes = torch.randint(config.codebook_size, (1, config.num_quantizers, 20), generator=generator)
    last = max(int(name.split(".")[2]) for name in state if name.startswith("decoder.decoder."))
    for _ in range(4):  # the decoder clips at 1, so a single measurement of a loud output is too low
        level = model.decoder(codes).std().clamp(min=1e-9)
        for end in ("weight", "bias"):
            state[f"decoder.decoder.{last}.conv.{end}"] *= 0.1 / level
        model.load_state_dict(state)
    return state


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
