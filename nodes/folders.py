"""Where ComfyUI keeps checkpoints, voices and outputs."""

from __future__ import annotations

from pathlib import Path

import folder_paths

from ..morph.checkpoint import MODEL_FOLDERS

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


def list_voices() -> dict[str, Path]:
    """Voice files by name: the library's, and those of folders that extra_model_paths.yaml adds to it."""
    folder_paths.add_model_folder_path(VOICE_FOLDER, str(voice_library()))
    folders = [voice_library(), *map(Path, folder_paths.get_folder_paths(VOICE_FOLDER))]
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob(f"*{VOICE_SUFFIX}")):
            found.setdefault(path.stem, path)
    return dict(sorted(found.items()))


def output_folder() -> Path:
    """ComfyUI's output folder."""
    return Path(folder_paths.get_output_directory())
