"""Installing must fit qwen_tts to the user's transformers, and never touch torch or transformers."""

import dataclasses
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import zipfile
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


@pytest.mark.parametrize("version", ["4.57.0", "4.57.3", "4.60.0.dev0"])
def test_transformers_4_gets_the_original(version: str) -> None:
    assert install.choose_package(version) == "qwen-tts==0.1.1"


@pytest.mark.parametrize("version", ["5.4.0", "5.17.0", "5.20.0rc1"])
def test_transformers_5_gets_the_port(version: str) -> None:
    assert install.choose_package(version) == "qwen-tts-hf==0.1.1.post1"


@pytest.mark.parametrize(
    "version", ["4.9.2", "4.56.2", "3.5.1", "3.60.0", "5.0.0", "5.3.0", "6.0.0", "main", None]
)
def test_other_transformers_are_refused_with_the_fix(version: str | None) -> None:
    with pytest.raises(
        ValueError, match=r"transformers.*(update ComfyUI|install version 4\.57, or 5\.4 and later)"
    ):
        install.choose_package(version)


def test_no_transformers_says_so_and_fails(monkeypatch, capsys) -> None:
    monkeypatch.setattr(install, "installed_version", lambda name: None)
    assert install.main() == 1
    said = capsys.readouterr().err
    assert "transformers is not installed" in said
    assert "update ComfyUI" in said
    assert said.count("\n") == 1


def wheel(folder: Path, name: str, version: str, *files: str) -> None:
    """Write a wheel of a package; its files contain its name."""
    folder.mkdir(exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    kind = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    contents = dict.fromkeys(files, f"name = {name!r}\n")
    contents |= {f"{stem}.dist-info/METADATA": about, f"{stem}.dist-info/WHEEL": kind}
    record = f"{stem}.dist-info/RECORD"
    contents[record] = "".join(f"{file},,\n" for file in (*contents, record))
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as archive:
        for file, content in contents.items():
            archive.writestr(file, content)


@dataclasses.dataclass(frozen=True)
class Environment:
    """A separate Python whose pip sees one folder of wheels and no network."""

    python: Path
    wheels: Path

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        alone = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels), "PIP_CONFIG_FILE": os.devnull}
        command = (str(self.python), *command)
        return subprocess.run(command, env={**os.environ, **alone}, cwd=ROOT, capture_output=True, text=True)

    def install(self, *names: str) -> None:
        assert self.run("-m", "pip", "install", "--no-deps", "--force-reinstall", *names).returncode == 0

    def place(self, site: Path, *names: str) -> None:
        """Leave what pip installs from the wheels of these packages, and nothing else; pip takes longer."""
        for path in [*site.glob("qwen*"), *site.glob("transformers*")]:
            shutil.rmtree(path)
        for name in names:
            [found] = self.wheels.glob(f"{name.replace('-', '_')}-[0-9]*.whl")
            with zipfile.ZipFile(found) as archive:
                archive.extractall(site)

    def there(self) -> tuple[str, ...]:
        """Return what ``import qwen_tts`` imports, and which packages are installed."""
        script = (
            "import importlib.metadata as m, qwen_tts, qwen_tts.core; print(qwen_tts.core.name, qwen_tts.name, "
            "*sorted(d.metadata['Name'] for d in m.distributions() if d.metadata['Name'].startswith('qwen')))"
        )
        return tuple(self.run("-c", script).stdout.split())


FILES = ("qwen_tts/__init__.py", "qwen_tts/core.py")
OLD, NEW = "qwen-tts", "qwen-tts-hf"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install.create_environment(tmp_path_factory.mktemp("pythons") / "env")


@pytest.fixture(scope="module")
def site(python: Path) -> Path:
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(subprocess.check_output([python, "-c", where], text=True).strip())


@pytest.fixture
def environment(python: Path, site: Path, tmp_path: Path) -> Environment:
    """transformers 5 with the qwen_tts of transformers 4, as after an update of ComfyUI."""
    made = Environment(python, tmp_path / "wheels")
    wheel(made.wheels, "transformers", "5.17.0", "transformers/__init__.py")
    wheel(made.wheels, OLD, "0.1.1", *FILES)
    made.place(site, "transformers", OLD)
    assert made.there() == (OLD, OLD, OLD)
    return made


def test_offline_nothing_is_uninstalled(environment: Environment) -> None:
    done = environment.run("install.py")
    assert done.returncode == 1 and environment.there() == (OLD, OLD, OLD)
    said = done.stderr.splitlines()[-1]
    assert "wheel" in said and "failed" in said and "What was installed before is still there" in said


def test_a_failed_installation_keeps_the_old_package(environment: Environment) -> None:
    blocker = (
        Path(environment.run("-c", "import qwen_tts; print(qwen_tts.__file__)").stdout).parents[1] / "blocker"
    )
    blocker.touch()
    wheel(environment.wheels, NEW, "0.1.1.post1", *FILES, "blocker/inside.py")
    done = environment.run("install.py")
    blocker.unlink()
    assert done.returncode == 1 and environment.there() == (OLD, OLD, OLD)
    assert "What was installed before is still there" in done.stderr.splitlines()[-1]


def test_an_older_package_of_the_same_name_is_replaced(environment: Environment, site: Path) -> None:
    wheel(environment.wheels, NEW, "0.1.0", *FILES)
    environment.place(site, "transformers", NEW)
    assert environment.run("install.py").returncode == 1 and environment.there() == (NEW, NEW, NEW)
    wheel(environment.wheels, NEW, "0.1.1.post1", *FILES)
    assert environment.run("install.py").returncode == 0


def test_uv_downloads_before_it_uninstalls(monkeypatch: pytest.MonkeyPatch) -> None:
    """ComfyUI Desktop's Python has no pip; uv installs from what it has fetched."""
    made: list[str] = []
    there = {"transformers": "5.17.0", OLD: "0.1.1"}
    monkeypatch.setattr(install, "installed_version", there.get)
    monkeypatch.setattr(install, "_has_pip", lambda python: False)
    monkeypatch.setattr(install, "_back_up", lambda name, folder: folder)
    monkeypatch.setattr(
        install, "_pip", lambda python, *arguments, quiet=True: made.append(" ".join(arguments))
    )
    assert install.main() == 0
    assert re.fullmatch(r"install --no-deps --target \S+ qwen-tts-hf==0.1.1.post1", made[0])
    assert made[1:] == [
        "uninstall qwen-tts",
        "install --no-deps --force-reinstall --offline qwen-tts-hf==0.1.1.post1",
    ]


def test_the_environment_of_this_run_has_the_one_that_fits() -> None:
    name, _, version = install.choose_package(importlib.metadata.version("transformers")).partition("==")
    assert install.installed_version(name) == version
    others = {requirement.partition("==")[0] for requirement in install.QWEN_TTS.values()} - {name}
    assert [other for other in others if install.installed_version(other)] == []


def test_requirements_bring_no_torch_and_no_transformers() -> None:
    assert with_dependencies(requirements()) & KEPT == set()


def test_requirements_have_no_upper_bounds() -> None:
    """Except packages so new that their next version may normalise texts differently."""
    bounds = {(one.name, str(bound)[:2]) for one in requirements() for bound in one.specifier}
    assert {name for name, bound in bounds if bound != ">="} == {"kitten-text-processing"}


def test_install_needs_the_standard_library_only() -> None:
    without_packages = [sys.executable, "-S", "-c", "import install; print(install.choose_package('4.57.3'))"]
    assert subprocess.check_output(without_packages, cwd=ROOT, text=True).strip() == "qwen-tts==0.1.1"
