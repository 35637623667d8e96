"""The talker's exported weights: averaged, bf16, in small files, under upstream's names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..storage import read_parts, write_parts
from .config import Shape, as_json, shape_from
from .objective import Learner
from .published import publish

ABOUT = "talker.json"


def save_weights(
    folder: Path, learner: Learner, presets: torch.Tensor, names: list[str], meta: Mapping[str, Any]
) -> None:
    """Write averaged weights in bf16, in parts of at most 15 MiB, with ``talker.json``.

    Args:
        folder: created if missing; parts of an earlier call are replaced.
        learner: with the weights to write in place.
        presets: every training voice's mean speaker embedding ``[S, H]``.
        names: the voices.
        meta: further content of ``talker.json``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = publish(learner.network, learner.encoder)
    weights["voices"] = presets.detach().float().cpu()
    write_parts(folder, weights)
    about = {**meta, "shape": as_json(learner.network.shape), "voices": names}
    (folder / ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def load_weights(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any], Shape]:
    """Read what ``save_weights`` wrote: weights (with "voices"), ``talker.json`` and the shape.

    Raises:
        ValueError: a part is missing.
    """
    about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    return read_parts(folder), about, shape_from(about["shape"])
