"""Mutants of a small repository: which are caught, and which are found again in a later commit."""

import json
import subprocess
from pathlib import Path
from typing import Any

from lab.mutants import __main__ as mutants

PRODUCT = """
class Number:
    def sign(self, x):
        if (x <
            0):  # ä
            return -1
        return 1

def clip(x, most):
    assert x is not None or most
    return most if x > most and most != 0 else x

def unseen(x):
    while not x:
        x += 1
"""
TESTS = """
from morph.toy import Number, clip

def test_sign():
    assert Number().sign(-2) == -1

def test_clip():
    assert clip(1, 3) == 1

def test_fails_anyway():
    assert clip(1, 3) == 3
"""


def commit(repository: Path, product: str, tests: str) -> None:
    for name, text in (("morph/toy.py", product), ("tests/morph/test_toy.py", tests)):
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text, encoding="utf-8")
    git = ["git", "-C", repository, "-c", "user.name=n", "-c", "user.email=e"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)


def run(work: Path, *more: Any) -> list[dict[str, Any]]:
    out = work.with_suffix(".jsonl")
    mutants.main(["HEAD", "--work", str(work), "--out", str(out), *map(str, more)])
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


def test_mutants_are_caught_and_found_again(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(mutants, "ROOT", tmp_path / "repository")
    commit(tmp_path / "repository", PRODUCT, TESTS)
    head, *rows = run(tmp_path / "before", "--count", 5)
    found = {row["source"]: (row["function"], row["outcome"], row.get("test", "")) for row in rows}
    file = "tests/morph/test_toy.py"
    assert found == {
        "x < 0": ("Number.sign", "caught", f"{file}::test_sign"),
        "x > most and most != 0": ("clip", "caught", f"{file}::test_clip"),
        "x > most": ("clip", "caught", f"{file}::test_clip"),
        "most != 0": ("clip", "survived", ""),
        "not x": ("unseen", "survived", ""),
    }
    assert (head["tests"], head["caught"], head["survived"]) == (2, 3, 2)

    later = PRODUCT.replace("class Number", "class Value").partition("def unseen")[0]
    commit(tmp_path / "repository", later, TESTS.replace("Number", "Value").replace("-2", "2").replace("-1", "1"))
    capsys.readouterr()
    _, *after = run(tmp_path / "after", "--like", tmp_path / "before.jsonl")
    assert [(row["outcome"], "now" in row) for row in after if row["source"] == "x < 0"] == [("caught", True)]
    assert [row["outcome"] for row in after if row["source"] == "not x"] == ["gone"]
    assert "3 of 4 caught" in capsys.readouterr().out
