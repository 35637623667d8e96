"""Train a LoRA adapter on a folder of NAME.wav and NAME.txt, recordings of one voice.

    python -m lab.adapters --model MODEL --data FOLDER --out ADAPTER
    python speak.py speak "Good morning." --checkpoint MODEL --lora ADAPTER --voice ADAPTER/voice.safetensors

The lines are spoken as a clone (x-vector) of one recording of the folder, or with ``--speaker`` as a speaker of the
checkpoint. ADAPTER gets peft's files, that voice, and ``training.json``. Ctrl+C ends early, and saves.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path

import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import PRECISIONS, LoadOptions
from qwen3_tts_morph.morph.training.pairs import Pair, make_examples
from qwen3_tts_morph.morph.training.trainer import LAYERS, Trainer, Training
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice, preset_voice
from qwen3_tts_morph.morph.voice.file import save_voice
from qwen3_tts_morph.morph.voice.voice import Voice

from ..benchmarks.origin import Origin, find_commit
from ..benchmarks.results import machine_name
from .pairs import read_pairs

log = logging.getLogger("lab.adapters")

VOICE, TRAINED = "voice.safetensors", "training.json"  # beside peft's files


def choose_voice(model: Model, pairs: Sequence[Pair], asked: argparse.Namespace) -> Voice:
    """Return the voice of the training lines: a speaker, or a clone of the named, else the longest, recording."""
    if asked.speaker:
        return preset_voice(model, asked.speaker)
    named = [one for one in pairs if one.name == asked.reference]
    if asked.reference and not named:
        raise ValueError(f"reference is {asked.reference!r}: choose a name of {asked.data}, without its ending")
    chosen = max(named or pairs, key=lambda one: len(one.waveform))
    log.info("the voice is a clone of %s", chosen.name)
    return clone_voice(model, chosen.waveform, model.sample_rate, CloneOptions(name=asked.out.resolve().name))


def train(asked: argparse.Namespace) -> None:
    """Train and save an adapter; raise ValueError, naming the input and the fix, before the training."""
    options = Training(**{one.name: getattr(asked, one.name) for one in fields(Training)})
    if asked.out.exists():
        raise ValueError(f"{asked.out} is there already: choose another folder for the adapter, or remove it")
    model = load_model(asked.model, LoadOptions(asked.precision), asked.device)
    pairs = read_pairs(asked.data, model.sample_rate)
    if not 0 <= asked.held_out < len(pairs):
        raise ValueError(f"held-out is {asked.held_out}: choose 0 to {len(pairs) - 1}, {asked.data} has {len(pairs)}")
    voice = choose_voice(model, pairs, asked)
    lines = make_examples(model, pairs, voice, asked.language)
    cut = len(lines) - asked.held_out
    seconds = sum(len(one.waveform) for one in pairs[:cut]) / model.sample_rate
    log.info("%d lines of %.0f s, %d held out, on %s", cut, seconds, asked.held_out, model.summary())
    trainer, began = Trainer(model, options, voice=voice), time.monotonic()
    with suppress(KeyboardInterrupt):
        trainer.train(lines[:cut], lines[cut:])
    about = {
        "lines": cut,
        "speech_s": round(seconds, 1),
        "trained_on": machine_name(model.device),
        "wall_s": round(time.monotonic() - began, 1),
        "kept_step": trainer.kept.step,
        "losses_before": trainer.history[0].held_out,
        "losses": trainer.kept.held_out,
    }
    trainer.save(asked.out)
    save_voice(trainer.trained_voice(voice), asked.out / VOICE)
    text = json.dumps({**about, **asdict(options), **asdict(Origin.of(asked.commit))}, indent=1)
    (asked.out / TRAINED).write_text(text + "\n", encoding="utf-8")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options, which include those of ``Training``."""
    made = argparse.ArgumentParser(prog="python -m lab.adapters", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--model", type=Path, required=True, help="folder of the checkpoint")
    made.add_argument("--data", type=Path, required=True, help="folder with NAME.wav and NAME.txt")
    made.add_argument("--out", type=Path, required=True, help="new folder for the adapter")
    made.add_argument("--speaker", help="of the checkpoint, instead of a clone")
    made.add_argument("--reference", metavar="NAME", help="recording to clone (default: the longest)")
    made.add_argument("--language", default="auto", help="of the lines")
    made.add_argument("--held-out", type=int, default=10, help="last lines that are only measured")
    made.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    made.add_argument("--precision", choices=PRECISIONS, default="auto")
    made.add_argument("--commit", default=find_commit(), help="of this tree, where it is not a git checkout")
    for one in fields(Training):
        choices = list(LAYERS) if one.name == "layers" else None
        kind = type(one.default)
        made.add_argument(
            f"--{one.name.replace('_', '-')}",
            type=kind,
            default=one.default,
            choices=choices,
            help=f"({one.default})",
        )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    asked = parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        train(asked)
    except ValueError as error:
        log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
