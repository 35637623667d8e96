"""Installing must fit qwen_tts to the user's transformers, and never touch torch or transformers."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import install

ROOT = Path(install.__file__).resolve().parent
KEPT = {"torch", "torchvision", "torchaudio", "transformers", "qwen-tts", "qwen-tts-hf", "accelerate"}


def requirements() -> list[Requirement]:
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def with_dependencies(wanted: list[Requirement]) -> set[str]:
    """The names of what pip brings in for these, as the installed packages declare it."""
    found: set[str] = set()
    queue = list(wanted)
    while queue:
        name = canonical(queue.pop().name)
        if name not in found:
            found.add(name)
            declared = map(Requirement, importlib.metadata.requires(name) or [])
            queue += [need for need in declared if not need.marker or need.marker.evaluate({"extra": ""})]
    return found


@pytest.mark.parametrize("version", ["4.57.0", "4.57.3", "4.60.0.dev0"])
def test_transformers_4_gets_the_original(version: str) -> None:
    assert install.choose_package(version) == "qwen-tts==0.1.1"


@pytest.mark.parametrize("version", ["5.4.0", "5.17.0", "5.20.0rc1"])
def test_transformers_5_gets_the_port(version: str) -> None:
    assert install.choose_package(version) == "qwen-tts-hf==0.1.1.post1"


@pytest.mark.parametrize("version", ["4.9.2", "4.56.2", "3.5.1", "3.60.0", "5.0.0", "5.3.0", "6.0.0", "main"])
def test_other_transformers_are_refused_with_the_mend(version: str) -> None:
    with pytest.raises(ValueError, match=r"transformers.*(update ComfyUI|install version 5)"):
        install.choose_package(version)


def test_no_transformers_says_so_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install, "installed_version", lambda name: None)
    assert install.main() == 1
    said = capsys.readouterr().err
    assert "transformers is not installed" in said
    assert "update ComfyUI" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("there", "calls"),
    [
        ({"transformers": "4.57.3", "qwen-tts": "0.1.1"}, []),
        ({"transformers": "4.57.3"}, ["install --no-deps --force-reinstall qwen-tts==0.1.1"]),
        (
            {"transformers": "4.57.3", "qwen-tts": "0.0.4"},
            ["install --no-deps --force-reinstall qwen-tts==0.1.1"],
        ),
        (
            {"transformers": "5.17.0", "qwen-tts": "0.1.1"},
            ["uninstall qwen-tts", "install --no-deps --force-reinstall qwen-tts-hf==0.1.1.post1"],
        ),
        (
            {"transformers": "5.17.0", "qwen-tts": "0.1.1", "qwen-tts-hf": "0.1.1.post1"},
            ["uninstall qwen-tts", "install --no-deps --force-reinstall qwen-tts-hf==0.1.1.post1"],
        ),
    ],
)
def test_main_brings_in_the_one_that_fits(
    there: dict[str, str], calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    monkeypatch.setattr(install, "installed_version", there.get)
    monkeypatch.setattr(install, "_pip", lambda python, *arguments: made.append(" ".join(arguments)))
    assert install.main() == 0
    assert made == calls


def test_a_failed_pip_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(python: str, *arguments: str) -> None:
        raise subprocess.CalledProcessError(1, ["pip", *arguments])

    monkeypatch.setattr(install, "installed_version", {"transformers": "4.57.3"}.get)
    monkeypatch.setattr(install, "_pip", fail)
    assert install.main() == 1
    assert "pip install --no-deps" in capsys.readouterr().err


def test_the_environment_of_this_run_has_the_one_that_fits() -> None:
    name, _, version = install.choose_package(importlib.metadata.version("transformers")).partition("==")
    assert install.installed_version(name) == version
    others = {requirement.partition("==")[0] for requirement in install.QWEN_TTS.values()} - {name}
    assert [other for other in others if install.installed_version(other)] == []


def test_create_environment_makes_a_python_with_pip_and_takes_it_again(tmp_path: Path) -> None:
    python = install.create_environment(tmp_path / "env")
    mark = tmp_path / "env" / "mark"
    mark.touch()
    where = subprocess.check_output([python, "-c", "import pip, sys; print(sys.prefix)"], text=True).strip()
    assert Path(where).resolve() == (tmp_path / "env").resolve()
    assert install.create_environment(tmp_path / "env") == python
    assert mark.exists()


def test_requirements_bring_no_torch_and_no_transformers() -> None:
    assert with_dependencies(requirements()) & KEPT == set()


def test_requirements_bound_nothing_from_above() -> None:
    bounds = {str(bound)[:2] for requirement in requirements() for bound in requirement.specifier}
    assert bounds == {">="}


def test_install_needs_the_standard_library_only() -> None:
    without_packages = [sys.executable, "-S", "-c", "import install; print(install.choose_package('4.57.3'))"]
    assert subprocess.check_output(without_packages, cwd=ROOT, text=True).strip() == "qwen-tts==0.1.1"
