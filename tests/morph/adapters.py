"""Write LoRA adapters as peft writes them, with random weights."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

ATTENTION = tuple(f"talker.model.layers.{layer}.self_attn.{name}_proj" for layer in (0, 2) for name in "qkvo")
PREDICTOR = ("talker.code_predictor.model.layers.1.mlp.up_proj", "talker.code_predictor.lm_head.7")
OTHERS = ("talker.model.layers.1.mlp.gate_proj", "talker.codec_head", "talker.text_projection.linear_fc1")
RANK, ALPHA, SIZE = 4, 16, 0.2


def write_adapter(
    folder: Path,
    checkpoint: Path,
    layers: tuple[str, ...] = ATTENTION,
    ranks: Mapping[str, int] | None = None,
    seed: int = 0,
    prefix: str = "",
    **config: Any,
) -> Path:
    """Write an adapter for a checkpoint's layers and return its folder.

    Args:
        folder: created if missing.
        checkpoint: tells the shapes.
        layers: linear layers of upstream's model.
        ranks: of layers that have another rank than RANK.
        seed: of its weights.
        prefix: of the layers that the training did not see, such as "talker.".
        config: more fields of ``adapter_config.json``, or others instead.
    """
    from qwen3_tts_morph.morph.checkpoint.verify import read_headers

    headers, generator = read_headers([checkpoint / "model.safetensors"]), torch.Generator().manual_seed(seed)
    tensors = {}
    for layer in layers:
        (rows, columns), _ = headers[f"{layer}.weight"]
        rank = (ranks or {}).get(layer, RANK)
        name = f"base_model.model.{layer.removeprefix(prefix)}"
        tensors[f"{name}.lora_A.weight"] = SIZE * torch.randn(rank, columns, generator=generator)
        tensors[f"{name}.lora_B.weight"] = SIZE * torch.randn(rows, rank, generator=generator)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    said = {
        "peft_type": "LORA",
        "r": RANK,
        "lora_alpha": ALPHA,
        "bias": "none",
        "base_model_name_or_path": "Qwen/Base",
    }
    (folder / "adapter_config.json").write_text(json.dumps(said | config), encoding="utf-8")
    return folder


def change_config(folder: Path, **fields: Any) -> Path:
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | fields), encoding="utf-8")
    return folder
