"""Download a published checkpoint with huggingface_hub, with progress in bytes; it can be cancelled."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from .find import MODEL_FOLDERS, PUBLISHED, check_complete

log = logging.getLogger(__name__)

POLL_S = 0.2
# In a separate process: a download in a thread could not be stopped when the user cancels.
DOWNLOAD = "import sys; from huggingface_hub import snapshot_download as get; get(sys.argv[1], local_dir=sys.argv[2])"
SIZES = (
    "import sys; from huggingface_hub import HfApi; "
    "print(sum(f.size or 0 for f in HfApi().model_info(sys.argv[1], files_metadata=True).siblings))"
)


def fetch_checkpoint(
    repo_id: str, target_root: Path, on_progress: Callable[[int, int], None] | None = None
) -> Path:
    """Download a published checkpoint into ``target_root/<last part of its id>``; resumes an interrupted download.

    Args:
        repo_id: one of PUBLISHED; others are refused.
        target_root: a model folder.
        on_progress: called five times per second with (bytes on disk, total bytes); an exception that it raises
            stops the download at once and propagates.

    Raises:
        ValueError: for another id, or if the download fails.
    """
    if repo_id not in PUBLISHED:
        raise ValueError(
            f"{repo_id!r} is not a published Qwen3-TTS checkpoint: choose one of {', '.join(PUBLISHED)}"
        )
    target = target_root / repo_id.rsplit("/", 1)[-1]
    total = int(_finish(repo_id, _Process(SIZES, repo_id), lambda: None))
    log.info("fetching %s, %.1f GB, to %s", repo_id, total / 1e9, target)
    target.mkdir(parents=True, exist_ok=True)

    def report() -> None:
        if on_progress is not None:
            on_progress(min(_bytes_in(target), total), total)

    _finish(repo_id, _Process(DOWNLOAD, repo_id, str(target)), report)
    return check_complete(target)


class _Process:
    """A Python process whose output goes to a file, so that it never blocks on a full pipe."""

    def __init__(self, *arguments: str):
        self.output = tempfile.TemporaryFile()  # noqa: SIM115  (closed by _finish)
        environment = {**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        command = [sys.executable, "-c", *arguments]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.output, env=environment
        )

    def read(self) -> str:
        self.output.seek(0)
        return self.output.read().decode(errors="replace").strip()


def _finish(repo_id: str, running: _Process, report: Callable[[], None]) -> str:
    """Wait for a process, calling ``report``; return the last line that it printed. ValueError if it failed."""
    try:
        while running.process.poll() is None:
            report()
            time.sleep(POLL_S)
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()
    printed = running.read()
    running.output.close()
    last = printed.splitlines()[-1] if printed else ""
    if running.process.returncode != 0:
        raise ValueError(
            f"{repo_id} is not on this machine and could not be fetched ({last}): check the connection, or put the "
            f"checkpoint's folder under ComfyUI's {os.path.join('models', MODEL_FOLDERS[0])}"
        )
    return last


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # renamed between listing and stat
            continue
    return total
