"""The environments in which run_tests.py runs the tests, and the Python that creates them."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import install
import pack
from tests.comfy import install as comfy
from tests.packages import install_packages, install_with_pip, lock_of

ROOT = Path(__file__).resolve().parents[1]
ENVS = ROOT / ".envs"
COMFY = ENVS / "comfy"
COMFY_PYTHON = install.environment_python(COMFY / "venv")
TRANSFORMERS_5 = ENVS / "transformers5"  # the oldest that the pack supports
NEWEST_TRANSFORMERS = ENVS / "transformers5-newest"  # beside it
NEWEST = ENVS / "newest"  # ComfyUI with the newest of everything: --newest
NEWEST_PYTHON = install.environment_python(NEWEST / "venv")
PLAIN = ENVS / "plain-{}.{}".format(*sys.version_info[:2])
RAY = ENVS / "ray"  # beside ComfyUI's
RAY_PYTHON = install.environment_python(RAY)
FRONTEND = COMFY / "frontend-1.58.1"  # unpacked by tests/comfy/install.py
JAVASCRIPT = ENVS / "javascript"  # what checks the scripts of the pages

# pysubs2 reads our captions, as another program.
PYTEST = ("pytest==9.2.0", "pytest-xdist==3.8.0", "hypothesis==6.170.17", "pysubs2==1.8.1")
LINTERS = ("ruff==0.17.5", "mypy==2.4.1", "import-linter==2.16")
BROWSER = ("playwright==1.65.2", "axe-playwright-python==0.1.8")
TOOLS = (*PYTEST, *LINTERS, "pytest-cov==7.1.0", *BROWSER)
TORCH = "torch==2.13.0"
OLDEST_TRANSFORMERS_5 = "transformers==5.4.0"
# The speech server, and its clients.
SERVER = (
    *(
        "fastapi==0.165.0",
        "starlette==1.10.0",
        "uvicorn==0.54.0",
        "websockets==17.4",
        "anyio==4.16.0",
        "prometheus-client==0.26.0",
    ),
    *("av==18.1.0", "httptools==0.9.0", "httpx==0.28.1", "openai==3.54.0"),
)
RAY_PACKAGES = ("ray[data,serve]==2.60.0",)
TRITON = "triton==3.6.0; sys_platform == 'linux' and platform_machine == 'x86_64'"  # elsewhere there are no wheels
OF_FILE = "--requirement="  # pip's option, and uv's
PACK = f"{OF_FILE}{ROOT / 'requirements.txt'}"
# Upstream, for comparisons, without its pins and what no 12 Hz model uses: for transformers 4, and for 5.
QWEN_TTS, QWEN_TTS_HF = "qwen-tts==0.1.1", "qwen-tts-hf==0.1.1.post1"
UPSTREAM_NEEDS = ("librosa==0.11.0", "einops==0.8.2")
# The judges of speech for the ComfyUI tests; those of the second file are installed without what they ask for.
JUDGES = f"{OF_FILE}{ROOT / 'tests' / 'requirements.txt'}"
JUDGES_ALONE = f"{OF_FILE}{ROOT / 'tests' / 'requirements-no-deps.txt'}"
IN_COMFY = (*comfy.TORCH, *comfy.PACKAGES, *TOOLS, *SERVER, PACK, JUDGES, *UPSTREAM_NEEDS)
IN_TRANSFORMERS_5 = (TORCH, OLDEST_TRANSFORMERS_5, *PYTEST, PACK, *UPSTREAM_NEEDS)
PYTHONS = ("3.11", "3.12", "3.13")  # for which all pinned packages have wheels; the first is preferred


def find_python(version: str) -> str | None:
    """Return a Python of this version on the PATH that can create environments (a version manager's shim may fail)."""
    for folder in os.get_exec_path():
        found = shutil.which(f"python{version}", path=folder)
        if found and is_python(found, version):
            return found
    return None


def is_python(path: str, version: str) -> bool:
    """Return whether the program is a Python of this version that can create environments."""
    check = f"import sys, ensurepip, venv; sys.exit('%d.%d' % sys.version_info[:2] != {version!r})"
    return subprocess.run([path, "-c", check], capture_output=True).returncode == 0


def choose_python() -> str | None:
    """Return the Python that runs the tests: 3.11, else this one if it is in PYTHONS, else another of PYTHONS."""
    preferred, *others = PYTHONS
    own = "{}.{}".format(*sys.version_info[:2])
    if own == preferred and is_python(sys.executable, own):
        return sys.executable
    if found := find_python(preferred):
        return found
    if own in others and is_python(sys.executable, own):
        return sys.executable
    return next((found for version in others if (found := find_python(version))), None)


def add_packages(python: Path, *wanted: str, alone: Sequence[str], lock: Path | None = None) -> None:
    """Install packages, unless the last run did: ``alone`` without what they ask for, the others as a lock says."""
    lines = [read_requirement(one) for one in (*wanted, *alone)]
    text = "\n".join([*lines, lock.read_text(encoding="utf-8") if lock else ""])
    stamp = python.parents[1] / "installed.txt"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != text:
        install_packages(python, lock, *wanted)
        install_with_pip(python, None, "--no-deps", *alone)
        stamp.write_text(text, encoding="utf-8")


def read_requirement(argument: str) -> str:
    """Return the text of a file of requirements, or the argument itself."""
    path = argument.removeprefix(OF_FILE)
    return argument if path == argument else Path(path).read_text(encoding="utf-8")


def make_comfy() -> None:
    """Create ComfyUI with transformers 4, our requirements, the test tools and the judges of speech."""
    install_comfy(COMFY)
    triton = [] if brings_triton(COMFY_PYTHON) else [TRITON]
    alone = (JUDGES_ALONE, QWEN_TTS)
    add_packages(COMFY_PYTHON, *IN_COMFY, *triton, alone=alone, lock=lock_of("comfy"))


def install_comfy(*arguments: str | Path) -> None:
    """Run the program that installs ComfyUI: a part of it that fails leaves no half of an environment in use."""
    subprocess.run([sys.executable, "-m", "tests.comfy.install", *arguments], cwd=ROOT, check=True)


def brings_triton(python: Path) -> bool:
    """Return whether the installed torch depends on Triton, as its CUDA builds do."""
    code = "import importlib.metadata as m, sys; found = m.requires('torch') or []\n"
    code += "sys.exit(not any(one.startswith('triton') for one in found))"
    return subprocess.run([python, "-c", code]).returncode == 0


def make_transformers_5() -> None:
    """Create the environment of the oldest transformers 5, without ComfyUI."""
    python, lock = install.create_environment(TRANSFORMERS_5), lock_of("transformers5")
    if not (TRANSFORMERS_5 / "installed.txt").exists():
        install_with_pip(python, lock, TORCH)
    add_packages(python, *IN_TRANSFORMERS_5, alone=[QWEN_TTS_HF], lock=lock)


def make_newest_transformers() -> None:
    """Create the environment of the newest transformers 5 on the index, beside that of the oldest.

    torch and what is new enough come from there, through a path file. With another pin there, this one is made again.
    """
    base = (TRANSFORMERS_5 / "installed.txt").read_text(encoding="utf-8")
    stamp = NEWEST_TRANSFORMERS / "base.txt"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != base:
        shutil.rmtree(NEWEST_TRANSFORMERS, ignore_errors=True)
    python = install.create_environment(NEWEST_TRANSFORMERS)
    link_packages(python, install.environment_python(TRANSFORMERS_5))
    wanted = ("--upgrade", "transformers", *PYTEST, PACK, *UPSTREAM_NEEDS)
    add_packages(python, *wanted, alone=[QWEN_TTS_HF])
    stamp.write_text(base, encoding="utf-8")
    write_versions(NEWEST_TRANSFORMERS, python)


def make_newest(program: Path | None) -> None:
    """Create the environment of --newest again; the next default run looks for the newest transformers again too.

    ``program``: a ComfyUI of yours, whose requirements it gets, in the place of 0.3.75.
    """
    for folder in (NEWEST, NEWEST_TRANSFORMERS):
        shutil.rmtree(folder, ignore_errors=True)
    install_comfy(NEWEST, "--newest", *(["--program", program] if program else []))
    newest = map(without_pin, (*SERVER, *UPSTREAM_NEEDS))
    add_packages(NEWEST_PYTHON, *PYTEST, *BROWSER, *newest, PACK, JUDGES, alone=[JUDGES_ALONE, QWEN_TTS_HF])
    write_versions(NEWEST, NEWEST_PYTHON)


def make_plain() -> None:
    """Create the environment of --plain: what a user gets today with this Python, without ComfyUI."""
    python = install.create_environment(PLAIN)
    newest = map(without_pin, (*PYTEST, *SERVER, *UPSTREAM_NEEDS))
    add_packages(python, "torch", "transformers", *newest, PACK, alone=[QWEN_TTS_HF])
    write_versions(PLAIN, python)


def without_pin(requirement: str) -> str:
    return requirement.partition("==")[0]


def read_versions(python: Path | str) -> dict[str, str]:
    """Return the versions of what was tested, as far as this Python has it: morph/tested.json's, and upstream's."""
    names = [*load_tested().tested(), "transformers", *map(without_pin, (QWEN_TTS, QWEN_TTS_HF))]
    code = (
        "import importlib.metadata as m, json\n"
        "there = {d.metadata['Name'].replace('_', '-') for d in m.distributions()}\n"
        f"print(json.dumps({{n: m.version(n).partition('+')[0] for n in {names!r} if n in there}}))"
    )
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def load_tested() -> ModuleType:
    """Return ``morph/tested.py``, which needs no package that the tests' own Python lacks."""
    pack.load()
    return importlib.import_module(f"{pack.NAME}.morph.tested")


def write_versions(folder: Path, python: Path) -> None:
    """Write which versions an environment got whose packages are not pinned."""
    (folder / "versions.json").write_text(json.dumps(read_versions(python), indent=2) + "\n", encoding="utf-8")


def make_ray() -> None:
    """Create the environment of the server under Ray: Ray, and, through a path file, what ComfyUI's environment has.

    Ray brings other versions of packages that ComfyUI uses.
    """
    python = install.create_environment(RAY)
    link_packages(python, COMFY_PYTHON)
    lock = lock_of("ray")
    wanted = "\n".join([*RAY_PACKAGES, lock.read_text(encoding="utf-8")])
    stamp = RAY / "installed.txt"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        # uv does not look through path files, and would install again what ComfyUI's has.
        install_with_pip(python, lock, *RAY_PACKAGES)
        stamp.write_text(wanted, encoding="utf-8")


def make_javascript() -> None:
    """Install what checks the scripts of the pages: with npm, in the versions of its lock."""
    source, npm = ROOT / "tests" / "javascript", shutil.which("npm")
    assert npm is not None  # run_tests.py asks before
    wanted = (source / "package-lock.json").read_bytes()
    stamp = JAVASCRIPT / "installed.json"
    if stamp.exists() and stamp.read_bytes() == wanted:
        return
    JAVASCRIPT.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(source / name, JAVASCRIPT)
    subprocess.run([npm, "ci", "--silent", "--ignore-scripts"], cwd=JAVASCRIPT, check=True)
    stamp.write_bytes(wanted)


def script_tool(name: str) -> str:
    """Return the path of a program that ``make_javascript`` installed."""
    found = shutil.which(name, path=JAVASCRIPT / "node_modules" / ".bin")
    if not found:
        raise FileNotFoundError(f"{JAVASCRIPT} has no {name}: delete that folder, then run this again")
    return found


def link_packages(python: Path, other: Path) -> None:
    """Let an environment import what another has, after its own packages."""
    (site_packages(python) / "other.pth").write_text(f"{site_packages(other)}\n", encoding="utf-8")


def site_packages(python: Path) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return Path(done.stdout.strip())


def bring_chromium() -> None:
    """Install Debian's Chromium if none is found and we are root."""
    found = any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    if found or os.environ.get("CHROMIUM") or not shutil.which("apt-get") or os.geteuid() != 0:
        return
    print("\n=== Chromium", flush=True)
    if subprocess.run(["apt-get", "update", "-qq"]).returncode == 0:
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "install", "-y", "-qq", "chromium"], env=quiet, stdout=subprocess.DEVNULL)
