"""Make synthesizer, voice and settings from the options of a command line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...morph.checkpoint.download import fetch_checkpoint
from ...morph.checkpoint.files import read_object
from ...morph.checkpoint.find import PUBLISHED, demo_voice, list_adapters, list_checkpoints, resolve_checkpoint
from ...morph.checkpoint.profile import read_alignment
from ...morph.model.names import known_language, known_speaker, list_languages
from ...morph.options import GenerateOptions, LoadOptions, Sampling, check_strength
from ...morph.setting import settings_of
from ...morph.text.pronunciation import PronunciationList, read_pronunciation
from ...morph.voice.voice import Voice, check_transcript
from ...morph.words.head import AlignmentHead, TalkerShape, no_word_times
from .console import Console
from .folders import Folders
from .sound import read_recording

if TYPE_CHECKING:
    import numpy as np

    from ...morph.kept.render import WordCheck
    from ...morph.model.adapter import Adapter
    from ...morph.model.model import Model
    from ...morph.synthesizer import Synthesizer

SHAPE = ("hidden_size", "num_hidden_layers", "num_attention_heads")  # of the talker
DEVICES = "choose cpu, cuda, cuda:N or auto"
UNREAD_SOUNDS = (".m4a", ".aac", ".mp4", ".webm", ".wma")  # recordings that soundfile cannot read


@dataclass(frozen=True)
class CheckpointConfig:
    """The folder's name of a checkpoint, and fields as in ``Model``, without loading it."""

    name: str
    speakers: tuple[str, ...]
    languages: tuple[str, ...]
    alignment: AlignmentHead | None = None


def read_config(path: Path) -> CheckpointConfig | None:
    """Return the config of a checkpoint's folder; None if it is damaged: loading it reports why."""
    try:
        talker = read_object(path / "config.json")["talker_config"]
        speakers, languages = tuple(talker["spk_id"].keys()), tuple(list_languages(talker["codec_language_id"]))
        alignment = read_alignment(path, TalkerShape(*(talker[name] for name in SHAPE)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return CheckpointConfig(path.resolve().name, speakers, languages, alignment)


def folders_of(options: argparse.Namespace) -> Folders:
    return Folders.choose(options.comfyui)


def load_synthesizer(options: argparse.Namespace, console: Console) -> Synthesizer:
    path = find_checkpoint(options, console)
    check_request(path, options)
    return load_at(path, options)


def load_at(path: Path, options: argparse.Namespace) -> Synthesizer:
    found = find_adapters(options.lora, folders_of(options))
    load = LoadOptions(options.precision, options.attention, options.engine, options.weights)
    return load_adapted(path, load, choose_device(options.device), read_adapters(found))


def load_adapted(path: Path, load: LoadOptions, device: str, adapters: Sequence[tuple[Adapter, float]]) -> Synthesizer:
    """Load a checkpoint with adapters; errors as ``Synthesizer.load`` and ``adapt``."""
    from ...morph.synthesizer import Synthesizer

    synthesizer = Synthesizer.load(path, load, device=device)
    for adapter, strength in adapters:
        synthesizer = synthesizer.with_adapter(adapter, strength, path)
    return synthesizer


def find_adapters(given: Sequence[tuple[str, float]], folders: Folders) -> list[tuple[Path, float]]:
    """Return folders and strengths of adapters by paths or names in ComfyUI's models; ValueError if unknown."""
    found = []
    for word, strength in given:
        check_strength(strength)
        is_there = os.path.isdir(word)
        path = Path(word) if is_there else choose_listed("adapter", word, list_adapters(folders.adapters), folders)
        found.append((path, strength))
    return found


def choose_listed(kind: str, word: str, listed: Mapping[str, Path], folders: Folders) -> Path:
    """Return the folder with this label or name; ValueError if there is none."""
    if named := [path for label, path in listed.items() if word in (label, path.name)]:
        return named[0]
    what = f"{kind} {word} is neither a folder nor in {folders.models} (found: {', '.join(listed) or 'none'})"
    raise ValueError(f"{what}: give its folder, or where ComfyUI is with --comfyui")


def read_adapters(found: Sequence[tuple[Path, float]]) -> list[tuple[Adapter, float]]:
    from ...morph.checkpoint.adapter_file import read_adapter

    return [(read_adapter(folder), strength) for folder, strength in found]


def check_request(path: Path, options: argparse.Namespace) -> None:
    """Raise ValueError for options that the checkpoint in ``path`` does not support, before it is loaded."""
    given = {key: value for key, value in vars(options).items() if value is not None}
    if "transcript" in given:
        check_transcript(options.transcript)
    if "voice" in given:
        saved_file(options.voice, folders_of(options))
    if (config := read_config(path)) is None:
        return
    if "language" in given:
        known_language(options.language, config.languages, config.name)
    if "words" in given and config.alignment is None:
        raise ValueError(no_word_times(config.name))
    if "speaker" in given:
        known_speaker(options.speaker, config.speakers, config.name)
    speakers = [speaker.casefold() for speaker in config.speakers]
    for _, voice in given.get("cast", ()):
        if voice.casefold() not in speakers:
            saved_file(voice, folders_of(options))


def find_checkpoint(options: argparse.Namespace, console: Console) -> Path:
    """Return the folder of the options' checkpoint; download a published one if needed."""
    name: str | None = options.checkpoint
    if name is None:
        return demo_voice()
    if os.path.isdir(name):
        return Path(name)
    folders = folders_of(options)
    if name not in PUBLISHED:
        return choose_listed("checkpoint", name, list_checkpoints(folders.checkpoints), folders)
    if (local := resolve_checkpoint(name, folders.checkpoints)) is not None:
        return local
    console.note(f"downloading {name} to {folders.downloads}")
    with console.progress("B") as show:
        return fetch_checkpoint(name, folders.downloads, show)


def choose_device(name: str) -> str:
    """Return the device's name after a test in torch; ValueError if it cannot be used."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.device(name)
    except RuntimeError as error:  # torch lists twenty, most of which need another build
        raise ValueError(f"device is {name!r}, which torch does not know: {DEVICES}") from error
    try:
        torch.zeros(1, device=name)
        torch.Generator(name)  # "meta" has none
    except (RuntimeError, AssertionError) as error:
        first = str(error).partition("\n")[0].rstrip(".")
        raise ValueError(f"device {name} cannot be used ({first}): {DEVICES}") from error
    return name


def read_reference(options: argparse.Namespace) -> tuple[np.ndarray, int] | None:
    return read_recording(options.reference) if options.reference else None


def load_voice(options: argparse.Namespace, console: Console) -> tuple[Synthesizer, Voice]:
    recording = read_reference(options)
    synthesizer = load_synthesizer(options, console)
    return synthesizer, make_voice(synthesizer.model, options, recording)


def read_lists(options: argparse.Namespace) -> tuple[PronunciationList, ...]:
    return () if options.pronunciation is None else (read_pronunciation(options.pronunciation),)


def make_voice(model: Model, options: argparse.Namespace, recording: tuple[np.ndarray, int] | None) -> Voice:
    from ...morph.voice.create import CloneOptions, clone_voice, design_voice, preset_voice

    if recording:
        mode = "icl" if options.transcript else "x_vector"
        return clone_voice(model, *recording, CloneOptions(mode, options.transcript, name=options.reference.stem))
    if options.voice:
        return saved_voice(options.voice, folders_of(options), model)
    if options.describe:
        return design_voice(model, options.describe)
    return preset_voice(model, options.speaker or (model.speakers or [""])[0])


def saved_voice(word: str, folders: Folders, model: Model | None = None) -> Voice:
    """Return a voice by its file or name; ``model`` clones a recording. Errors as ``saved_file``."""
    from ...morph.voice.library import clone_recording, load_source  # safetensors

    return load_source(saved_file(word, folders), None if model is None else partial(clone_recording, model))


def saved_file(word: str, folders: Folders) -> Path:
    """Return the file of a saved voice by its path or name; ValueError if there is none."""
    if not os.path.isfile(word):
        return folders.library.source(word)
    import soundfile

    path = Path(word)
    if path.suffix.lower() not in UNREAD_SOUNDS:
        try:
            soundfile.info(word)
        except (OSError, TypeError, soundfile.SoundFileError):  # TypeError: by its name it is raw samples
            return path
    fix = "save its voice with the command clone, or speak with it by --reference"
    raise ValueError(f"{word} is a recording, not a saved voice: {fix}")


def make_settings(model: Model | None, options: argparse.Namespace, **others: Any) -> GenerateOptions:
    """Return the decoding options, for a server with ``model`` None; ``others`` are further fields."""
    own = Sampling() if model is None else model.sampling
    token, whole = _given(options, type(own.talker)), _given(options, type(own))
    changed: Sampling | None = None
    if token or whole:
        changed = replace(own, talker=replace(own.talker, **token), subtalker=replace(own.subtalker, **token), **whole)
    return GenerateOptions(sampling=changed, **_given(options, GenerateOptions) | others)


def _given(options: argparse.Namespace, kind: type) -> dict[str, Any]:
    names = settings_of(kind, "argument")
    return {name: value for name in names if (value := getattr(options, name, None)) is not None}


def make_check(options: argparse.Namespace) -> WordCheck | None:
    """Return the options' word check, or None; ValueError if a package is missing."""
    if options.check_words is None:
        return None
    from ...morph.hearing.whisper import load_whisper
    from ...morph.kept.render import WordCheck

    recogniser = load_whisper(options.check_words, folders_of(options).recognisers)
    return WordCheck(recogniser, options.most_errors / 100, options.retakes)
