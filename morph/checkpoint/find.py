"""Find checkpoints and adapters in model folders, and name the files that an incomplete one lacks."""

import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from ..runtime.atomic_file import file_state
from ..text.split import is_encodable
from .files import read_json, read_object

log = logging.getLogger(__name__)

PUBLISHED = (
    "Qwen/Qwen3-TTS-12Hz-0.6B-Base",
    "Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice",
    "Qwen/Qwen3-TTS-12Hz-1.7B-Base",
    "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice",
    "Qwen/Qwen3-TTS-12Hz-1.7B-VoiceDesign",
)
DOWNLOAD_GB = {"0.6B": 2.5, "1.7B": 4.5}  # of a published checkpoint with its codec, rounded
# Under ComfyUI's models/: where other node packs keep Qwen3-TTS.
MODEL_FOLDERS = ("qwen-tts", "TTS", "tts", "Qwen3-TTS", "tts/Qwen3TTS")
NEEDED_FILES = ("config.json", "tokenizer_config.json", "speech_tokenizer/config.json")
# The small checkpoint that ships with the pack. All other labels contain a slash, so none can equal this one.
DEMO_VOICE = "demo voice (in the pack)"
DEMO_VOICE_PATH = Path(__file__).resolve().parents[2] / "demo_voice"
MODEL_TYPE = "qwen3_tts"
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED = "pytorch_model*.bin"  # never read: loading a pickle may run any program
ADAPTER = "adapter_config.json"  # peft's, of a LoRA
GIT_LFS_POINTER = b"version https://git-lfs"  # without git-lfs, git checks out this text instead of the file
MERGE = "merge it into the weights (merge_and_unload of peft) and save the model again"
COPY = "copy them from the checkpoint that it was trained from: few trainers save more than the weights"
DEPTH = 2  # a checkpoint is directly in a model folder, or one level deeper (tts/Qwen3TTS/<name>)
ADAPTER_FOLDERS = ("qwen3-tts-loras", "loras")  # under ComfyUI's models/: ours, and that of all models
ADAPTER_DEPTH = 3  # loras/qwen3/anna/checkpoint-100


def list_checkpoints(roots: Sequence[Path]) -> dict[str, Path]:
    """Return checkpoint folders under model folders such as ``models/qwen-tts``, by label, sorted.

    A label is the root's name and the path below it, with forward slashes. A folder of two roots is listed once.
    Incomplete checkpoints are listed too; loading one says what is missing. Unreadable ones are logged and skipped.
    """
    return _list(roots, is_checkpoint, DEPTH)


def list_adapters(roots: Sequence[Path]) -> dict[str, Path]:
    """Return adapters (folders with an ADAPTER) under folders such as ``models/loras``; see ``list_checkpoints``.

    Those of other models are listed too; loading one says that it does not fit.
    """
    return _list(roots, lambda path: os.path.isfile(path / ADAPTER), ADAPTER_DEPTH)


def _list(roots: Sequence[Path], is_one: Callable[[Path], bool], depth: int) -> dict[str, Path]:
    found: dict[str, Path] = {}
    seen: set[str] = set()
    for root in roots:
        for path in _find_in(root, is_one, depth):
            real = os.path.realpath(path)
            if real not in seen:
                seen.add(real)
                label = f"{root.name}/{path.relative_to(root).as_posix()}"
                while label in found:  # another root has the same name
                    label += "'"
                found[label] = path
    return dict(sorted(found.items()))


def _find_in(folder: Path, is_one: Callable[[Path], bool], depth: int) -> Iterator[Path]:
    for path in _folders_in(folder):
        if is_one(path):
            yield path
        elif depth > 1:
            yield from _find_in(path, is_one, depth - 1)


def _folders_in(folder: Path) -> list[Path]:
    """Return the visible folders in a folder, sorted; an empty list if it cannot be read."""
    if not os.path.isdir(folder):  # unlike Path.is_dir, False without permission
        return []
    try:
        names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except OSError as error:
        _say_skipped(folder, str(error))
        return []
    folders = [folder / name for name in names if os.path.isdir(folder / name)]
    for path in folders:
        if not is_encodable(path.name):  # other bytes can be neither shown as a label nor sent back by the page
            _say_skipped(path, "its name is not Unicode: rename it")
    return [path for path in folders if is_encodable(path.name)]


def is_checkpoint(path: Path) -> bool:
    """Return whether a folder's config is that of a Qwen3-TTS model, complete or not."""
    try:
        config = read_json(path / "config.json")
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:
        _say_skipped(path, str(error))
        return False
    return isinstance(config, dict) and config.get("model_type") == MODEL_TYPE


@lru_cache(maxsize=256)  # ComfyUI asks for the schema often: warn once per folder and reason
def _say_skipped(path: Path, reason: str) -> None:
    log.warning("%a is left out of the list of checkpoints: %a", str(path), reason)


def missing_files(path: Path) -> list[str]:
    """Return the files that a checkpoint folder lacks, as names relative to it."""
    missing = [name for name in NEEDED_FILES if not os.path.isfile(path / name)]
    if not os.path.isfile(path / "tokenizer.json"):
        missing += [name for name in ("vocab.json", "merges.txt") if not os.path.isfile(path / name)]
    for file in (*weight_files(path), *weight_files(path / "speech_tokenizer")):
        name = file.relative_to(path).as_posix()
        if not os.path.isfile(file):
            missing.append(name)
        elif _is_pointer(file):
            missing.append(f"{name} (it is only a Git LFS pointer)")
    return missing


def _is_pointer(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return opened.read(len(GIT_LFS_POINTER)) == GIT_LFS_POINTER
    except OSError:
        return False  # loading will report why it cannot be read


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files that a folder should have: the single one, or those in its index."""
    index = folder / INDEX
    # If both exist, transformers loads the single one.
    if os.path.isfile(folder / SINGLE) or not os.path.isfile(index):
        return [folder / SINGLE]
    try:
        return [folder / name for name in sorted(set(read_index(index).values()))]
    except (OSError, ValueError) as error:
        return [folder / f"{INDEX} (it is damaged: {error})"]


def read_index(file: Path) -> dict[str, str]:
    """Return the file name of each tensor, from an index of safetensors files.

    Raises ValueError for an index that is damaged, or that names files outside its own folder.
    """
    weight_map = read_object(file).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError("it has no weight_map")
    for name in weight_map.values():
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise ValueError(f"{name!r} is not the name of a safetensors file")
    return weight_map


def fingerprint(path: Path) -> list[tuple[str, int, int]]:
    """Return path, modification time and size of a checkpoint's configs, vocabulary and weights."""
    kinds = ("*.json", "*.txt", "*.safetensors", "speech_tokenizer/*")
    files = sorted(file for kind in kinds for file in path.glob(kind))
    return [(str(file), *state) for file in files if (state := file_state(file))]


def fingerprint_digest(path: Path) -> str:
    """Return a digest of the paths, times and sizes of a checkpoint's files."""
    files = fingerprint(path.resolve())
    if path.resolve() == DEMO_VOICE_PATH:  # names and sizes only: updates of the pack unpack it again
        files = [(Path(file).name, 0, size) for file, _, size in files]
    return hashlib.sha256(repr(files).encode()).hexdigest()


def check_complete(path: Path) -> Path:
    """Return ``path`` if it is a complete checkpoint; else raise ValueError naming what is missing."""
    if not os.path.isdir(path):
        raise ValueError(f"checkpoint folder {path.name} does not exist: choose another, or put it back")
    if (path / ADAPTER).is_file() and not (path / "config.json").is_file():
        raise ValueError(
            f"checkpoint {path.name} is a LoRA adapter: load the checkpoint that it was trained on, and the adapter "
            "with Load LoRA or --lora"
        )
    missing = missing_files(path)
    if missing:
        raise ValueError(f"checkpoint {path.name} lacks {', '.join(missing)}: {_how_to_complete(path, missing)}")
    if (path / ADAPTER).is_file():
        raise ValueError(
            f"checkpoint {path.name} has an adapter that is not merged ({ADAPTER}): {MERGE}, or move the adapter's "
            "files to a folder of their own, which Load LoRA and --lora read"
        )
    return path


def _how_to_complete(path: Path, missing: Sequence[str]) -> str:
    """Return how to get missing files; pickled weights may exist, which are not read."""
    folders = [path / Path(name).parent for name in missing if Path(name).name == SINGLE]
    pickled = [file.relative_to(path).as_posix() for folder in folders for file in sorted(folder.glob(PICKLED))]
    if not pickled:
        is_copied = not any(Path(name).name.startswith("model") for name in missing if "/" not in name)
        is_published = path.name.lower() in [name.rpartition("/")[2].lower() for name in PUBLISHED]
        return f"download it again, or {COPY}" if is_copied and not is_published else "download it again"
    return (
        f"it has {pickled[0]}, a pickle, which is never read; load the model where you trained it and save it as "
        "safetensors with save_pretrained"
    )


def demo_voice() -> Path:
    """Return the folder of the checkpoint that ships with the pack; raise ValueError naming what is missing."""
    missing = missing_files(DEMO_VOICE_PATH)
    if missing:
        raise ValueError(
            f"the pack's {DEMO_VOICE_PATH.name} folder lacks {', '.join(missing)}: install the pack again, "
            "or choose another checkpoint"
        )
    return DEMO_VOICE_PATH


def download_gb(name: str) -> float:
    return next(size for part, size in DOWNLOAD_GB.items() if f"-{part}-" in name)


def resolve_checkpoint(name: str, roots: Sequence[Path]) -> Path | None:
    """Return a checkpoint's folder, or None for a published one that is not on this machine.

    ``name`` is DEMO_VOICE, a label of ``list_checkpoints``, or a published id, which is found by its last component.
    Raises ValueError for an unknown name, or an incomplete demo voice.
    """
    if name == DEMO_VOICE:
        return demo_voice()
    if not isinstance(name, str):  # ComfyUI's API accepts any JSON value
        raise ValueError(f"checkpoint is {name!r}: choose one from the list")
    found = list_checkpoints(roots)
    if name in found:
        return found[name]
    if name in PUBLISHED:
        last = name.rsplit("/", 1)[-1].lower()
        for path in found.values():
            if path.name.lower() == last and not missing_files(path):
                return path
        return _in_hub_cache(name)
    raise ValueError(f"checkpoint {name!r} no longer exists: press R to reload the list and choose another")


def _in_hub_cache(repo_id: str) -> Path | None:
    """Return a complete checkpoint in the Hugging Face cache, which other programs share, or None."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        path = Path(snapshot_download(repo_id, local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    except OSError as error:
        log.warning("the Hugging Face cache cannot be read (%s)", error)
        return None
    return None if missing_files(path) else path
