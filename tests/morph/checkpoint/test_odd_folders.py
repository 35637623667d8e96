"""Model folders are shared with other packs: odd contents are skipped, and no node fails because of them."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from qwen3_tts_morph.morph.checkpoint.files import MOST_BYTES
from qwen3_tts_morph.morph.checkpoint.find import fingerprint, list_checkpoints, missing_files

from tests.morph.checkpoint.test_find import link, put

NOBODY = 65534


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    put(tmp_path / "TTS" / "good")
    return tmp_path / "TTS"


@contextmanager
def unreadable(path: Path) -> Iterator[None]:
    """Remove this process's permissions for a path; as root, by switching to another user for a while."""
    if not hasattr(os, "geteuid"):
        pytest.skip("no Unix user ids here")
    root, mode = os.geteuid() == 0, path.stat().st_mode
    path.chmod(0o700 if root else 0)
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        path.chmod(mode)


@pytest.fixture
def here(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use ``shared`` as the working directory: other users cannot enter pytest's folders above it."""
    shared.parent.chmod(0o755)
    monkeypatch.chdir(shared.parent)
    return Path(shared.name)


def good_alone(root: Path) -> bool:
    return list_checkpoints([root]) == {"TTS/good": root / "good"}


def test_what_this_user_may_not_read_is_skipped_and_named_once(here, caplog):
    (here / "lost+found").mkdir()
    with unreadable(here / "lost+found"), caplog.at_level(logging.WARNING):
        assert all(good_alone(here) for _ in range(3))
    said = [record.getMessage() for record in caplog.records]
    assert said and len(said) == len(set(said))
    assert all("'TTS/lost+found' is left out" in one and "Permission denied" in one for one in said)


def test_inaccessible_files_count_as_missing(here):
    folder = put(here / "hidden")
    with unreadable(folder):
        missing = missing_files(folder)
        assert fingerprint(folder) == []
    assert "config.json" in missing and "model.safetensors" in missing


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b" " * (MOST_BYTES + 1), "larger than 4 MB"),
        (b'{"model_type": "\xff"}', "is not JSON"),
        (b'{"model_type": NaN}', "NaN is not a number"),
        (b"9" * 10_000, "is not JSON"),
        (b"", "is not JSON"),
    ],
    ids=["deep list", "deep object", "huge", "Latin-1", "NaN", "long number", "empty"],
)
def test_an_odd_config_is_skipped_with_the_cause(shared, caplog, content, cause):
    (shared / "odd").mkdir()
    (shared / "odd" / "config.json").write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert good_alone(shared)
    [said] = [record.getMessage() for record in caplog.records]
    assert "TTS" in said and "odd" in said and cause in said


def test_a_folder_named_like_the_config_is_skipped(shared, caplog):
    (shared / "odd" / "config.json").mkdir(parents=True)
    assert good_alone(shared) and "config.json is not a file" in caplog.text


def test_a_pipe_does_not_block(shared, caplog):
    if not hasattr(os, "mkfifo"):
        pytest.skip("no pipes in folders here")
    (shared / "odd").mkdir()
    os.mkfifo(shared / "odd" / "config.json")
    os.mkfifo(shared / "pipe")
    assert good_alone(shared) and "config.json is not a file" in caplog.text
    os.mkfifo(shared / "good" / "model.safetensors.index.json")
    (shared / "good" / "model.safetensors").unlink()
    assert missing_files(shared / "good") == ["model.safetensors"]


def test_circular_and_dangling_links_are_skipped(shared):
    link(shared / "round", shared / "round")
    link(shared / "nowhere", shared / "gone")
    link(shared / "up", shared)
    link(shared / "good" / "lost.json", shared / "gone.json")
    (shared / "odd").mkdir()
    link(shared / "odd" / "config.json", shared / "odd" / "config.json")
    assert good_alone(shared)
    assert list_checkpoints([shared / "round"]) == {}
    assert len(fingerprint(shared / "good")) == len(fingerprint(put(shared / "other")))


@pytest.mark.parametrize(
    "index",
    [
        "{",
        "[]",
        "{}",
        '{"weight_map": []}',
        '{"weight_map": null}',
        '{"weight_map": {}}',
        '{"weight_map": {"a": 1}}',
    ]
    + [f'{{"weight_map": {{"a": "{name}"}}}}' for name in ("../a.safetensors", "/a.safetensors", "a.bin")],
)
def test_a_damaged_index_is_named(tmp_path, index):
    path = put(tmp_path / "mine", without=("model.safetensors",))
    (path / "model.safetensors.index.json").write_text(index, encoding="utf-8")
    [missing] = missing_files(path)
    assert missing.startswith("model.safetensors.index.json (it is damaged: ")


def test_replacing_a_checkpoint_changes_its_fingerprint(tmp_path):
    path = put(tmp_path / "mine")
    before = fingerprint(path)
    assert len(before) == 7  # configs, vocabulary and weights
    (path / "morph.json").write_text("{}", encoding="utf-8")
    assert len(fingerprint(path)) == 8
    os.utime(path / "speech_tokenizer" / "model.safetensors", (1, 1))
    assert {one[0] for one in set(before) - set(fingerprint(path))} == {
        str(path / "speech_tokenizer" / "model.safetensors")
    }
