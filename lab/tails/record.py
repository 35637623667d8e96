"""Speak with a checkpoint at SEQ_GROUPS 15, and record the predictor's inputs and the sampled codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import torch
from qwen3_tts_morph.morph.checkpoint.files import unpack_tensors, write_tensors
from qwen3_tts_morph.morph.decode.rows import LineRequest
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import PREDICTED_GROUPS, GenerateOptions
from qwen3_tts_morph.morph.speech.pieces import guard_line
from qwen3_tts_morph.morph.synthesizer import Engine
from qwen3_tts_morph.morph.voice.create import CloneOptions, blend_voices, clone_voice, design_voice, preset_voice
from qwen3_tts_morph.morph.voice.file import load_voice
from qwen3_tts_morph.morph.voice.prompt import PromptBuilder
from qwen3_tts_morph.morph.voice.voice import Voice
from safetensors import SafetensorError

from ..finished import talker_states

TEXTS = Path(__file__).with_name("texts.txt")
DESCRIPTIONS = (
    "a calm middle-aged man with a deep voice",
    "a cheerful young woman who speaks quickly",
    "an old man with a hoarse, slow voice",
    "a warm female narrator",
    "an excited boy",
    "a serious female news reader",
)
BLENDS = 2  # blends of two voices per voice, where voices are embeddings


@dataclass(frozen=True)
class Recording:
    """Generated frames: the talker's state ``hidden`` ``[N, H]`` before each, ``codes`` ``[N, 16]``, ``texts`` ``[N]``.

    ``texts`` has the number of the text that a frame belongs to.
    """

    hidden: torch.Tensor
    codes: torch.Tensor
    texts: torch.Tensor

    def split(self, held_out: int) -> tuple[Recording, Recording]:
        """Return the frames to train on, and those of every ``held_out``-th text.

        Raises:
            ValueError: one of the two would be empty.
        """
        kept = self.texts % held_out == held_out - 1
        if bool(kept.all()) or not bool(kept.any()):
            raise ValueError(f"{len(self.texts.unique())} texts cannot be split: add texts, or hold out fewer")
        return self.take(~kept), self.take(kept)

    def take(self, rows: torch.Tensor) -> Recording:
        return Recording(self.hidden[rows], self.codes[rows], self.texts[rows])


@dataclass(frozen=True)
class RecordedLine:
    """A line to record: the number of its text, the text, and the voice."""

    number: int
    text: str
    voice: Voice


def read_texts(path: Path = TEXTS) -> list[str]:
    """Return one text per line, without empty lines and comments ("#"); raises ValueError if none is left."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    texts = [line for line in lines if line and not line.startswith("#")]
    if not texts:
        raise ValueError(f"{path} contains no text: write one per line")
    return texts


def find_voices(model: Model, folder: Path | None, seed: int) -> list[Voice]:
    """Return the recordings and saved voices of a folder and blends of them, or else the checkpoint's own voices.

    Args:
        model: the checkpoint.
        folder: wav or flac recordings of 1 to 30 seconds and voice files; None for presets or descriptions.
        seed: of the blends.

    Raises:
        ValueError: a Base checkpoint without presets and without a folder. Artificial speaker embeddings are no
            substitute: they would teach the tail inputs that never occur.
    """
    if folder is not None:
        return _blended(_read_voices(model, folder), seed)
    if model.speakers:
        return [preset_voice(model, name) for name in model.speakers]
    if model.type == "voice_design":
        return [design_voice(model, description) for description in DESCRIPTIONS]
    raise ValueError(
        f"{model.name} has no voices of its own: pass --voices FOLDER with recordings of 1 to 30 seconds, "
        "or saved voices"
    )


def _read_voices(model: Model, folder: Path) -> list[Voice]:
    voices = []
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".wav", ".flac"):
            audio, rate = soundfile.read(path, dtype="float32", always_2d=True)
            voices.append(clone_voice(model, audio.T, rate, CloneOptions(name=path.stem)))
        elif path.suffix == ".safetensors":
            voices.append(load_voice(path))
    if not voices:
        raise ValueError(f"{folder} contains no wav, flac or voice file: add recordings of 1 to 30 seconds")
    return voices


def _blended(voices: list[Voice], seed: int) -> list[Voice]:
    """Return the voices and random blends of two, which resemble other voices of users."""
    own = [voice for voice in voices if voice.kind == "x_vector"]
    if len(own) < 2:
        return voices
    random = np.random.default_rng(seed)
    for _ in range(BLENDS * len(own)):
        first, second = random.choice(len(own), 2, replace=False)
        share = float(random.uniform(0.2, 0.8))
        voices = [*voices, blend_voices([own[first], own[second]], [share, 1 - share])]
    return voices


def plan_lines(texts: Sequence[str], voices: Sequence[Voice], count: int, seed: int) -> list[RecordedLine]:
    """Return ``count`` lines: the texts in random order, the voices in rotation."""
    random = np.random.default_rng(seed)
    order = np.concatenate([random.permutation(len(texts)) for _ in range(-(-count // len(texts)))])[:count]
    return [RecordedLine(int(text), texts[text], voices[index % len(voices)]) for index, text in enumerate(order)]


def record(model: Model, lines: Sequence[RecordedLine], batch_size: int, seed: int) -> Recording:
    """Speak the lines with the checkpoint's own sampling."""
    prompts = [PromptBuilder(model).build(line.text, line.voice) for line in lines]
    parts = []
    options = GenerateOptions(PREDICTED_GROUPS, batch_size=batch_size)
    requests = [
        LineRequest(prompt, guard_line(prompt, options, model.sampling), seed + index)
        for index, prompt in enumerate(prompts)
    ]
    with torch.inference_mode():
        spoken = Engine("graph").decode(model, requests, options)
        for line, prompt, made in zip(lines, prompts, spoken, strict=True):
            if len(made.codes):
                hidden = talker_states(model, prompt, made.codes).cpu()
                parts.append(Recording(hidden, made.codes, torch.full((len(made.codes),), line.number)))
    fields = [torch.cat([getattr(part, name) for part in parts]) for name in ("hidden", "codes", "texts")]
    return Recording(*fields)


def save_recording(recording: Recording, path: Path, predictor: str) -> None:
    """Write a recording for other runs of the command; ``predictor`` is the checkpoint's fingerprint."""
    write_tensors(path, vars(recording), {"predictor": predictor})


def load_recording(path: Path, predictor: str) -> Recording:
    """Read a recording; raises ValueError if it is damaged or was made with another checkpoint."""
    try:
        tensors, metadata = unpack_tensors(path.read_bytes())
        if metadata.get("predictor") != predictor:
            raise ValueError(f"{path.name} was recorded from another checkpoint: delete it")
        return Recording(*(tensors[name] for name in ("hidden", "codes", "texts")))
    except (SafetensorError, OSError, KeyError) as error:
        raise ValueError(f"{path.name} is damaged ({error}): delete it") from error
