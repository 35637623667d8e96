"""How the test environments get their packages: with uv where it is on the PATH, else with pip; and their locks.

A lock has the exact versions of all packages of an environment, those that others ask for too. It is a file of pip's
constraints: it installs nothing by itself. ``python -m tests.locks`` writes the locks.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import install

LOCKS = Path(__file__).resolve().parent / "locks"
# pip comes with an environment, and some builds of torch ask for a Triton of their own.
NOT_LOCKED = ("pip", "triton")


def lock_of(name: str) -> Path:
    return LOCKS / f"{name}.txt"


def install_packages(python: Path, lock: Path | None, *arguments: str) -> None:
    """Install packages in the versions of a lock, or without one the newest that are allowed.

    What has no lock goes by pip, and torch must be there before: pip's settings may name a smaller build of torch than
    the index has, and uv does not read them.

    Args:
        python: of the environment.
        lock: a file of constraints.
        *arguments: requirements, or options that pip and uv both know.
    """
    if lock and (uv := shutil.which("uv")):
        command = [uv, "pip", "install", "--quiet", f"--python={python}", f"--constraint={lock}"]
        subprocess.run([*command, *arguments], check=True)
    else:
        install_with_pip(python, lock, *arguments)


def install_with_pip(python: Path, lock: Path | None, *arguments: str) -> None:
    """Install packages as ``install_packages`` does, with pip wherever uv is: torch, and what a path file adds to."""
    chosen = [f"--constraint={lock}"] if lock else []
    install.pip_install(python, "--quiet", *chosen, *arguments)


def resolve(python: Path, *arguments: str) -> dict[str, str]:
    """Return the versions of all packages that pip would add to an environment, by name; it adds none."""
    command = [python, "-m", "pip", "--disable-pip-version-check", "install", "-qq", "--dry-run"]
    done = subprocess.run([*command, "--report=-", *arguments], check=True, stdout=subprocess.PIPE)
    found = [one["metadata"] for one in json.loads(done.stdout)["install"]]
    return {one["name"].lower().replace("_", "-"): one["version"] for one in found}


def write_lock(lock: Path, versions: dict[str, str]) -> None:
    """Write a lock: one line per package, without the local part of a version, which names a build (2.13.0+cpu)."""
    python = "{}.{}".format(*sys.version_info[:2])
    lines = [f"# Written by `python -m tests.locks`, with Python {python} on {sys.platform}."]
    kept = sorted(name for name in versions if name not in NOT_LOCKED)
    lines += [f"{name}=={versions[name].partition('+')[0]}" for name in kept]
    lock.parent.mkdir(exist_ok=True)
    lock.write_text("\n".join(lines) + "\n", encoding="utf-8")
