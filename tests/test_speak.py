"""The first command of the README: a text in, the demo voice's speech out; and the environment that it makes."""

import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from qwen3_tts_morph.morph.voice.file import save_voice
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.serve.process.server import PACKAGES
from qwen3_tts_morph.serve.terminal.folders import exclusive

import speak


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command with a Western European terminal encoding, as is common on Windows."""
    command = [sys.executable, speak.__file__, "--here", *map(str, arguments)]
    env = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    return subprocess.run(command, capture_output=True, text=True, encoding="cp1252", env=env)


def test_the_demo_voice_speaks_and_the_report_has_duration_speed_and_path(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile", reason="not run: the package soundfile is not installed")
    out = tmp_path / "a line.wav"
    done = run("Good evening, \u0418\u0432\u0430\u043d.", "--out", out)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(out)]  # for scripts: nothing but the path
    assert "demo_voice (" in done.stderr and r"\u0418\u0432\u0430\u043d" in done.stderr
    assert "Traceback" not in done.stderr and "\r" not in done.stderr and "frame 1 " not in done.stderr
    seconds = float(re.search(r"([\d.]+) s of audio in [\d.]+ s: [\d.]+ times real time", done.stderr)[1])
    waveform, rate = soundfile.read(out)
    assert rate == 24000 and len(waveform) / rate == pytest.approx(seconds, abs=0.01) and seconds > 0
    assert abs(waveform).max() > 0.01
    assert list(tmp_path.iterdir()) == [out]


def test_bad_input_gets_an_error_sentence_and_no_file(monkeypatch, capsys, tmp_path) -> None:
    words = ["--here", "Yes.", "--speaker", "vivian", "--out", str(tmp_path / "speech.wav")]
    monkeypatch.setattr(sys, "argv", [speak.__file__, *words])
    assert speak.main() == 2
    told = capsys.readouterr()
    assert "speak.py: speaker 'vivian' is unknown to demo_voice" in told.err and not told.out
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_is_read_with_a_python_that_has_no_packages(tmp_path: Path) -> None:
    """The first run has nothing installed yet: bad input is refused, and the overview shown, all the same."""
    code = (
        "import runpy, sys; sys.meta_path.insert(0, type('No', (), {'find_spec': staticmethod(refuse)}))\n"
        "sys.argv = ['speak.py', *sys.argv[1:]]\n"
        f"runpy.run_path({speak.__file__!r}, run_name='__main__')"
    )
    heavy = ("torch", "numpy", "transformers", "soundfile", "tqdm", "safetensors")
    refuse = f"def refuse(name, *_):\n  if name.split('.')[0] in {heavy}: raise ModuleNotFoundError(name=name)\n"

    def without_packages(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", refuse + code, *words]
        env = {**os.environ, "PYTHONPATH": str(Path(speak.__file__).parent)}
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env)

    for command in ("speak", "clone", "voices", "script", "sweep"):
        shown = without_packages(command, "--help")
        assert shown.returncode == 0 and f"usage: speak.py {command}" in shown.stdout, shown.stderr
    assert re.fullmatch(r"[\d.]+\n", without_packages("--version").stdout)
    done = without_packages("Yes.", "--seq-groups", "99")
    assert done.returncode == 2 and "is not a whole number from 1 to 15" in done.stderr
    assert "first run" not in done.stderr  # it comes before the installation
    done = without_packages("Yes.", "--here")
    assert done.returncode == 1 and "has no package" in done.stderr and "Traceback" not in done.stderr


REFUSED = {
    "voices list": "x_vector  1.7B",
    "voices show Nobody": "voice 'Nobody' is not in the library",
    "voices shift Mood --of Nobody --toward emma --away emma": "voice 'Nobody' is neither a file, a saved voice nor",
    "speak ...": "text '...' has no letter and no digit to speak",
    "Yes. --language klingon": "language 'klingon' is unknown to demo_voice",
    "Yes. --speaker nobody": "speaker 'nobody' is unknown to demo_voice",
    "Yes. --voice Nobody": "voice 'Nobody' is not in the library",
    "Yes. --reference none.wav": "none.wav is not a file",
    "Yes. --lora nothing": "adapter nothing is neither a folder nor",
    "script scene.txt": "NOBODY",
    "script scene.txt --cast NOBODY=none": "voice 'none' is not in the library",
    "dub scene.srt --language klingon": "language 'klingon' is unknown to demo_voice",
    "sweep Yes. --groups 99": "SEQ_GROUPS is 99",
    "serve --port 99999": "port is 99999",
}


def test_what_needs_no_model_is_answered_without_its_packages(tmp_path: Path) -> None:
    """Each takes seconds to import, and a slip is an answer that people wait for."""
    (tmp_path / "scene.txt").write_text("NOBODY: Hello.\n")
    (tmp_path / "scene.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nHello.\n")
    (tmp_path / "ComfyUI" / "models").mkdir(parents=True)
    voice = Voice("x_vector", "1b7", "Anna", torch.ones(8))
    save_voice(voice, tmp_path / "ComfyUI" / "models" / "qwen3-tts-voices" / "Anna.safetensors")
    code = (
        "import sys, pack\n"
        "def refuse(name, *_):\n"
        "  assert name not in ('torch', 'transformers', 'scipy.signal', 'qwen_tts', 'fastapi'), name\n"
        "sys.meta_path.insert(0, type('No', (), {'find_spec': staticmethod(refuse)}))\n"
        "pack.load()\n"
        "from qwen3_tts_morph.serve.cli import main\n"
        "for line in sys.argv[1:]:\n"
        "  try:\n"
        "    code = main(line.split(), 'speak.py')\n"
        "  except SystemExit as ended:\n"
        "    code = ended.code\n"
        "  print(f'code {code}', file=sys.stderr)\n"
    )
    paths = {"PYTHONPATH": str(Path(speak.__file__).parent), "COMFYUI_DIR": str(tmp_path / "ComfyUI")}
    command = [sys.executable, "-c", code, *REFUSED]
    env = {**os.environ, **paths}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path, env=env)
    answers = re.split(r"code (\d)\n", done.stdout)
    assert answers[1::2] == ["0", *"2" * (len(REFUSED) - 1)], done.stdout
    for answer, words in zip(answers[::2], REFUSED.values(), strict=False):
        assert words in answer


def test_without_here_the_arguments_go_to_the_environment(monkeypatch, tmp_path) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(speak, "prepare_environment", lambda: Path("its-python"))
    monkeypatch.setattr(speak, "wait", lambda command: calls.append(list(command)) or 7)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["speak.py", "Yes.", "--seed", "3"])
    assert speak.main() == 7
    assert calls == [["its-python", speak.__file__, "--here", "Yes.", "--seed", "3"]]
    monkeypatch.setattr(sys, "argv", ["speak.py", "Yes.", "--seed", "x"])
    with pytest.raises(SystemExit, match="2"):
        speak.main()
    assert len(calls) == 1


def test_an_environment_that_cannot_be_made_is_one_sentence(monkeypatch, capsys) -> None:
    def full() -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(speak, "prepare_environment", full)
    assert speak.run_in_environment(["Yes."]) == 1
    told = capsys.readouterr()
    assert "cannot be made (No space left on device): put the pack where" in told.err and not told.out


def test_a_failing_pip_is_one_sentence_with_what_to_do(monkeypatch, capsys) -> None:
    def offline() -> Path:
        raise subprocess.CalledProcessError(1, ["python", "-m", "pip"])

    monkeypatch.setattr(speak, "prepare_environment", offline)
    assert speak.run_in_environment(["Yes."]) == 1
    told = capsys.readouterr()
    assert told.err.endswith("check the connection, then run the same command again\n") and "pip" not in told.err


def test_the_first_run_shows_what_pip_installs(monkeypatch, capfd, tmp_path) -> None:
    """It said nothing for minutes. stdout is for the path of the sound, or for the sound."""
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").touch()
    (tmp_path / "pip" / "__main__.py").write_text("import sys\nprint(sys.argv[1:])\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(speak, "ENVIRONMENT", tmp_path)
    monkeypatch.setattr(speak.install, "create_environment", lambda _: Path(sys.executable))
    monkeypatch.setattr(speak, "ROOT", tmp_path)
    (tmp_path / "requirements.txt").touch()
    speak.prepare_environment()
    speak.add_server(Path(sys.executable))
    told = capfd.readouterr()
    assert told.err.count("'install'") == 3 and "--quiet" not in told.err and not told.out


def test_the_environment_is_brought_up_to_date_with_the_pack(monkeypatch, tmp_path) -> None:
    installed: list[tuple[str, ...]] = []
    monkeypatch.setattr(speak, "ENVIRONMENT", tmp_path)
    monkeypatch.setattr(speak.install, "create_environment", lambda path: path / "python")
    monkeypatch.setattr(speak.install, "pip_install", lambda _, *what: installed.append(what))
    for _ in range(2):
        assert speak.prepare_environment() == tmp_path / "python"
    assert len(installed) == 2  # torch, and the requirements: once
    (tmp_path / "ready").write_text("an older version's", encoding="utf-8")
    speak.prepare_environment()
    assert len(installed) == 4


def test_pip_is_not_started_before_every_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands: list[list[str]] = []
    real = subprocess.run

    def watched(command: list[str], **more: object) -> subprocess.CompletedProcess:
        commands.append(command)
        return real(command, **more)

    monkeypatch.setattr(speak.install, "environment_python", lambda _: Path(sys.executable))
    monkeypatch.setattr(speak.install.subprocess, "run", watched)
    monkeypatch.setattr(speak, "ENVIRONMENT", tmp_path)
    (tmp_path / "ready").write_text(speak.wanted(), encoding="utf-8")
    assert speak.prepare_environment() == Path(sys.executable)
    assert commands == [[sys.executable, "-c", "import pip"]]


def test_the_servers_packages_are_installed_once_and_only_for_it(monkeypatch, tmp_path) -> None:
    installed = []
    monkeypatch.setattr(speak, "ENVIRONMENT", tmp_path)
    monkeypatch.setattr(speak, "prepare_environment", lambda: Path("its-python"))
    monkeypatch.setattr(speak, "wait", lambda command: 0)
    monkeypatch.setattr(speak.install, "pip_install", lambda python, *words: installed.append(words))
    assert speak.run_in_environment(["Hello."]) == 0 and installed == []
    assert [speak.run_in_environment(["serve", "--port", "1"]) for _ in range(2)] == [0, 0]
    assert installed == [tuple(PACKAGES.values())]


def test_two_first_runs_make_the_environment_one_after_the_other(monkeypatch, capsys, tmp_path) -> None:
    """The second one deleted what the first one had installed."""
    done: list[str] = []
    monkeypatch.setattr(speak, "ENVIRONMENT", tmp_path / "environments" / "speak")
    monkeypatch.setattr(speak, "prepare_environment", lambda: done.append("second") or Path("its-python"))
    monkeypatch.setattr(speak, "wait", lambda _: 0)
    monkeypatch.setattr(
        speak, "time", SimpleNamespace(sleep=lambda _: first.close() if len(slept) == 3 else slept.append(1))
    )
    slept: list[int] = []
    with ExitStack() as first:
        (tmp_path / "environments").mkdir()
        first.enter_context(exclusive(tmp_path / "environments"))
        first.callback(done.append, "first")
        assert speak.run_in_environment(["Yes."]) == 0
    assert done == ["first", "second"]
    assert capsys.readouterr().err.count("another run prepares the environment: waiting for it") == 1


def test_the_exit_code_is_that_of_the_environment() -> None:
    assert speak.wait([sys.executable, "-c", "raise SystemExit(130)"]) == 130
