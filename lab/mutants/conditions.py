"""Find the conditions of a tree, find them again in a later tree, and put a switch around each."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

PRODUCT = ("morph", "nodes", "serve", "postprocess")
KERNELS = "morph/kernels/"  # Triton compiles them: no switch can be called there


class Condition(NamedTuple):
    """The identity of a condition, independent of line numbers; ``nth`` counts equal ones of a function."""

    file: str
    function: str
    source: str
    nth: int


class Place(NamedTuple):
    """A condition of one tree, with its first byte in the file and the one after its last."""

    condition: Condition
    start: int
    end: int


def walk(node: ast.AST, scope: str = "", inside: bool = False) -> Iterator[tuple[str, ast.expr]]:
    """Yield the tests and the compared operands inside functions, each with its qualified function.

    Asserts are no conditions, and positions in f-strings are wrong before Python 3.12.
    """
    if isinstance(node, (ast.Assert, ast.JoinedStr)):
        return
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        scope, inside = f"{scope}.{node.name}".lstrip("."), inside or not isinstance(node, ast.ClassDef)
    if inside and isinstance(node, (ast.If, ast.While, ast.IfExp)) and not isinstance(node.test, ast.Constant):
        yield scope, node.test
    if inside and isinstance(node, ast.BoolOp):
        yield from ((scope, operand) for operand in node.values if isinstance(operand, ast.Compare))
    for child in ast.iter_child_nodes(node):
        yield from walk(child, scope, inside)


def find_conditions(root: Path) -> list[Place]:
    """Return all conditions of the product under ``root``, in the order of files and lines."""
    names = sorted(file.relative_to(root).as_posix() for top in PRODUCT for file in (root / top).rglob("*.py"))
    return [place for name in names if not name.startswith(KERNELS) for place in read_places(root, name)]


def read_places(root: Path, name: str) -> Iterator[Place]:
    content = (root / name).read_bytes()
    lines = [0, 0, *accumulate(len(line) for line in content.splitlines(keepends=True))]
    equal: Counter[tuple[str, str]] = Counter()
    for function, node in walk(ast.parse(content)):
        source = ast.unparse(node)
        condition = Condition(name, function, source, equal[function, source])
        equal[function, source] += 1
        assert node.end_lineno is not None and node.end_col_offset is not None
        yield Place(condition, lines[node.lineno] + node.col_offset, lines[node.end_lineno] + node.end_col_offset)


# How a condition is found again: where it was; in a function of that name in another file; in another function of its
# file; with renamed operands.
KEYS: tuple[Callable[[Condition], Any], ...] = (
    lambda one: one,
    lambda one: (one.function.rpartition(".")[2], one.source, one.nth),
    lambda one: (one.file, one.source),
    lambda one: (one.file, one.function.rpartition(".")[2], re.sub(r"[^\W\d]\w*", "_", one.source)),
)


def find_again(wanted: Sequence[Condition], places: Sequence[Place]) -> dict[Condition, Place]:
    """Return the place of each wanted condition in a tree, without those that are gone or no longer unique."""
    found: dict[Condition, Place] = {}
    for key in KEYS:
        by_key, used = defaultdict(list), set(found.values())
        for place in places:
            if place not in used:
                by_key[key(place.condition)].append(place)
        for one in wanted:
            if one not in found and len(by_key[key(one)]) == 1:
                found[one] = by_key[key(one)].pop()
    return found


def insert_switches(content: bytes, places: Sequence[tuple[int, Place]]) -> bytes:
    """Return a file's content with each numbered place as an argument of ``Switch.flip``; no line moves."""
    cuts = []
    for number, place in places:
        opened = f'__import__("mutant_switch").switch.flip({number}, ('.encode()
        cuts += [(place.start, -place.end, opened), (place.end, -place.start, b"))")]
    parts, last = [], 0
    for position, _, text in sorted(cuts):
        parts += [content[last:position], text]
        last = position
    return b"".join([*parts, content[last:]])
