"""The pack's requirements never touch torch or transformers, and its environments need the standard library only."""

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement

import install

ROOT = Path(install.__file__).resolve().parent
KEPT = {
    "torch",
    "torchvision",
    "torchaudio",
    "transformers",
    "qwen-tts",
    "qwen-tts-hf",
    "accelerate",
    "librosa",
}


def requirements() -> list[Requirement]:
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def with_dependencies(wanted: list[Requirement]) -> set[str]:
    """Return the names of these packages and their dependencies, as the installed packages declare them."""
    found: set[str] = set()
    queue = list(wanted)
    while queue:
        name = canonical(queue.pop().name)
        if name not in found:
            found.add(name)
            declared = map(Requirement, importlib.metadata.requires(name) or [])
            queue += [need for need in declared if not need.marker or need.marker.evaluate({"extra": ""})]
    return found


def test_requirements_bring_no_torch_and_no_transformers() -> None:
    assert with_dependencies(requirements()) & KEPT == set()


def test_requirements_have_no_upper_bounds() -> None:
    """Except packages so new that their next version may normalise texts differently."""
    bounds = {(one.name, str(bound)[:2]) for one in requirements() for bound in one.specifier}
    assert {name for name, bound in bounds if bound != ">="} == {"kitten-text-processing"}


def test_an_environment_is_made_once_with_the_standard_library_only(tmp_path: Path) -> None:
    code = "import install, pathlib, sys; print(install.create_environment(pathlib.Path(sys.argv[1])))"
    made = [
        subprocess.check_output([sys.executable, "-S", "-c", code, tmp_path / "env"], cwd=ROOT, text=True)
        for _ in range(2)
    ]
    python = Path(made[0].strip())
    assert made == [f"{python}\n"] * 2 and subprocess.run([python, "-c", "import pip"]).returncode == 0


def test_managers_still_run_it() -> None:
    done = subprocess.run([sys.executable, "-S", "install.py"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
