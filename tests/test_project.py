"""Rules that a review easily misses: paths of one machine, unsafe loading, packages and signatures."""

import ast
import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import pack
from tests import records, runner
from tests.comfy import install as comfy
from tests.environments import TORCH

HERE = Path(__file__).resolve()
FORBIDDEN = {
    "a registry's host": re.compile(r"pypi\.org|pythonhosted|npmjs\.org|download\.pytorch\.org|deb\.debian\.org"),
    "a path of one machine": re.compile(
        r"(?<![\w.)}/])/(work|farm|opt|root|home|tmp|mnt|Users)/\w|\b[A-Za-z]:(\\+|/)(Users|home)(\\+|/)\w"
    ),
}
FORBIDDEN_IN_PYTHON = {
    "pickle": re.compile(r"^\s*(import|from)\s+(pickle|dill|joblib)\b|\bpickle\.loads?\(|\btorch\.load\(", re.M),
    "an edit of sys.path": re.compile(r"\bsys\.path\s*(\.(insert|append|extend)\(|\+?=[^=])"),
}


def list_files(*options: str) -> set[str]:
    """Return the names of the repository's files, those that git will not ignore."""
    git = ["git", "-C", str(pack.ROOT), "ls-files", "-z", *options]
    listed = subprocess.run(git, capture_output=True)
    if listed.returncode != 0:
        pytest.skip("not run: this tree is not a git checkout")
    return {name for name in listed.stdout.decode().split("\0") if name}


def texts(suffix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the repository's files but this one, which contains the forbidden words."""
    for name in sorted(list_files("--cached", "--others", "--exclude-standard")):
        path = pack.ROOT / name
        if name.endswith(suffix) and path != HERE and path.is_file() and b"\0" not in (raw := path.read_bytes()):
            yield name, raw.decode(errors="replace")


def matches(forbidden: dict[str, re.Pattern[str]], suffix: str = "") -> list[str]:
    return [
        f"{name}: {what}: {found[0]}"
        for name, text in texts(suffix)
        for what, rule in forbidden.items()
        if (found := rule.search(text))
    ]


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    assert matches(FORBIDDEN) == []


def test_no_python_file_loads_pickles_or_edits_sys_path() -> None:
    assert matches(FORBIDDEN_IN_PYTHON, ".py") == []


def packages(folder: str) -> set[str]:
    paths = (pack.ROOT / folder).glob("requirements*.txt")
    lines = [line.split("#")[0].strip() for path in paths for line in path.read_text("utf-8").splitlines()]
    return {line for line in lines if line}


def test_the_registry_and_the_manager_install_the_same() -> None:
    tomllib = pytest.importorskip("tomllib", reason="not run: Python 3.10 has no tomllib")
    project = tomllib.loads((pack.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lines = (pack.ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert project["project"]["dependencies"] == [line for line in lines if line and line[0] != "#"]
    assert "comfyui" not in project["project"]["name"].lower()
    assert (pack.ROOT / project["project"]["license"]["file"]).exists()
    comfy = project["tool"]["comfy"]
    assert {"PublisherId", "DisplayName", "Icon", "requires-comfyui"} <= set(comfy)
    assert comfy["requires-comfyui"] == ">=0.3.75"
    assert set(project["project"]["urls"]) == {"Repository", "Documentation", "Issues"}


def test_all_addresses_of_the_repository_are_the_one_that_its_owner_sets() -> None:
    tomllib = pytest.importorskip("tomllib", reason="not run: Python 3.10 has no tomllib")
    urls = tomllib.loads((pack.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    page = (pack.ROOT / "serve" / "page" / "index.html").read_text(encoding="utf-8")
    links = re.findall(r'href="(https://[^"]+/blob/[^"]+)"', page)
    assert len(links) == 2
    assert [link for link in (*links, *urls.values()) if not link.startswith(urls["Repository"])] == []


def test_the_version_is_the_same_everywhere() -> None:
    text = (pack.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    [version] = re.findall(r'^version = "(\d+\.\d+\.\d+)"$', text, re.M)
    changes = (pack.ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\d\S+)", changes, re.M)[0] == version, "the changelog's newest version"
    assert f"](docs/release-{version}.md)" in changes and (pack.ROOT / f"docs/release-{version}.md").is_file()
    saved = [path.read_text(encoding="utf-8") for path in (pack.ROOT / "workflows").glob("*.json")]
    found = {ver for one in saved for ver in re.findall(r'"cnr_id": "qwen3-tts-morph", "ver": "([^"]+)"', one)}
    assert found == {version}, "the templates' nodes"


def test_users_get_the_pack_without_tests_and_laboratory() -> None:
    """The registry's archive contains the tracked files without those in ``.comfyignore``."""
    every = list_files("--cached")
    ignored = list_files("--cached", "--ignored", "--exclude-from=.comfyignore")
    shipped = {name.split("/")[0] for name in every - ignored}
    assert shipped >= {
        "__init__.py",
        "nodes",
        "morph",
        "postprocess",
        "serve",
        "web",
        "locales",
        "workflows",
        "demo_voice",
    }
    assert shipped >= {"install.py", "requirements.txt", "pyproject.toml", "README.md", "LICENSE"}
    assert not shipped & {"tests", "lab", ".ci", ".github", "run_tests.py", "setup.py", "pytest.ini"}
    assert not any(name.startswith("docs/log/") for name in every - ignored)


def test_tested_versions_are_sorted_and_have_those_that_the_tests_pin() -> None:
    text = runner.TESTED.read_text(encoding="utf-8")
    known = json.loads(text)
    assert set(known) == {"torch", "ComfyUI", "comfyui-frontend-package"}
    assert text == records.format_tested(known)
    assert known == {name: records.sort_versions(versions) for name, versions in known.items()}
    pins = [*comfy.TORCH, *comfy.PACKAGES, comfy.FRONTEND, f"ComfyUI=={comfy.VERSION}"]
    pinned = [pin.split("==") for pin in (*pins, TORCH)]
    assert {name for name, _ in pinned} >= set(known)
    assert [(name, version) for name, version in pinned if version not in known.get(name, version)] == []


def test_a_version_has_fewer_than_sixty_entries_in_the_changelog() -> None:
    versions = re.split(r"^## ", (pack.ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.M)[1:]
    counts = {one.split()[0]: len(re.findall(r"^- ", one, re.M)) for one in versions}
    assert len(counts) > 2 and counts["0.2.0"] > 0
    assert {version: count for version, count in counts.items() if count >= 60} == {}


def test_every_folder_of_code_is_a_package_that_pip_installs() -> None:
    """An editable install finds packages by their __init__.py, and so do the import contracts."""
    for top in ("morph", "nodes", "postprocess", "serve", "lab"):
        folders = {path.parent for path in (pack.ROOT / top).rglob("*.py")}
        assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def public_functions(path: Path) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the functions and methods of a file that have no leading underscore, and constructors."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for inner in getattr(node, "body", []) if isinstance(node, (ast.Module, ast.ClassDef)) else []:
            if isinstance(inner, ast.FunctionDef) and not re.match(r"_(?!_init__)", inner.name):
                yield getattr(node, "name", path.stem), inner


def test_no_folder_of_the_product_has_more_than_fourteen_modules() -> None:
    modules = [path for name in runner.TYPED for path in (pack.ROOT / name).rglob("*.py")]
    counts = Counter(path.parent for path in modules if path.name != "__init__.py")
    assert not {str(folder): count for folder, count in counts.items() if count > 14}


def test_public_functions_have_at_most_five_parameters_or_give_the_reason() -> None:
    """Except kernels, and functions that ComfyUI calls with the names of a node's inputs."""
    folders = [
        path for top in ("morph", "nodes", "postprocess", "serve", "lab") for path in (pack.ROOT / top).rglob("*.py")
    ]
    found = []
    for path in folders:
        if "kernels" in path.parts:
            continue
        for owner, function in public_functions(path):
            names = [one.arg for one in (*function.args.args, *function.args.kwonlyargs)]
            count = len(names) - (names[:1] in (["self"], ["cls"]))
            reason = "parameters" in (ast.get_docstring(function) or "")
            if count > 5 and not reason and function.name not in ("execute", "validate_inputs"):
                found.append(f"{path.relative_to(pack.ROOT)}: {owner}.{function.name} has {count}")
    assert found == []
