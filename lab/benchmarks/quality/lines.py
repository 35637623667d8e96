"""The texts and voices of a study, and the recordings that the judges compare a voice with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice, design_voice, preset_voice
from qwen3_tts_morph.morph.voice.voice import Voice

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
    """Voices by name, each one's references for the judges (may be empty), and a description for the report."""

    voices: dict[str, Voice]
    references: dict[str, list[Recording]] = field(default_factory=dict)
    about: str = ""


@dataclass(frozen=True)
class Task:
    """One line spoken by one voice."""

    text: str
    voice: str
    seed: int


def read_texts(file: Path) -> list[str]:
    """Return the non-empty lines of a text file; raises ValueError if there are none."""
    texts = [line.strip() for line in file.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    if not texts:
        raise ValueError(f"{file} contains no line of text: write one sentence per line")
    return texts


def assign_voices(texts: list[str], voices: list[str], seed: int) -> list[Task]:
    """Assign the voices to the lines in rotation; the seed of a line is ``seed`` plus its index."""
    return [Task(text, voices[index % len(voices)], seed + index) for index, text in enumerate(texts)]


def cast_recordings(model: Model, folder: Path) -> Cast:
    """Clone a voice from each recording in a folder, or from each subfolder of recordings.

    A voice is cloned (x-vector) from its first recording and judged against the others, or against the first if it is
    the only one.
    """
    found = sorted(path for path in folder.iterdir() if path.is_dir() or path.suffix.lower() in SUFFIXES)
    voices, references = {}, {}
    for path in found:
        files = [path] if path.is_file() else sorted(p for p in path.iterdir() if p.suffix.lower() in SUFFIXES)
        if not files:
            continue
        recordings = [read_recording(file) for file in files]
        name, first = path.stem, recordings[0]
        if name in voices:
            raise ValueError(f"{folder} has two voices named {name!r}: rename one")
        voices[name] = clone_voice(model, first.audio, first.sample_rate, CloneOptions(name=name))
        references[name] = recordings[1:] or recordings
    if not voices:
        raise ValueError(f"{folder} contains no recordings ({', '.join(sorted(SUFFIXES))})")
    return Cast(voices, references, "cloned from their first recording; judged against the others where there are any")


def read_recording(file: Path) -> Recording:
    """Read a sound file; raises ValueError if it cannot be decoded."""
    import soundfile

    try:
        audio, rate = soundfile.read(file, dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise ValueError(f"{file} cannot be read as a recording: {error}") from error
    return Recording(audio.T, rate)


def cast_own(model: Model) -> Cast:
    """Use the checkpoint's presets, or a described voice; raises ValueError if it has neither."""
    about = "the checkpoint's own; each line judged against the voice's other exact lines (S=15)"
    if model.type == "voice_design":
        return Cast({"designed": design_voice(model, DESCRIPTION)}, about=about)
    if not model.speakers:
        raise ValueError(f"{model.name} has no preset speakers: pass --voices, a folder of recordings to clone")
    return Cast({name: preset_voice(model, name) for name in model.speakers}, about=about)
