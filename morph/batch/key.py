"""What decides a line's sound, as a key: two lines with the same key sound the same.

Left out, because they only change how samples are rounded: the size of the batch, whether a line was heard while it was
made, and fallbacks of the engine. What is kept under a key is what was made first.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from ..options import GenerateOptions
from ..setting import settings_of
from ..speech.lines import Line
from ..speech.piece import Piece
from ..synthesizer import Synthesizer
from ..tested import QWEN_TTS, installed
from ..voice.file import voice_digest

# Settings that decide the pieces, which are in the key, or how and how often they are made.
APART = ("batch_size", "split_chars", "normalize", "retries")
PACK = Path(__file__).resolve().parents[2]


def code_digest(root: Path, folders: Sequence[str] = ("morph", "postprocess")) -> str:
    """Return the SHA-256 of all Python files in folders of ``root``: the version of the code that makes sound."""
    total = hashlib.sha256()
    for file in sorted(path for folder in folders for path in (root / folder).rglob("*.py")):
        total.update(f"{file.relative_to(root).as_posix()}\0".encode())
        total.update(file.read_bytes().replace(b"\r\n", b"\n"))
    return total.hexdigest()


# Computed when the code is imported: an update that is unpacked while this process runs does not change what it runs.
CODE = code_digest(PACK)


def common_key(synthesizer: Synthesizer, options: GenerateOptions) -> str:
    """Return a digest of what all lines of a rendering have in common: code, machine, checkpoint and options.

    Raises:
        ValueError: for a model that was not loaded from files, which has no fingerprint.
    """
    model = synthesizer.model
    if not model.fingerprint:
        raise ValueError(f"model {model.name} was not loaded with load_model: its lines cannot be kept")
    choice, device = synthesizer.engine.choose(model), model.device
    return _digest(
        {
            "code": CODE,
            "versions": [platform.machine(), torch.__version__, transformers.__version__, np.__version__],
            "qwen_tts": [installed(name) for name in QWEN_TTS],
            "device": [device.type, torch.cuda.get_device_name(device) if device.type == "cuda" else ""],
            "checkpoint": model.fingerprint,
            "model": [str(model.dtype), model.attention, model.weights, model.size],
            "engine": [choice.engine, choice.codec],
            "sampling": asdict(options.sampling or model.sampling),
            "options": {
                name: getattr(options, name) for name in settings_of(GenerateOptions) if name not in APART
            },
        }
    )


def line_key(common: str, line: Line, pieces: Sequence[Piece]) -> str:
    """Return the key of a line: what it has in common with others, its voice, and what is spoken how.

    Args:
        common: of ``common_key``.
        line: it.
        pieces: of its text as it is spoken; their texts, seeds and pauses count, not the text that they came from.
    """
    return _digest(
        {
            "common": common,
            "voice": voice_digest(line.voice),
            "language": line.language.strip().lower(),
            "instruct": (line.voice.instruct if line.instruct is None else line.instruct) or "",
            "pieces": [
                [piece.text, piece.seed, piece.stride, piece.pause_s, piece.after_s] for piece in pieces
            ],
        }
    )


def _digest(parts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
