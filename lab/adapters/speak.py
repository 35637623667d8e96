"""Speak lines with an adapter at several strengths, for the judges; strength 0 is the checkpoint alone.

    python -m lab.adapters.speak --model MODEL --adapter ADAPTER --data FOLDER --out SPOKEN
    python -m lab.adapters.judge SPOKEN --recordings FOLDER

FOLDER has held-out recordings with their texts; ADAPTER is a folder of ``lab.adapters``. Every
line is spoken once, with the same seed at each strength. SPOKEN gets STRENGTH/NAME.wav and ``spoken.json``.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import soundfile
import torch
from qwen3_tts_morph.morph.checkpoint.adapter_file import read_adapter
from qwen3_tts_morph.morph.options import PRECISIONS, GenerateOptions, LoadOptions
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.file import load_voice

from ..benchmarks.common import precision_of
from ..benchmarks.results import machine_name
from ..streams import render_lines
from .__main__ import TRAINED, VOICE
from .pairs import read_texts

SPOKEN = "spoken.json"


def speak(asked: argparse.Namespace) -> dict[str, Any]:
    """Write the lines at each strength; return their description for the judges' rows."""
    base = Synthesizer.load(asked.model, LoadOptions(asked.precision), asked.device)
    adapter, voice = read_adapter(asked.adapter), load_voice(asked.adapter / VOICE)
    texts = read_texts(asked.data)
    lines = [Line(text, voice, asked.language, seed) for seed, text in enumerate(texts.values(), 1)]
    options = GenerateOptions(asked.seq_groups, batch_size=8, retries=0)
    failed = {}
    for strength in asked.strengths:
        synthesizer = base.with_adapter(adapter, strength, asked.model)
        folder = asked.out / f"{strength:g}"
        folder.mkdir(parents=True)
        spoken = render_lines(synthesizer, lines, options)
        for name, one in zip(texts, spoken, strict=True):
            soundfile.write(folder / f"{name}.wav", one.waveform, one.sample_rate)
        failed[f"{strength:g}"] = sum(one.report.ended != "eos" for one in spoken)
        synthesizer.free()
    return {
        "model": base.model.name,
        "precision": precision_of(base.model),
        "spoken_on": machine_name(base.model.device),
        "seq_groups": asked.seq_groups,
        "failed": failed,
        "training": json.loads((asked.adapter / TRAINED).read_text(encoding="utf-8")),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.adapters.speak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="folder of the checkpoint")
    parser.add_argument("--adapter", type=Path, required=True, help="folder that lab.adapters wrote")
    parser.add_argument("--data", type=Path, required=True, help="recordings that were not trained on, with texts")
    parser.add_argument("--out", type=Path, required=True, help="new folder")
    parser.add_argument("--strengths", type=float, nargs="+", default=[0.0, 0.5, 1.0])
    parser.add_argument("--language", default="auto")
    parser.add_argument("--seq-groups", type=int, default=15)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", choices=PRECISIONS, default="auto")
    asked = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    about = speak(asked)
    (asked.out / SPOKEN).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
