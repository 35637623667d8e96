"""The pages, docstrings and comments use the field's words (CONTRIBUTING.md, "Style").

``tests/prose.json`` has what is left in Python by package. A number there can only fall:
``python -m tests.test_prose`` prints the places of a package, or lowers the numbers to what is found.
"""

import ast
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LEFT = ROOT / "tests" / "prose.json"
# What not to write, and what to write instead.
WORDS = {
    r"\bhear(?:s|d)?\b": "streamed, played, transcribed",
    r"(?:made|make|makes|spoken|decoded|taken|kept|come) (?:complete|whole)": "offline, in one piece",
    r"(?:spoken|speaks?|speaking|spoke|said|made|make|makes) (?:it |them |a line |lines )?again": "retried",
    r"stands? still|standing still|lets? (?:it |them )?go\b": "stalled, released",
    r"(?:lines?|those|rows?) that (?:waits?|stands?|rests?)\b": "queued, idle",
    r"turns? of the codec": "codec step",
    r"\bbells?\b|\brings? (?:it|them|the|a)\b": "event, wake-up",
    r"must not wait": "urgent",
    r"(?:matrix|torch's|cublas's|linear|own) products?\b|products? of matrices|the products\b": "GEMM, GEMV, matmul",
    r"(?:lines|rows|requests|texts|voices|spoken|decoded|many|all) (?:at a time|at once)\b": "concurrently, batch size",
    r"as (?:many|much)(?: \w+)? as there (?:is|are)": "all",
    r"\bkept lines?\b|\blive (?:lines?|ones?)\b": "cached lines, streams",
    r"\bguards? (?:the|a|against|says?|of|calls?)\b|the guard\b": "stop criteria, admission, auth",
    r"(?:is|are|was|were) (?:told|said)\b(?! to)": "reported",
    r"what (?:is|was|are|were) (?:made|kept|told|said|given|taken|heard|spoken|there)\b": "a noun",
    r"(?:^|[.:;] )(?-i:Who|Whoever|Those that|Those who|Whose) \w+": "a noun as the subject",
    r"(?:^|[.;] )(?-i:What) [^.?|:]{3,100}\.": "a noun as the subject",
    r"(?:that is|which is|that are|is) there already|which there are|there is one that": "existing",
    r"in the place of": "instead of",
    r"went wrong|goes wrong": "failed",
}  # fmt: skip
PATTERN = re.compile("|".join(WORDS), re.I | re.M)
# A docstring that opens with a relative clause.
OPENING = re.compile(r"(?:What|Who|Whoever|Whose|Where|Those|That) [^.]*")
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "demo_voice/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),  # docs/log has the words of its day
    *sorted((ROOT / "web" / "docs").glob("*.md")),
]
# Texts that a page may have, and why.
EXCEPTIONS = {
    r"^- \*[^*]+\*": "an error or a widget's label, quoted",
}
LONGEST = 30_000  # words of all pages for readers


def page_text(page: Path) -> str:
    """Return a page's prose: without code, and with its lines joined."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    text = re.sub("|".join([r"`[^`\n]*`", r"^(?:    |#).*$", *EXCEPTIONS]), "", text, flags=re.M)
    return re.sub(r"(?<=\S)\n(?=\w)", " ", text)


def phrases(text: str) -> list[str]:
    return PATTERN.findall(text)


def comments(source: str) -> Iterator[str]:
    """Yield the comments of a module; those on lines that follow each other as one."""
    last, lines = -2, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1 and lines:
                yield " ".join(lines)
                lines = []
            last = token.start[0]
            lines.append(token.string.lstrip("#: "))
    yield " ".join(lines)


def docstrings(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield re.sub(r"``[^`]*``", "", text).replace("\n", " ")


def texts_of(path: Path) -> list[str]:
    """Return a module's docstrings and comments."""
    source = path.read_text(encoding="utf-8")
    return [*docstrings(source), *comments(source)]


def found_in(path: Path) -> list[str]:
    """Return the phrases of a module; a clause that opens a text counts once."""
    found = []
    for text in texts_of(path):
        opening = OPENING.match(text)
        found += [opening[0]] if opening else []
        found += phrases(text[opening.end() :] if opening else text)
    return found


def package(path: Path) -> str:
    """Return the package whose number a module counts to: two folders deep in the pack, else the top folder."""
    parts = path.relative_to(ROOT).parts[:-1]
    return "/".join(parts[: 2 if parts and parts[0] in ("morph", "serve", "nodes") else 1]) or "."


def modules() -> list[Path]:
    folders = ("lab", "morph", "nodes", "postprocess", "serve")
    return sorted([*ROOT.glob("*.py"), *(path for name in folders for path in (ROOT / name).rglob("*.py"))])


def counts() -> dict[str, int]:
    found: dict[str, int] = {}
    for path in modules():
        found[package(path)] = found.get(package(path), 0) + len(found_in(path))
    return {**dict(sorted(found.items())), "names with hear": len(names_with_hear())}


def names_with_hear() -> set[str]:
    """Return the names for what is streamed, played or transcribed, but for the package ``hearing``."""
    sources = (path.read_text(encoding="utf-8") for path in modules())
    some = (one for one in sources if "hear" in one.lower())  # to read tokens takes long
    tokens = (token for one in some for token in tokenize.generate_tokens(io.StringIO(one).readline))
    names = {token.string for token in tokens if token.type == tokenize.NAME}
    return {name for name in names if "hear" in name.lower() and "hearing" not in name}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_uses_the_words_of_the_field(page: Path) -> None:
    assert phrases(page_text(page)) == []


def test_the_pages_stay_short() -> None:
    guides = [page for page in PAGES if page.parent == ROOT / "docs" or page.parent == ROOT]
    guides.remove(ROOT / "CHANGELOG.md")
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in guides) <= LONGEST


def test_docstrings_and_comments_get_no_new_private_words() -> None:
    left = json.loads(LEFT.read_text(encoding="utf-8"))
    more = {name: number for name, number in counts().items() if number > left.get(name, 0)}
    assert more == {}, f"python -m tests.test_prose {' '.join(more)} shows where; {LEFT.name} has the limits"


def main(packages: list[str]) -> None:
    if packages:
        for path in modules():
            if package(path) in packages:
                for phrase in found_in(path):
                    print(f"{path.relative_to(ROOT)}: {phrase}")
        return
    left, found = json.loads(LEFT.read_text(encoding="utf-8")) if LEFT.exists() else {}, counts()
    lower = {name: min(number, left.get(name, number)) for name, number in found.items()}
    LEFT.write_text(json.dumps(lower, indent=1) + "\n", encoding="utf-8")
    pages = [page_text(page) for page in PAGES]
    python = [text for path in modules() for text in texts_of(path)]
    numbers = {"pages": sum(len(phrases(text)) for text in pages), "Python": sum([*found.values()][:-1])}
    for (name, number), texts in zip(numbers.items(), (pages, python), strict=True):
        total = sum(len(text.split()) for text in texts)
        print(f"{name}: {number} phrases in {total} words, {10_000 * number / total:.1f} per 10,000")


if __name__ == "__main__":
    main(sys.argv[1:])
