"""The folders in which ComfyUI keeps checkpoints, voices, cached lines, inputs and outputs."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import folder_paths

from ..morph.checkpoint import find
from ..morph.checkpoint.files import read_object
from ..morph.runtime.atomic_file import FileState, file_state
from ..morph.text.names import file_names
from ..morph.voice.library import VoiceLibrary
from ..serve.terminal.folders import VOICE_FOLDER, Folders

if TYPE_CHECKING:
    from ..morph.kept.cache import LineCache

# Shown instead of an empty list: the page leaves an empty list out of the prompt, so no check could say what to do.
NO_VOICE = "(no voice is saved)"
NO_FILE = "(no file is there)"
SIZE_VARIABLE = "MORPH_TTS_CACHE_MB"  # the most that cached lines may take; 0 caches none
DEFAULT_MB = 2048


def folders() -> Folders:
    """Return ComfyUI's folders of models, with those that extra_model_paths.yaml adds."""
    names = {*find.MODEL_FOLDERS, *find.ADAPTER_FOLDERS, VOICE_FOLDER} & set(folder_paths.folder_names_and_paths)
    extra = {name: [*map(Path, folder_paths.get_folder_paths(name))] for name in names}
    return Folders(Path(folder_paths.models_dir), extra)


def local_checkpoint_paths() -> dict[str, Path]:
    """Return the folders of the complete checkpoints on this machine, by the labels of Load Qwen3-TTS Model."""
    roots = folders().checkpoints
    found = {label: path for label, path in find.list_checkpoints(roots).items() if not find.missing_files(path)}
    demo = {} if find.missing_files(find.DEMO_VOICE_PATH) else {find.DEMO_VOICE: find.DEMO_VOICE_PATH}
    cached = {label: find.resolve_checkpoint(label, roots) for label in find.PUBLISHED}
    return demo | found | {label: path for label, path in cached.items() if path is not None}


def local_checkpoints() -> dict[str, dict[str, Any]]:
    return {label: read_object(path / "config.json") for label, path in local_checkpoint_paths().items()}


def checkpoint_labels() -> dict[str, str]:
    """Return labels for the values of Load Qwen3-TTS Model: on this machine, incomplete, or to be downloaded."""
    here, found = local_checkpoint_paths(), find.list_checkpoints(folders().checkpoints)
    labels = {name: f"{name} (incomplete)" for name in found if name not in here}
    for name in find.PUBLISHED:
        labels[name] = f"{name} (here)" if name in here else f"{name} (downloads {find.download_gb(name):g} GB)"
    return labels


def voice_library() -> VoiceLibrary:
    """Return the voice library; register its folder with ComfyUI."""
    folder_paths.add_model_folder_path(VOICE_FOLDER, str(Path(folder_paths.models_dir, VOICE_FOLDER)))
    return folders().library


def most_megabytes() -> int:
    """Return how many MB (10^6 bytes) cached lines may take; ValueError unless the setting is a whole number."""
    value = os.environ.get(SIZE_VARIABLE, "").strip() or str(DEFAULT_MB)
    if not (value.isascii() and value.isdigit() and len(value) <= 9):
        raise ValueError(f"{SIZE_VARIABLE} is {value[:40]!r}: write a whole number of MB, 0 to keep no lines")
    return int(value)


def kept_lines() -> LineCache:
    """Return the cache, to look at it and to clear it. Its folder, which no route of ComfyUI serves, may not exist."""
    from ..morph.kept.cache import LineCache

    # Below ``user/``: ComfyUI empties ``temp/`` when it starts.
    folder = Path(folder_paths.get_system_user_directory("qwen3_tts_morph"), "lines")
    return LineCache(folder, max(1, most_megabytes() * 10**6))


def input_files(suffixes: Collection[str]) -> list[str]:
    names = file_names(Path(folder_paths.get_input_directory()))
    return [name for name in names if name.lower().endswith(tuple(suffixes))]


def chosen_file(name: str, suffixes: Collection[str]) -> Path:
    """Return the chosen file in ComfyUI's input folder or, as ``name [output]``, its output folder.

    ValueError if it is not inside that folder, or ends otherwise.
    """
    if name == NO_FILE:
        where = "ComfyUI's input folder"
        raise ValueError(f"file is {name!r}: upload one with the button below, or put one into {where} and press R")
    if not isinstance(name, str):  # from a link
        raise ValueError(f"file is {name!r}: choose one from the list")
    bare, folder = folder_paths.annotated_filepath(name)
    root = Path(folder or folder_paths.get_input_directory()).resolve()
    try:
        path = (root / bare).resolve()
        found = bool(bare.strip()) and path.is_relative_to(root) and path.is_file()
    except (OSError, ValueError):  # names that the system does not take: too long, with a null character
        found = False
    if not found:
        fix = "upload it, or press R and choose another"
        raise ValueError(f"file {name!r} is not in ComfyUI's {root.name} folder: {fix}")
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"file {name!r} does not end in {' or '.join(suffixes)}: choose another")
    return path


def chosen_state(name: str, suffixes: Collection[str], *others: str) -> FileState:
    """Return the state of a chosen file, so that ComfyUI reads it again; None for one of ``others``."""
    return None if name in others else file_state(chosen_file(name, suffixes))
