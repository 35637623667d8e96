"""Imports inside ``lab`` run one way: benchmarks -> training -> judges and random checkpoints, without cycles."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOW = ("lab.judges", "lab.random_checkpoint", "lab.qwen_tokenizer")


def module_of(path: Path) -> str:
    """The dotted name of a file's module."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


FILES = {module_of(path): path for path in sorted((ROOT / "lab").rglob("*.py"))}


def imported(name: str) -> set[str]:
    """The modules of ``lab`` that a module imports, anywhere in its file."""
    package = name if FILES[name].name == "__init__.py" else name.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(ast.parse(FILES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1])
            source = f"{base}.{node.module}" if node.module else base
            found |= {f"{source}.{alias.name}" for alias in node.names} | {source}
    return found & FILES.keys()


def test_packages_import_only_the_ones_below() -> None:
    for name in FILES:
        for other in imported(name):
            if name.startswith(LOW):
                assert not other.startswith(("lab.training", "lab.benchmarks")), f"{name} imports {other}"
            if name.startswith("lab.training"):
                assert not other.startswith("lab.benchmarks"), f"{name} imports {other}"


def test_no_module_imports_itself_through_others() -> None:
    graph = {name: imported(name) - {name} for name in FILES}
    assert len(list(TopologicalSorter(graph).static_order())) == len(FILES)
