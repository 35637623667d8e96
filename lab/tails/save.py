"""Write a file of trained tails, which ``morph/checkpoint/trained_files.py`` reads."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from qwen3_tts_morph.morph.checkpoint.files import write_tensors
from qwen3_tts_morph.morph.checkpoint.trained_files import FORMAT, VERSION, predictor_fingerprint
from qwen3_tts_morph.morph.model.tail import Tail


def save_tails(path: Path, tails: Iterable[Tail], checkpoint: Path) -> None:
    """Write the tails of a checkpoint folder to a file, in bf16. A failed write leaves no file."""
    tensors: dict[str, torch.Tensor] = {}
    about: dict[str, Any] = {}
    for tail in tails:
        about[str(tail.seq_groups)] = asdict(tail.info)
        for name, part in tail.parts.items():
            tensors[f"{tail.seq_groups}.{name}"] = part.to(torch.bfloat16)
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        "predictor": predictor_fingerprint(checkpoint),
        "tails": json.dumps(about),
    }
    write_tensors(path, tensors, metadata)
