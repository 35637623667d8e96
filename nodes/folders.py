"""Where ComfyUI keeps checkpoints, voices and outputs."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import folder_paths

from ..morph.checkpoint.find import MODEL_FOLDERS

log = logging.getLogger(__name__)

VOICE_FOLDER = "qwen3-tts-voices"
VOICE_SUFFIX = ".safetensors"


def checkpoint_roots() -> list[Path]:
    """The model folders: under models/, and those that extra_model_paths.yaml registers by the same names."""
    roots = [Path(folder_paths.models_dir, *name.split("/")) for name in MODEL_FOLDERS]
    for name in MODEL_FOLDERS:
        if name in folder_paths.folder_names_and_paths:
            roots += [Path(path) for path in folder_paths.get_folder_paths(name)]
    return list(dict.fromkeys(roots))


def download_root() -> Path:
    """Where published checkpoints are put."""
    return Path(folder_paths.models_dir, MODEL_FOLDERS[0])


def voice_library() -> Path:
    """The one folder that voices are saved to; it need not exist yet."""
    return Path(folder_paths.models_dir, VOICE_FOLDER)


def voice_files() -> dict[str, Path]:
    """Every safetensors file in the library, and in the folders that extra_model_paths.yaml adds to it, by name."""
    folder_paths.add_model_folder_path(VOICE_FOLDER, str(voice_library()))
    found: dict[str, Path] = {}
    for folder in dict.fromkeys([voice_library(), *map(Path, folder_paths.get_folder_paths(VOICE_FOLDER))]):
        for name in _file_names(folder):
            if name.endswith(VOICE_SUFFIX):
                found.setdefault(name.removesuffix(VOICE_SUFFIX), folder / name)
    return dict(sorted(found.items()))


def _file_names(folder: Path) -> list[str]:
    """What is in a folder; nothing, and a warning, where it cannot be read. Names that are no Unicode are left out."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:  # the library is made when the first voice is saved
        return []
    except OSError as error:
        log.warning("voices in %s are not listed: %s", folder, error)
        return []
    return sorted(name for name in names if not any("\ud800" <= char <= "\udfff" for char in name))


def list_voices() -> list[str]:
    """The names of the files that are voices; none, and a warning, where they cannot be listed.

    ComfyUI asks all of a pack's schemas in one ``try``: an error here would take every node away.
    """
    from ..morph.voice.file import is_voice_file

    try:
        return [name for name, path in voice_files().items() if is_voice_file(path)]
    except Exception as error:
        log.warning("the voice library cannot be listed: %s", error, exc_info=True)
        return []


def output_folder() -> Path:
    """ComfyUI's output folder."""
    return Path(folder_paths.get_output_directory())
