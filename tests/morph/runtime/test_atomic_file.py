"""Files are written whole or not at all, and never through a link that somebody else has put there."""

import io
from pathlib import Path

import pytest
from qwen3_tts_morph.morph.runtime.atomic_file import name_beside, write_atomic


def link(path: Path, target: Path) -> None:
    try:
        path.symlink_to(target)
    except OSError:
        pytest.skip("not run: this system does not allow links")


def test_a_link_in_the_files_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    outside, path = tmp_path / "outside.txt", tmp_path / "folder" / "bob"
    outside.write_text("mine", encoding="utf-8")
    path.parent.mkdir()
    link(path, outside)
    write_atomic(path, b"new")
    assert outside.read_text(encoding="utf-8") == "mine" and not path.is_symlink()
    assert path.read_bytes() == b"new" and list(path.parent.iterdir()) == [path]


def test_a_link_under_the_temporary_name_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda _: "0")
    outside, path = tmp_path / "outside.txt", tmp_path / "bob"
    link(name_beside(path), outside)
    with pytest.raises(FileExistsError):
        write_atomic(path, b"new")
    assert not outside.exists() and not path.exists()


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch) -> None:
    class Full(io.FileIO):
        def write(self, content: bytes) -> int:
            super().write(content[:2])
            raise OSError("disk full")

    path = tmp_path / "bob"
    path.write_bytes(b"old")
    monkeypatch.setattr(Path, "open", lambda self, mode: Full(self, mode))
    with pytest.raises(OSError, match="disk full"):
        write_atomic(path, b"new content")
    assert [one.name for one in tmp_path.iterdir()] == ["bob"] and path.read_bytes() == b"old"


def test_two_writers_of_one_file_do_not_share_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, replace = tmp_path / "bob", Path.replace

    def another_writes_first(self: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", replace)
        write_atomic(path, b"theirs")
        assert path.read_bytes() == b"theirs"
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", another_writes_first)
    write_atomic(path, b"ours")
    assert path.read_bytes() == b"ours" and list(tmp_path.iterdir()) == [path]
