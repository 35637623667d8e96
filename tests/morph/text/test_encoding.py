"""Text files of any editor, and what is refused."""

from pathlib import Path

import pytest
from qwen3_tts_morph.morph.text.encoding import read_text_file

TEXT = "ANNA: Größe, 你好 \U0001f600.\n\nBEN: Yes.\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-le-mark", "utf-16-be-mark"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_text_is_the_same_in_every_encoding(tmp_path: Path, encoding: str, end: str) -> None:
    text = TEXT.replace("\n", end)
    plain = encoding.removesuffix("-mark")
    data = (("\ufeff" if plain != encoding else "") + text).encode(plain)
    (tmp_path / "a.txt").write_bytes(data)
    assert read_text_file(tmp_path / "a.txt") == TEXT


@pytest.mark.parametrize("text", ["\u4f60\u597d", "\u516b\u5e74", "\u3000\u4f60", "Hi", ""])  # bytes of some are ASCII
def test_short_texts_in_utf_16_are_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.txt").write_bytes(text.encode("utf-16"))
    assert read_text_file(tmp_path / "a.txt") == text


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("Größe".encode("latin-1"), "a.txt is not text in UTF-8 or UTF-16: save it as UTF-8"),
        (b"\xff\xfeA", "a.txt is not text in UTF-8 or UTF-16"),
        ("Hello".encode("utf-16-le"), "a.txt is not a text file: save it as plain text"),
        (b"\xff\xfeHi!!", "a.txt begins as UTF-16 and goes on as something else: save it as UTF-8"),
        (b"\xfe\xff" + "Hi".encode("utf-16-le"), "a.txt begins as UTF-16 and goes on as something else"),
        (b"x" * 2_000_001, "a.txt is larger than 2 MB: split it into several files"),
    ],
)
def test_what_is_not_a_text_is_refused_by_name(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    with pytest.raises(ValueError, match=reason):
        read_text_file(tmp_path / "a.txt")


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"gone.txt cannot be read \(No such file"):
        read_text_file(tmp_path / "gone.txt")


def test_a_reader_has_a_limit_and_advice_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * 8001)
    with pytest.raises(ValueError, match=r"a\.txt is larger than 0\.008 MB: keep the first line"):
        read_text_file(path, 8000, "keep the first line")
    path.write_bytes(b"\xef\xbb\xbf")
    assert read_text_file(path, 3) == ""
