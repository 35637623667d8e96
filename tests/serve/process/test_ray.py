"""The server under Ray Serve: replicas on the CPU stand for GPUs, and one of them is killed at work."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import soundfile
from qwen3_tts_morph.morph.checkpoint.find import demo_voice
from qwen3_tts_morph.morph.kept.cache import LineCache
from qwen3_tts_morph.morph.kept.render import Listener
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line, Spoken
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice
from qwen3_tts_morph.serve.process.server import free_ports
from qwen3_tts_morph.serve.remote.connection import ask_server
from qwen3_tts_morph.serve.remote.servers import Server

import pack
from lab.streams import render_lines
from tests.patience import PATIENCE
from tests.serve.remote.rendering import render

RAY_PYTHON = os.environ.get("RAY_PYTHON") or (sys.executable if importlib.util.find_spec("ray") else "")
LINES, BEFORE, BURST = 200, 30, 32
OPTIONS = GenerateOptions(sampling=Sampling(max_seconds=0.8), batch_size=8, retries=0)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not RAY_PYTHON, reason="not run: Ray is not installed (python run_tests.py --all does so)"),
]


def replicas(server: psutil.Process) -> set[psutil.Process]:
    """Return the replicas among the processes that a server started."""
    return {one for one in server.children(recursive=True) if "ServeReplica" in "".join(one.cmdline())}


def wait_until_ready(process: subprocess.Popen[bytes], address: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        assert process.poll() is None, "the server has ended"
        try:
            with urllib.request.urlopen(f"{address}/ready", timeout=PATIENCE) as answer:
                assert answer.status == 200
                return
        except OSError:  # refused, 503, or no answer yet
            time.sleep(0.5)
    raise TimeoutError("the server was not ready in time")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[psutil.Process, str]]:
    """Yield the process of a server with two replicas of the demo voice, and its address."""
    port = free_ports(1)[0]
    words = ["-m", "serve", "serve", "--ray", "--replicas", "2", "--port", str(port), "--device", "cpu"]
    log = tmp_path_factory.mktemp("ray") / "server.log"
    env = {**os.environ, "RAY_ADDRESS": "local", "PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
    with log.open("wb") as out:
        process = subprocess.Popen([RAY_PYTHON, *words], cwd=pack.ROOT, env=env, stdout=out, stderr=out)
    server = psutil.Process(process.pid)
    try:
        wait_until_ready(process, f"http://127.0.0.1:{port}")
        yield server, f"http://127.0.0.1:{port}"
        children = server.children(recursive=True)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        assert psutil.wait_procs(children, 60)[1] == [], "processes are left"
    except BaseException:
        sys.stderr.write(log.read_text(encoding="utf-8", errors="replace")[-8000:])
        raise
    finally:
        if process.poll() is None:
            for one in [*server.children(recursive=True), server]:
                one.kill()


@pytest.fixture(scope="module")
def synthesizer() -> Synthesizer:
    return Synthesizer.load(demo_voice(), LoadOptions())


def numbered(synthesizer: Synthesizer) -> list[Line]:
    voice = preset_voice(synthesizer.model, "heart")
    return [Line(f"Go on, {number}.", voice, seed=number) for number in range(LINES)]


def write_file(folder: Path, index: int, spoken: Spoken) -> None:
    """Write one line's file whole, or not at all; fail where it is there already."""
    path = folder / f"{index:03d}.wav"
    assert not path.exists(), f"line {index} came twice"
    unfinished = path.with_suffix(".part")
    soundfile.write(unfinished, spoken.waveform, spoken.sample_rate, format="WAV", subtype="FLOAT")
    unfinished.replace(path)


def test_the_example_for_a_cluster_makes_what_is_missing(tmp_path: Path) -> None:
    """``docs/examples/ray_lines.py``: a file per line; those that are there are left alone."""
    lines, folder = tmp_path / "lines.jsonl", tmp_path / "speech"
    rows = [{"name": f"line-{number}", "text": f"Go on, {number}.", "seed": number} for number in range(5)]
    lines.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    folder.mkdir()
    (folder / "line-3.wav").write_bytes(b"mine")
    (folder / "line-4.wav.99.part").write_bytes(b"half of it")
    first, again = run_example(lines, folder), run_example(lines, folder)
    assert "1 of 5 lines have a file" in first and "4 made, 0 not made" in first
    assert "5 of 5 lines have a file" in again and "0 made, 0 not made" in again
    assert (folder / "line-3.wav").read_bytes() == b"mine"
    for number in (0, 1, 2, 4):
        samples, rate = soundfile.read(folder / f"line-{number}.wav")
        assert rate == 24000 and np.abs(samples).max() > 0.05
    assert [path.name for path in folder.glob("*.part")] == ["line-4.wav.99.part"]


def run_example(*words: Path) -> str:
    """Run the example with two workers; return what it prints."""
    done = subprocess.run(
        [RAY_PYTHON, pack.ROOT / "docs" / "examples" / "ray_lines.py", *words, "--workers", "2"],
        env={**os.environ, "RAY_ADDRESS": "local", "PYTHONPATH": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_sound_comes_while_it_is_made(served: tuple[psutil.Process, str]) -> None:
    _, address = served
    body = {
        "input": "The rain has stopped, and nobody is there. " * 24,  # not over before its row is looked for
        "voice": "heart",
        "response_format": "pcm",
    }
    request = urllib.request.Request(
        f"{address}/v1/audio/speech", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        first = answer.read(4096)
        assert any(rows_in_use(address) for _ in range(200)), "the line had ended before its sound came"
        assert len(first) == 4096 and len(answer.read()) > 10 * 48000


def rows_in_use(address: str) -> int:
    """Ask whichever replica answers."""
    return int(status(address)["rows_in_use"])


def status(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{address}/v1/status", timeout=PATIENCE) as answer:
        told: dict[str, Any] = json.load(answer)
        return told


def test_a_replica_that_is_killed_loses_no_line_and_doubles_none(served, synthesizer, tmp_path) -> None:
    server, address = served
    first, files = replicas(server), tmp_path / "files"
    assert len(first) == 2
    files.mkdir()
    heard: Counter[int] = Counter()

    def on_line(index: int, spoken: Spoken) -> None:
        heard[index] += 1
        write_file(files, index, spoken)
        if len(heard) == BEFORE:
            min(first, key=lambda one: one.pid).kill()

    lines = numbered(synthesizer)
    facts, cache = ask_server(Server("ray", address)), LineCache(tmp_path / "kept", 10**9)
    spoken = render(facts, OPTIONS, lines, Listener(on_line=on_line), cache)
    assert [one.report.ended == "error" for one in spoken] == [False] * LINES
    assert heard == Counter(range(LINES))
    assert sorted(path.name for path in files.iterdir()) == [f"{index:03d}.wav" for index in range(LINES)]

    here = render_lines(synthesizer, lines, OPTIONS)
    for index, one in enumerate(here):
        written, _ = soundfile.read(files / f"{index:03d}.wav", dtype="float32")
        assert written.shape == one.waveform.shape, f"line {index} has another length"
        np.testing.assert_allclose(written, one.waveform, atol=3 / 32768, err_msg=f"line {index}")

    again: Counter[int] = Counter()  # a client that starts anew asks for nothing
    listener = Listener(on_line=lambda index, one: again.update({index: one.report.from_before}))
    render(facts, OPTIONS, lines, listener, cache)
    assert again == Counter(range(LINES))

    deadline = time.monotonic() + PATIENCE
    while len(replicas(server) - first) < 1:
        assert time.monotonic() < deadline, "the replica was not replaced"
        time.sleep(0.5)
