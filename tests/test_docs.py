"""The pages name files, modules, links and headings that exist, and the README stays short."""

import ast
import importlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

import pack

ROOT = pack.ROOT
LONGEST_README = 150
# Pages that a user decides by: what was measured, when and on which commit is in docs/log/.
GUIDES = ("server", "streaming", "many-gpus", "knob", "engines", "everyday")
MOST_WORDS = 1200
COMMIT = re.compile(r"\b(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{7,8}\b")
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "demo_voice/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
# The changelog and the logs name what existed then.
CURRENT = [page for page in PAGES if page.name != "CHANGELOG.md" and page.parent.name != "log"]
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
MODULE = re.compile(r"python -m ((?:lab|tests|morph|nodes|postprocess|serve)(?:\.\w+)*)")
SCRIPT = re.compile(r"(?:^|[\s`])python ([\w/]+\.py)\b")
# Commands in a block after this one are those of that commit.
OF_A_COMMIT = re.compile(r"^    git worktree add \S+ ([0-9a-f]{40})\b.*\n((?:    .*\n)+)", re.M)
# Written by a run, not kept in the repository.
MADE = {"tests/gpu.json", "artifacts/screenshots"}


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def read_current(page: Path) -> str:
    """Return a page without its blocks of commands that run at an earlier commit."""
    return OF_A_COMMIT.sub("", read(page))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub writes them."""
    titles = re.findall(r"^#+ (.+)$", read(page), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(page: Path) -> Iterator[str]:
    for target in LINK.findall(read(page)):
        if target.startswith(("http:", "https:", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / unquote(path)).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            yield target


def paths_in(text: str) -> set[str]:
    """Return the code spans that are a path of the repository: their first part is one of its folders."""
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "."}
    spans = {span for span in CODE.findall(text) if re.fullmatch(r"[\w.\-]+(/[\w.\-]+)*/?", span)}
    return {span for span in spans if "/" in span and span.split("/")[0] in folders} - MADE


def has_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


def quotes(page: Path) -> set[str]:
    """Return what the page's tables quote from ComfyUI or its log: code in the first column, cut at "..."."""
    cells = [line.split("|")[1] for line in read(page).splitlines() if line.startswith("| ")]
    spans = [span for cell in cells for span in CODE.findall(cell)]
    return {part.strip() for span in spans for part in span.split("...") if part.strip()}


def program() -> str:
    """Return the source that ComfyUI users run, with adjacent string literals joined."""
    files = [
        ROOT / "install.py",
        *(path for name in ("morph", "nodes") for path in (ROOT / name).rglob("*.py")),
    ]
    return re.sub(r'"\s*\n\s*f?"', "", "\n".join(map(read, files)))


def test_troubleshooting_quotes_the_programs_own_sentences() -> None:
    said, quoted = program(), quotes(ROOT / "docs" / "troubleshooting.md")
    assert len(quoted) > 10
    assert [part for part in sorted(quoted) if part not in said] == []


def test_the_readme_is_short() -> None:
    assert len(read(ROOT / "README.md").splitlines()) <= LONGEST_README


@pytest.mark.parametrize("page", GUIDES)
def test_a_guide_is_short_and_leaves_commits_to_its_log(page: str) -> None:
    text = read(ROOT / "docs" / f"{page}.md")
    assert len(text.split()) <= MOST_WORDS, f"move what was measured to docs/log/{page}.md, details to another page"
    assert COMMIT.findall(text) == []
    assert f"](log/{page}.md" in text


def test_the_readme_keeps_its_two_commands() -> None:
    lines = read(ROOT / "README.md").splitlines()
    assert "    python run_tests.py" in lines
    assert any(line.startswith('    python speak.py "') for line in lines)


def test_the_readme_names_every_node() -> None:
    nodes = json.loads(read(ROOT / "locales" / "en" / "nodeDefs.json"))
    titles = {node["display_name"] for node in nodes.values()}
    assert len(titles) == len(nodes) > 20
    assert titles - set(re.findall(r"\*\*(.+?)\*\*", read(ROOT / "README.md"))) == set()


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_have_targets(page: Path) -> None:
    assert list(broken_links(page)) == []


@pytest.mark.parametrize("page", CURRENT, ids=name)
def test_files_and_modules_that_a_page_names_exist(page: Path) -> None:
    text = read_current(page)
    assert [path for path in sorted(paths_in(text)) if not (ROOT / path).exists()] == []
    assert [module for module in MODULE.findall(text) if not has_module(module)] == []
    assert [script for script in SCRIPT.findall(text) if not (ROOT / script).is_file()] == []


def test_an_earlier_commit_has_the_modules_that_a_page_runs_there() -> None:
    blocks = [block for page in CURRENT for block in OF_A_COMMIT.findall(read(page))]
    assert blocks, "the model card says where the training is"
    for commit, block in blocks:
        git = ["git", "-C", str(ROOT), "ls-tree", "-r", "--name-only", commit]
        listed = subprocess.run(git, capture_output=True, text=True)
        if listed.returncode != 0:
            pytest.skip("not run: this checkout lacks the earlier commits")
        files, modules = listed.stdout.splitlines(), MODULE.findall(block)
        paths = [module.replace(".", "/") for module in modules]
        assert modules and [one for one in paths if not {f"{one}.py", f"{one}/__main__.py"} & {*files}] == []


def test_every_page_is_in_the_index() -> None:
    index = read(ROOT / "docs" / "README.md")
    docs = ROOT / "docs"
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")} - {"README.md"}
    assert pages - set(LINK.findall(index)) == set()


@pytest.mark.parametrize("example", sorted((ROOT / "docs" / "examples").glob("*.py")), ids=lambda path: path.name)
def test_what_an_example_imports_of_the_pack_is_there(example: Path) -> None:
    """Examples for a cluster run with ``--all`` only."""
    found = [
        (node.module, name.name)
        for node in ast.walk(ast.parse(example.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("qwen3_tts_morph")
        for name in node.names
    ]
    assert found
    for module, name in found:
        assert hasattr(importlib.import_module(str(module)), name), f"{module} has no {name}"
