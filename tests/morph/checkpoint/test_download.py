"""Downloads, with a fake huggingface_hub that shadows the real one: no network is used."""

import json
import os
import subprocess
import textwrap
from pathlib import Path

import pytest
from qwen3_tts_morph.morph.checkpoint import download
from qwen3_tts_morph.morph.checkpoint.download import fetch_checkpoint
from qwen3_tts_morph.morph.checkpoint.find import PUBLISHED, missing_files

FAKE_HUB = """
import os, shutil, time
from types import SimpleNamespace
SOURCE = os.environ["FAKE_HUB_SOURCE"]

class HfApi:
    def model_info(self, repo_id, files_metadata):
        files = [os.path.join(d, f) for d, _, names in os.walk(SOURCE) for f in names]
        return SimpleNamespace(siblings=[SimpleNamespace(size=os.path.getsize(f)) for f in files])

def snapshot_download(repo_id, local_dir):
    if os.environ.get("FAKE_HUB_FAILS"):
        raise ConnectionError("no route to the hub")
    os.makedirs(local_dir, exist_ok=True)
    for name in sorted(os.listdir(SOURCE)):
        source, target = os.path.join(SOURCE, name), os.path.join(local_dir, name)
        shutil.copytree(source, target, dirs_exist_ok=True) if os.path.isdir(source) else shutil.copy(source, target)
        time.sleep(float(os.environ.get("FAKE_HUB_DELAY", "0")))
"""


@pytest.fixture
def hub(tmp_path: Path, checkpoint, monkeypatch) -> None:
    """Let Python processes started by the test import the fake hub, which serves a tiny checkpoint."""
    package = tmp_path / "fake" / "huggingface_hub"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(textwrap.dedent(FAKE_HUB), encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(package.parent) + os.pathsep + os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("FAKE_HUB_SOURCE", str(checkpoint("tiny", "base")))


def test_a_published_checkpoint_is_downloaded_completely_with_progress(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_HUB_DELAY", "0.2")
    seen: list[tuple[int, int]] = []
    path = fetch_checkpoint(PUBLISHED[0], tmp_path / "models", lambda done, total: seen.append((done, total)))
    assert path == tmp_path / "models" / "Qwen3-TTS-12Hz-0.6B-Base"
    assert missing_files(path) == []
    done = [done for done, _ in seen]
    assert done == sorted(done) and done[0] < done[-1] <= seen[-1][1]
    assert json.loads((path / "config.json").read_text(encoding="utf-8"))["model_type"] == "qwen3_tts"


def test_cancel_ends_the_download_and_a_second_try_finishes_it(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_HUB_DELAY", "60")  # between two files

    started: list[subprocess.Popen] = []
    begin = subprocess.Popen
    monkeypatch.setattr(
        download.subprocess,
        "Popen",
        lambda *given, **more: started.append(begin(*given, **more)) or started[-1],
    )

    def cancel(done: int, total: int) -> None:
        if done > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_checkpoint(PUBLISHED[0], tmp_path, cancel)
    assert started[-1].returncode is not None, "the download goes on after the cancel"
    assert missing_files(tmp_path / "Qwen3-TTS-12Hz-0.6B-Base"), "the cancel came too late to prove anything"
    monkeypatch.setenv("FAKE_HUB_DELAY", "0")
    assert missing_files(fetch_checkpoint(PUBLISHED[0], tmp_path)) == []


def test_a_failed_download_says_why_and_where_to_put_the_folder(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_HUB_FAILS", "1")
    with pytest.raises(ValueError, match=r"no route to the hub.*models.qwen-tts"):
        fetch_checkpoint(PUBLISHED[0], tmp_path)


def test_nothing_but_published_ids_is_fetched(tmp_path):
    with pytest.raises(ValueError, match="not a published"):
        fetch_checkpoint("somebody/else", tmp_path)
