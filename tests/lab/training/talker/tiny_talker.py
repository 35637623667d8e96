"""Four sentences by two voices and a tiny config, to train a talker on in seconds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from lab.training.talker.codes import CodeWriter, Utterance, pack_mel, write_styles
from lab.training.talker.config import DEFAULT
from lab.training.talker.speaker import speaker_mels
from lab.training.talker.train import Run

CODEBOOK = 64  # of the tiny random checkpoint's codec
TEXTS = (
    "The cat sat by the door.",
    "Nobody knew what the user wanted.",
    "Rain fell over the old town all night.",
    "Her assistant, it seems, had left!",
)
VOICES = ("anna", "bert")
STYLES = {"anna": np.array([1.0, -1.0, 0.5]), "bert": np.array([-1.0, 1.0, 0.5])}


def recording(voice: int) -> np.ndarray:
    """Two seconds of a buzz whose pitch and timbre differ between the voices."""
    times = np.arange(48000) / 24000
    noise = np.random.default_rng(voice).normal(0, 0.02, len(times))
    buzz = sum(
        np.sin(2 * np.pi * (110 + 90 * voice) * part * times) / part for part in range(1, 9 - 3 * voice)
    )
    return (0.2 * buzz + noise).astype(np.float32)


def write_codes(folder: Path) -> Path:
    """Four sentences by two voices, with random codes, to be memorised."""
    generator = torch.Generator().manual_seed(5)
    writer = CodeWriter(folder, CODEBOOK)
    for number, text in enumerate(TEXTS):
        frames = 12 + 3 * number
        mel = pack_mel(speaker_mels(torch.from_numpy(recording(number % 2))[None])[0])
        codes = torch.randint(CODEBOOK, (frames, 16), generator=generator)
        phones = torch.randint(20, (frames, 2), generator=generator)
        writer.add(Utterance(text, VOICES[number % 2], "train", codes, mel, phones))
    writer.flush()
    write_styles(folder, STYLES)
    return folder


def write_config(path: Path) -> Path:
    """Write the shipped config with tiny widths and without noise."""
    values = json.loads(DEFAULT.read_text(encoding="utf-8"))
    values["text_vocab"] = 320
    values["shape"] |= {
        "talker": {"hidden": 96, "inner": 160, "depth": 3, "heads": 4, "kv_heads": 2, "head_dim": 24},
        "predictor": {"hidden": 64, "inner": 96, "depth": 2, "heads": 4, "kv_heads": 2, "head_dim": 16},
        "text_hidden": 48,
        "encoder_channels": [32, 32, 32, 32, 96],
        "encoder_attention": 16,
    }
    values["mix"] |= {
        "positions": 320,
        "lengths": [64, 80],
        "predictor_frames": 48,
        "tokenizations": 1,
        "join": 0.0,
        "icl": 0.25,
        "reference_lines": 1,
        "rough": 0.0,
        "short_targets": 0.0,
    }
    values["mix"] |= {
        "code_noise": 0.0,
        "first_noise": 1.0,
        "tail_noise": 0.0,
        "voice_noise": 0.0,
        "reference_frames": [176, 176],
    }
    values["training"] |= {"learning_rate": 0.004, "warmup_steps": 20, "weight_decay": 0.0}
    values["training"] |= {"talker_dropout": 0.0, "predictor_dropout": 0.0, "encoder_share": 1.0}
    values["training"] |= {"label_smoothing": 0.0, "ema": 0.98, "log_every": 50}
    values["presets"] = {"first": "anna", "second": "bert"}
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def tiny_run(root: Path, steps: int, resume: bool = False, captured: bool = False) -> Run:
    """Train on the codes with the config in ``root``, on the CPU."""
    return Run(
        codes=root / "codes",
        out=root / "talker",
        minutes=60.0,
        config=root / "talker.json",
        resume=resume,
        compiled=False,
        captured=captured,
        workers=0,
        most_steps=steps,
    )
