"""Download a published checkpoint with huggingface_hub, with progress and cancellation."""

import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ..runtime.atomic_file import file_state
from .find import MODEL_FOLDERS, PUBLISHED, check_complete, download_gb

log = logging.getLogger(__name__)

POLL_S = 0.2
# In a separate process: a download in a thread could not be stopped when the user cancels.
DOWNLOAD = """
import sys
from huggingface_hub import HfApi, snapshot_download

files = HfApi().model_info(sys.argv[1], files_metadata=True).siblings
print(sum(file.size or 0 for file in files), flush=True)
snapshot_download(sys.argv[1], local_dir=sys.argv[2])
"""


def fetch_checkpoint(repo_id: str, target_root: Path, on_progress: Callable[[int, int], None] | None = None) -> Path:
    """Download one of PUBLISHED into ``target_root/<last part of its id>``; resume an interrupted download.

    ``on_progress`` gets (bytes on disk, total bytes) five times per second; its exceptions stop the download at once
    and propagate. Raises ValueError for another id, or if the download fails.
    """
    if repo_id not in PUBLISHED:
        raise ValueError(f"{repo_id!r} is not a published Qwen3-TTS checkpoint: choose one of {', '.join(PUBLISHED)}")
    target = target_root / repo_id.rsplit("/", 1)[-1]
    log.info("fetching %s, about %.1f GB, to %s", repo_id, download_gb(repo_id), target)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "output")  # a file, so that the process never blocks on a full pipe
        process = _start(repo_id, target, output)
        try:
            while process.poll() is None:
                time.sleep(POLL_S)
                total = next((int(line) for line in _lines(output) if line.isdecimal()), 0)
                if total and on_progress is not None:
                    on_progress(min(_bytes_in(target), total), total)
        finally:
            process.kill()  # does nothing to one that has ended
            process.wait()
        if process.returncode != 0:
            raise ValueError(
                f"{repo_id} is not on this machine and could not be fetched ({_lines(output)[-1]}): check the "
                f"connection, or put the checkpoint's folder under ComfyUI's {os.path.join('models', MODEL_FOLDERS[0])}"
            )
    return check_complete(target)


def _start(repo_id: str, target: Path, output: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    command = [sys.executable, "-c", DOWNLOAD, repo_id, str(target)]
    with output.open("wb") as file:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment)


def _lines(output: Path) -> list[str]:
    return output.read_text(encoding="utf-8", errors="replace").strip().splitlines() or [""]


def _bytes_in(folder: Path) -> int:
    return sum(state[1] for path in folder.rglob("*") if (state := file_state(path)))
