"""What is spoken in whose voice: texts, voices, and recordings that the judges know the voices by."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.voice.voice import Voice, clone_voice, design_voice, preset_voice

from ...training.evaluate import (
    CLONED_FROM,
    SAMPLE_RATE,
    EvaluateOptions,
    clone_all,
    planned,
    read_references,
)

OWN_LINES = Path(__file__).with_name("lines.txt")
SUFFIXES = {".wav", ".flac", ".ogg", ".mp3"}
DESCRIPTION = "A clear, calm voice."  # for a VoiceDesign checkpoint without recordings


@dataclass(frozen=True)
class Recording:
    """Audio ``[T]`` or ``[C, T]`` and its rate in Hz."""

    audio: np.ndarray
    sample_rate: int


@dataclass(frozen=True)
class Cast:
    """Voices by name, what the judges know each by (may be nothing), and how that came about, in words."""

    voices: dict[str, Voice]
    references: dict[str, list[Recording]] = field(default_factory=dict)
    about: str = ""


@dataclass(frozen=True)
class Task:
    """One line for one voice."""

    text: str
    voice: str
    seed: int


def read_texts(file: Path) -> list[str]:
    """The lines of a text file that are not empty; raises ValueError when there is none."""
    texts = [line.strip() for line in file.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    if not texts:
        raise ValueError(f"{file} holds no line of text: write one sentence a line")
    return texts


def take_turns(texts: list[str], voices: list[str], seed: int) -> list[Task]:
    """The voices say the lines in turns; a line's seed is ``seed`` plus its place."""
    return [Task(text, voices[place % len(voices)], seed + place) for place, text in enumerate(texts)]


def cast_corpus(model: Model, root: Path, limit: int, seed: int) -> tuple[Cast, list[Task]]:
    """The training corpus's held-out lines and voices: cloned from two references each, judged by the others."""
    options = EvaluateOptions(corpus=root, out=root, limit=limit)
    spoken = read_references(options)
    references = {
        name: [Recording(line.audio, SAMPLE_RATE) for line in lines[CLONED_FROM:]]
        for name, lines in spoken.items()
    }
    tasks = [
        Task(task.line.text, task.voice.name, seed + place) for place, task in enumerate(planned(options))
    ]
    about = f"cloned from {CLONED_FROM} recordings each and judged by others"
    return Cast(clone_all(model, spoken), references, about), tasks


def cast_recordings(model: Model, folder: Path) -> Cast:
    """A voice for each recording in a folder, or for each subfolder of recordings.

    A voice is cloned (x-vector) from its first recording and judged by the others, or by that one when it has no
    other.
    """
    found = sorted(path for path in folder.iterdir() if path.is_dir() or path.suffix.lower() in SUFFIXES)
    voices, references = {}, {}
    for path in found:
        files = (
            [path] if path.is_file() else sorted(p for p in path.iterdir() if p.suffix.lower() in SUFFIXES)
        )
        if not files:
            continue
        recordings = [read_recording(file) for file in files]
        name, first = path.stem, recordings[0]
        if name in voices:
            raise ValueError(f"{folder} holds two voices named {name!r}: rename one")
        voices[name] = clone_voice(model, first.audio, first.sample_rate, name=name)
        references[name] = recordings[1:] or recordings
    if not voices:
        raise ValueError(f"{folder} holds no recordings ({', '.join(sorted(SUFFIXES))})")
    return Cast(
        voices, references, "cloned from their first recording; judged by the others where there are any"
    )


def read_recording(file: Path) -> Recording:
    """Read a sound file; raises ValueError when it is none."""
    import soundfile

    try:
        audio, rate = soundfile.read(file, dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise ValueError(f"{file} cannot be read as a recording: {error}") from error
    return Recording(audio.T, rate)


def cast_own(model: Model) -> Cast:
    """The checkpoint's own voices: its presets, or a described voice; raises ValueError when it has neither."""
    about = "the checkpoint's own; judged by their exact lines (S=15), each line by the voice's other lines"
    if model.type == "voice_design":
        return Cast({"designed": design_voice(model, DESCRIPTION)}, about=about)
    if not model.speakers:
        raise ValueError(
            f"{model.name} has no preset speakers: give --voices, a folder of recordings to clone"
        )
    return Cast({name: preset_voice(model, name) for name in model.speakers}, about=about)
