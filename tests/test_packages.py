"""The packages of the test environments: their locks, and with what they are installed."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

import install
from tests import environments, packages

LOCKED = {
    "comfy": environments.IN_COMFY,
    "transformers5": environments.IN_TRANSFORMERS_5,
    "ray": environments.RAY_PACKAGES,
}


def versions_of(lock: Path) -> dict[str, str]:
    lines = [line for line in lock.read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    return dict(line.split("==") for line in lines)


def pins_of(wanted: Sequence[str]) -> dict[str, str]:
    """Return the versions that requirements and files of requirements pin."""
    lines = [line for one in wanted for line in environments.read_requirement(one).splitlines()]
    found = [re.match(r"([\w.-]+)(?:\[.*\])?==([\w.]+)", line) for line in lines]
    return {pin[1].lower().replace("_", "-"): pin[2] for pin in found if pin}


@pytest.mark.parametrize("name", LOCKED)
def test_a_lock_has_what_is_pinned(name: str) -> None:
    """A pin was changed: renew the locks with ``python -m tests.locks``."""
    pins, locked = pins_of(LOCKED[name]), versions_of(packages.lock_of(name))
    assert pins and pins.items() <= locked.items()


def test_every_lock_is_used() -> None:
    assert {path.stem for path in packages.LOCKS.iterdir()} == set(LOCKED)


@pytest.mark.parametrize("name", LOCKED)
def test_a_lock_is_the_same_on_every_machine(name: str) -> None:
    """No builds, markers, addresses or hashes, and nothing that depends on the build of torch."""
    lines = packages.lock_of(name).read_text(encoding="utf-8").splitlines()[1:]
    assert all(re.fullmatch(r"[a-z0-9.-]+==[a-z0-9.]+", line) for line in lines)
    names = [line.split("==")[0] for line in lines]
    assert names == sorted(set(names)) and not set(names) & set(packages.NOT_LOCKED)


def test_the_environment_has_the_versions_of_its_lock() -> None:
    here, comfy = Path(sys.prefix).resolve(), (environments.COMFY / "venv").resolve()
    if here != comfy:
        pytest.skip("not run: this Python is not that of .envs/comfy")
    found = {
        one.metadata["Name"].lower().replace("_", "-"): one.version
        for one in importlib.metadata.distributions()
    }
    locked = versions_of(packages.lock_of("comfy"))
    here_too = {name: found[name].partition("+")[0] for name in locked if name in found}
    assert len(here_too) > 100 and here_too.items() <= locked.items()


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that would install something."""
    found: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, check: found.append([str(one) for one in command]))
    monkeypatch.setattr(install, "_has_pip", lambda python: True)
    return found


@pytest.mark.parametrize("uv", [None, "/there/uv"])
@pytest.mark.parametrize("lock", [None, Path("a.txt")])
def test_uv_installs_what_is_locked_where_it_is_there(
    commands, monkeypatch: pytest.MonkeyPatch, uv: str | None, lock: Path | None
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: {"uv": uv}[name])
    packages.install_packages(Path("python"), lock, "one==1.0", "--requirement=more.txt")
    [words] = commands
    assert words[:3] == (["/there/uv", "pip", "install"] if uv and lock else ["python", "-m", "pip"])
    assert words[-2:] == ["one==1.0", "--requirement=more.txt"]
    assert ("--constraint=a.txt" in words) == bool(lock)
    assert ("--python=python" in words) == bool(uv and lock)


def make_wheel(folder: Path, name: str, version: str, needs: str = "") -> None:
    """Write a wheel that has nothing but its name, its version and what it needs."""
    about = f"{name}-{version}.dist-info"
    needed = f"Requires-Dist: {needs}\n" if needs else ""
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(
            f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}"
        )
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")


def test_a_lock_has_what_others_ask_for_without_the_name_of_a_build(tmp_path: Path) -> None:
    make_wheel(tmp_path, "morph_test_one", "1.0+cpu", needs="morph-test-two>=2")
    make_wheel(tmp_path, "morph_test_two", "2.0")
    make_wheel(tmp_path, "morph_test_two", "2.1")
    found = packages.resolve(Path(sys.executable), "--no-index", f"--find-links={tmp_path}", "morph-test-one")
    assert found == {"morph-test-one": "1.0+cpu", "morph-test-two": "2.1"}
    packages.write_lock(tmp_path / "locks" / "a.txt", {**found, "triton": "3.6.0"})
    assert versions_of(tmp_path / "locks" / "a.txt") == {"morph-test-one": "1.0", "morph-test-two": "2.1"}
