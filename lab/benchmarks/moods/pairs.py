"""Speak pairs for ``lab.benchmarks.moods`` with the demo voice's teacher (Kokoro-82M): the same speakers, two manners.

    python -m lab.benchmarks.moods.pairs --voices artifacts/corpus/sources/package/voices --out artifacts/moods

A style of the teacher has the timbre in one half, and pitch and rhythm in the other. So one speaker's timbre with the
manner of another voice is the same speaker in another manner. Needs the packages of ``lab/training/``, and the voices
that ``python -m lab.training.corpus fetch`` downloads. Nobody was recorded.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import torch

from ...training.corpus.bundle import Packed, Weight, read_styles
from ...training.corpus.onnx_weights import load_shipped_model, read_weights
from ...training.corpus.phonemes import load_phonemizer, read_vocabulary
from ...training.corpus.teacher import SAMPLE_RATE, load_teacher, parameter_names
from ...training.corpus.voices import TIMBRE

SPEAKERS = ("af_kore", "af_sarah")  # neither is a preset of the demo voice
TEXTS = (  # of lab/training/corpus/held_out.txt
    "The shop on our street sells the best cheese in town.",
    "He looked at the map for a long time and said nothing.",
)


@dataclass(frozen=True)
class Manner:
    """How a speaker speaks: whose pitch and rhythm, the speaker's own if empty, and whose timbre by half."""

    prosody: str = ""
    timbre: str = ""


# With af_kore's timbre: af_jessica's manner is 6 semitones higher than af_alloy's, and faster; af_nicole's is the
# flattest and the slowest of all, and her timbre is a whisper.
PAIRS: Mapping[str, tuple[Manner, Manner]] = {
    "lively less even": (Manner("af_jessica"), Manner("af_alloy")),
    "slow and flat less plain": (Manner("af_nicole"), Manner("af_nova")),
    "whispered less plain": (Manner(timbre="af_nicole"), Manner()),
}


def style_of(speaker: str, manner: Manner, styles: Mapping[str, np.ndarray], phonemes: int) -> np.ndarray:
    """Return a speaker's style in a manner, for a text of this many phonemes, float32 ``[256]``."""
    row = phonemes - 1
    style = styles[speaker][row].copy()
    if manner.timbre:
        style[:TIMBRE] = (style[:TIMBRE] + styles[manner.timbre][row][:TIMBRE]) / 2
    if manner.prosody:
        style[TIMBRE:] = styles[manner.prosody][row][TIMBRE:]
    return style


def unpacked(weights: Mapping[str, Weight]) -> dict[str, torch.Tensor]:
    """Return the teacher's weights as float32."""
    wanted = parameter_names()
    plain = {
        name: one.unpack() if isinstance(one, Packed) else one
        for name, one in weights.items()
        if name in wanted
    }
    return {name: torch.from_numpy(np.array(one, np.float32)) for name, one in plain.items()}


@torch.inference_mode()
def speak_pairs(styles: Mapping[str, np.ndarray], out: Path) -> None:
    """Write PAIR/toward and PAIR/away, a wav for each speaker and sentence."""
    lines = list(map(load_phonemizer(), TEXTS))
    teacher = load_teacher(unpacked(read_weights(load_shipped_model())), read_vocabulary())
    for pair, manners in PAIRS.items():
        for side, manner in zip(("toward", "away"), manners, strict=True):
            folder = out / pair / side
            folder.mkdir(parents=True, exist_ok=True)
            for speaker in SPEAKERS:
                for number, phonemes in enumerate(lines, 1):
                    style = style_of(speaker, manner, styles, len(phonemes))
                    audio, _ = teacher.speak(phonemes, torch.from_numpy(style), seed=number)
                    soundfile.write(folder / f"{speaker}-{number}.wav", audio.numpy(), SAMPLE_RATE)


def main(arguments: Sequence[str] | None = None) -> None:
    """Speak the pairs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--voices", type=Path, required=True, help="folder of kokoro-js with the style tables"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the pairs")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    speak_pairs(read_styles(asked.voices), asked.out)


if __name__ == "__main__":
    main()
