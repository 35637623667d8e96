"""Install the ``qwen_tts`` package that fits this Python's transformers, without changing torch or transformers.

ComfyUI-Manager runs this file after ``requirements.txt``; without the Manager, run it with ComfyUI's Python. The two
published packages each pin one version of transformers, so they are installed without dependencies. Of these, sox,
onnxruntime, torchaudio, gradio and accelerate are left out: no 12 Hz model uses them. Both packages provide the
module ``qwen_tts``, so only one may be installed. The one that does not fit is removed only after the other has been
downloaded, and is restored if the installation fails.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from types import ModuleType

QWEN_TTS = {4: "qwen-tts==0.1.1", 5: "qwen-tts-hf==0.1.1.post1"}  # by transformers' major version
OLDEST_MINOR = {4: 57, 5: 4}  # tested: older versions of 5 cannot read qwen-tts-hf's configuration
NEEDED = "4.57, or 5.4 and later"
TESTED = Path(__file__).resolve().parent / "morph" / "tested.py"
STDERR = 2  # stdout is for a program's output, such as audio
FIX = "update ComfyUI with its requirements, then run install.py again"


def choose_package(transformers_version: str | None) -> str:
    """Return the qwen_tts requirement for this transformers; ValueError if there is none.

    The version may be None after a broken installation.
    """
    found = re.match(r"(\d+)\.(\d+)", transformers_version or "")
    if not found:
        raise ValueError(f"transformers has version {transformers_version!r}, which is not a number: {FIX}")
    major, minor = int(found[1]), int(found[2])
    if major > max(QWEN_TTS):
        raise ValueError(
            f"transformers {transformers_version} is newer than any qwen-tts: install version {NEEDED}"
        )
    if minor < OLDEST_MINOR.get(major, sys.maxsize):
        raise ValueError(
            f"transformers {transformers_version} is too old for qwen-tts, which needs {NEEDED}: {FIX}"
        )
    return QWEN_TTS[major]


def installed_version(name: str) -> str | None:
    """Return the version of a package in this Python, None if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def environment_python(path: Path) -> Path:
    return path / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def create_environment(path: Path) -> Path:
    """Create a virtual environment, unless there is one with pip; return the path of its Python."""
    python = environment_python(path)
    if not (python.exists() and _has_pip(python)):
        venv.EnvBuilder(with_pip=True, clear=True, symlinks=os.name != "nt").create(path)
    return python


def pip_install(python: Path | str, *arguments: str, quiet: bool = True) -> None:
    """Run ``pip install``; CalledProcessError if it fails. Without ``quiet``, progress goes to stderr."""
    _pip(python, "install", *arguments, quiet=quiet)


def _has_pip(python: Path | str) -> bool:
    # Not "pip --version": that takes half a second, and speak.py asks before every command.
    return subprocess.run([str(python), "-c", "import pip"], capture_output=True).returncode == 0


def _pip(python: Path | str, action: str, *arguments: str, quiet: bool = True) -> None:
    silence = ["--quiet"] if quiet else []
    if _has_pip(python):
        command = [str(python), "-m", "pip", "--disable-pip-version-check", *silence, action]
        command += ["--yes"] if action == "uninstall" else []
    else:
        uv = shutil.which("uv")
        if uv is None:
            raise FileNotFoundError(f"{python} has neither pip nor uv: run '{python} -m ensurepip' first")
        command = [uv, "pip", action, *silence, "--python", str(python)]
    subprocess.run([*command, *arguments], check=True, stdout=STDERR)


def install_qwen_tts() -> str:
    """Install the qwen_tts that fits; return a sentence that says what was done."""
    transformers = installed_version("transformers")
    if transformers is None:
        raise ValueError(f"transformers is not installed for {sys.executable}: {FIX}")
    requirement = choose_package(transformers)
    name, _, version = requirement.partition("==")
    others = [other.partition("==")[0] for other in QWEN_TTS.values() if other != requirement]
    unfit = [other for other in others if installed_version(other)]
    if not unfit and installed_version(name) == version:
        return f"{requirement} is installed and fits transformers {transformers}: nothing to do"
    with tempfile.TemporaryDirectory() as folder:
        _replace(unfit, requirement, Path(folder))
    return f"installed {requirement} for transformers {transformers}"


def _replace(unfit: list[str], requirement: str, folder: Path) -> None:
    """Install a requirement in place of other packages; on failure restore everything and raise pip's error."""
    fetched = _fetch(requirement, folder / "new")  # fails here without a network
    name = requirement.partition("==")[0]
    before = [one for one in (*unfit, name) if installed_version(one)]
    sites = {one: _back_up(one, folder / "old" / one) for one in before}
    try:
        if unfit:
            _pip(sys.executable, "uninstall", *unfit)
        # Uninstalling one package also deletes files of the other: write them all again.
        pip_install(sys.executable, "--no-deps", "--force-reinstall", *fetched)
    except BaseException:
        if name not in before and installed_version(name):
            _pip(sys.executable, "uninstall", name)
        for one, site in sites.items():
            shutil.copytree(folder / "old" / one, site, dirs_exist_ok=True)
        raise


def _fetch(requirement: str, folder: Path) -> list[str]:
    """Download a requirement; return the arguments that then install it without a network."""
    if not _has_pip(sys.executable):
        _pip(sys.executable, "install", "--no-deps", "--target", str(folder), requirement)
        return ["--offline", requirement]  # from uv's cache
    _pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", str(folder), requirement)
    wheels = [str(wheel) for wheel in folder.glob("*.whl")]
    if not wheels:
        raise FileNotFoundError(f"pip downloaded {requirement} but left no wheel in {folder}")
    return wheels


def _back_up(name: str, folder: Path) -> Path:
    """Copy an installed package's files to a folder; return the folder that they were installed in."""
    package = importlib.metadata.distribution(name)
    site = Path(str(package.locate_file("")))
    for file in package.files or []:
        source = Path(str(file.locate()))
        if ".." not in file.parts and source.is_file():  # scripts are elsewhere; the pack needs none
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, folder / file)
    folder.mkdir(parents=True, exist_ok=True)
    return site


def load_tested() -> ModuleType:
    """Return ``morph/tested.py``, loaded by its path: the pack may not be importable yet."""
    spec = importlib.util.spec_from_file_location("qwen3_tts_morph_tested", TESTED)
    assert spec is not None and spec.loader is not None  # it ends in .py
    tested = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tested)
    return tested


def main() -> int:
    """Install, and print in one line what happened; return 1 if nothing could be installed."""
    try:
        print(f"Qwen3-TTS Morph: {install_qwen_tts()}")
        if newer := load_tested().describe_newer():
            print(f"Qwen3-TTS Morph: {newer}")
    except (ValueError, OSError) as problem:
        print(f"Qwen3-TTS Morph: {problem}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as problem:
        command = " ".join(problem.cmd)
        print(
            f"Qwen3-TTS Morph: '{command}' failed, its message is above. What was installed before is still there: "
            "fix that, then run install.py again.",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
