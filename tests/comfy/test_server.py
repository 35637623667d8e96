"""Tests of prompts fail at once, not after their longest wait, when ComfyUI's prompt worker has ended."""

from pathlib import Path

import pytest

from tests.comfy.server import ComfyError, ComfyServer

WITHOUT_WORKER = """
import threading, time
def prompt_worker(): raise KeyError("a model")
threading.Thread(target=prompt_worker).start()
time.sleep(1000)
"""


def test_a_server_ends_with_its_prompt_worker_and_its_log_is_shown(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(WITHOUT_WORKER, encoding="utf-8")
    with pytest.raises(ComfyError, match=r"exited(.|\n)*KeyError: 'a model'"):
        ComfyServer(tmp_path, tmp_path / "base", packs={}).start()
