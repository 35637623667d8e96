"""The packages of the test environments: their locks, and with what they are installed."""

import importlib.metadata
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

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
    found = {one.metadata["Name"].lower().replace("_", "-"): one.version for one in importlib.metadata.distributions()}
    locked = versions_of(packages.lock_of("comfy"))
    here_too = {name: found[name].partition("+")[0] for name in locked if name in found}
    assert len(here_too) > 100 and here_too.items() <= locked.items()
