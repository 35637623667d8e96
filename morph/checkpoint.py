"""Find checkpoints where users keep them, and say what a broken one lacks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

PUBLISHED = (
    "Qwen/Qwen3-TTS-12Hz-0.6B-Base",
    "Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice",
    "Qwen/Qwen3-TTS-12Hz-1.7B-Base",
    "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice",
    "Qwen/Qwen3-TTS-12Hz-1.7B-VoiceDesign",
)
# Under ComfyUI's models/, where the packs in the field keep Qwen3-TTS.
MODEL_FOLDERS = ("qwen-tts", "TTS", "tts", "Qwen3-TTS", "tts/Qwen3TTS")
NEEDED_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "speech_tokenizer/config.json",
    "speech_tokenizer/preprocessor_config.json",
)
# The small checkpoint that the pack itself brings. Other labels hold a slash: none can be taken for this one.
DEMO_VOICE = "demo voice (in the pack)"
DEMO_VOICE_PATH = Path(__file__).resolve().parents[1] / "demo_voice"
MODEL_TYPE = "qwen3_tts"
GIT_LFS_POINTER = b"version https://git-lfs"  # what git puts in a file's place without git-lfs
DEPTH = 2  # a checkpoint lies in a model folder, or one folder deeper (tts/Qwen3TTS/<name>)


def list_checkpoints(roots: Sequence[Path]) -> dict[str, Path]:
    """Find checkpoint folders under model folders such as ``models/qwen-tts``.

    Returns:
        Label to path, sorted by label. A label is the path below its root's name, with forward slashes. A folder
        that two roots reach is listed once; incomplete ones are listed too (loading them says what is missing).
    """
    found: dict[str, Path] = {}
    seen: set[Path] = set()
    for root in roots:
        for path in _checkpoints_in(root, DEPTH):
            real = path.resolve()
            if real not in seen:
                seen.add(real)
                label = f"{root.name}/{path.relative_to(root).as_posix()}"
                while label in found:  # of another root that ends in the same name
                    label += "'"
                found[label] = path
    return dict(sorted(found.items()))


def _checkpoints_in(folder: Path, depth: int) -> Iterator[Path]:
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if not path.is_dir() or path.name.startswith("."):
            continue
        if is_checkpoint(path):
            yield path
        elif depth > 1:
            yield from _checkpoints_in(path, depth - 1)


def is_checkpoint(path: Path) -> bool:
    """Whether a folder's config says that it is a Qwen3-TTS model (complete or not)."""
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.get("model_type") == MODEL_TYPE


def missing_files(path: Path) -> list[str]:
    """What a checkpoint folder lacks, as names relative to it; empty when it is complete."""
    missing = [name for name in NEEDED_FILES if not (path / name).is_file()]
    if not (path / "tokenizer.json").is_file():
        missing += [name for name in ("vocab.json", "merges.txt") if not (path / name).is_file()]
    for file in (*_weight_files(path), *_weight_files(path / "speech_tokenizer")):
        name = file.relative_to(path).as_posix()
        if not file.is_file():
            missing.append(name)
        elif _is_pointer(file):
            missing.append(f"{name} (only its Git LFS pointer is there)")
    return missing


def _is_pointer(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(len(GIT_LFS_POINTER)) == GIT_LFS_POINTER


def _weight_files(folder: Path) -> list[Path]:
    """The safetensors files that a folder should hold: those of its index, or the single one."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return [folder / "model.safetensors"]
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    except (ValueError, KeyError):
        return [folder / f"{index.name} (it is damaged)"]
    return [folder / name for name in sorted(set(weight_map.values()))]


def check_complete(path: Path) -> Path:
    """Give ``path`` back when it holds a whole checkpoint; raise ValueError naming what is missing."""
    if not path.is_dir():
        raise ValueError(f"checkpoint folder {path.name} does not exist: choose another, or put it back")
    missing = missing_files(path)
    if missing:
        raise ValueError(f"checkpoint {path.name} lacks {', '.join(missing)}: download it again, whole")
    return path


def demo_voice() -> Path:
    """Give the folder of the checkpoint that the pack brings; raise ValueError naming what the pack lacks of it."""
    missing = missing_files(DEMO_VOICE_PATH)
    if missing:
        raise ValueError(
            f"the pack's {DEMO_VOICE_PATH.name} folder lacks {', '.join(missing)}: install the pack again, whole, "
            "or choose another checkpoint"
        )
    return DEMO_VOICE_PATH


def resolve_checkpoint(name: str, roots: Sequence[Path]) -> Path | None:
    """Find a checkpoint on this machine.

    Args:
        name: DEMO_VOICE, a label of ``list_checkpoints``, or a published id, which is found by its last part.
        roots: the model folders; the demo voice needs none.

    Returns:
        Its folder, or None for a published one that is not on this machine.

    Raises:
        ValueError: for an unknown name, or a pack whose demo voice is not whole.
    """
    if name == DEMO_VOICE:
        return demo_voice()
    found = list_checkpoints(roots)
    if name in found:
        return found[name]
    if name in PUBLISHED:
        last = name.rsplit("/", 1)[-1].lower()
        for path in found.values():
            if path.name.lower() == last and not missing_files(path):
                return path
        return _in_hub_cache(name)
    raise ValueError(
        f"checkpoint {name!r} is not there any more: press R to reload the list and choose another"
    )


def _in_hub_cache(repo_id: str) -> Path | None:
    """A published checkpoint that another program has downloaded to the Hugging Face cache already."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        path = Path(snapshot_download(repo_id, local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    return None if missing_files(path) else path
