"""Table "many": how much faster several devices speak a list of lines than one.

    python -m lab.benchmarks.many --shape 0.6B --devices cuda:0 cuda:1 --lines 512 --batch-size 64
    python -m lab.benchmarks.many --shape 0.6B --devices cuda:0 --lines 512 --batch-size 64 --engines shared server
    python -m lab.benchmarks.many --shape demo --devices cpu cpu --lines 16 --batch-size 2 --engines ray
    python -m lab.benchmarks.many --shape tiny --device cpu --devices cpu cpu --simulated    # the share of Python

Engine "shared" is what Render Script uses for several models in one process. The others get requests over loopback from
the client of Remote Model: "server" is ``serve`` with one device, then with all of them in its process; "ray" is
``serve --ray`` with one replica, then with one for each device. Each has ``--in-flight`` lines: with twice the
``--batch-size``, new lines are queued when many end together. ``times_one`` is relative to the row of one device,
``server_cpu`` and ``client_cpu`` are seconds of a processor for an hour of sound; ``late_captures`` and similar columns
are those of the table "server", and include the warm-up run. Lines have 4 to 20 words and at most ``--frames`` frames;
the models of "shared" never end a line earlier. Each row is the median of ``--repeats`` after a run that warms up.
``--simulated`` gives all but "ray" simulated devices (``simulated.py``), ``--slower 10`` makes them ten times slower,
for a computer with few cores.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
from qwen3_tts_morph.morph.batch.batch import Batch, Fleet
from qwen3_tts_morph.morph.kept.render import speak_lines
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import GenerateOptions
from qwen3_tts_morph.morph.speech.lines import Line, Spoken
from qwen3_tts_morph.morph.synthesizer import Engine, Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice
from qwen3_tts_morph.serve.process.server import free_ports
from qwen3_tts_morph.serve.remote.connection import ask_server
from qwen3_tts_morph.serve.remote.servers import Server
from qwen3_tts_morph.serve.remote.speaks import RemoteSpeaks

import pack

from .common import DEMO, FRAME_S, TEXT, RowSetting, fixed_length, keep, load_muted, make_row, parser
from .results import Row
from .server import slow_moments_of
from .server_process import read_metrics, started
from .simulated import Times, add_simulated, check_simulated, simulated

WORDS = (4, 20)
PROCESS_CPU = "process_cpu_seconds_total"
PATIENCE_S = 900  # until a server is ready
SEQ_GROUPS = 5
SHARED, SERVER, RAY = "shared", "server", "ray"
HOUR_S = 3600.0
SIMULATED = Times(frame=0.0021)  # of 64 lines at SEQ_GROUPS on an H200 (table "batches")


@dataclass(frozen=True)
class Timing:
    """The medians of one row: milliseconds, and the frames of each line; more details of the row."""

    ms: float
    frames: list[int]
    details: Mapping[str, float] = field(default_factory=dict)


def make_lines(model: Model, count: int) -> list[Line]:
    """Return lines of 4 to 20 words, the same in every run."""
    rng, words = random.Random(0), TEXT.split()
    voice = preset_voice(model, "ryan" if "ryan" in model.speakers else model.speakers[0])
    return [Line(" ".join(rng.choices(words, k=rng.randint(*WORDS))), voice, "english", seed) for seed in range(count)]


def measure(speak: Callable[[], Sequence[Spoken]], repeats: int) -> Timing:
    """Return the median time of speaking all lines; RuntimeError if one could not be made."""
    times, spoken = list[float](), list[Spoken]()
    for run in range(1 + repeats):
        began = time.perf_counter()
        spoken = list(speak())
        times.append(1000 * (time.perf_counter() - began))
        print(f"{len(spoken)} lines in {times[-1]:.0f} ms{' (warm-up)' if run == 0 else ''}", flush=True)
    if failed := [one.report.error for one in spoken if one.report.error]:
        raise RuntimeError(f"{len(failed)} lines could not be made: {failed[0]}")
    return Timing(statistics.median(times[1:]), [one.report.frames for one in spoken])


def measure_shared(models: Sequence[Model], lines: Sequence[Line], options: argparse.Namespace) -> Timing:
    generate = generate_options(models[0], options)
    engine = "graph" if options.simulated else "auto"
    with simulated(SIMULATED.slower(options.slower)) if options.simulated else nullcontext():
        # Inside the ``with``: each engine gets simulated frames.
        synthesizers = [Synthesizer(model, Engine(engine)) for model in models]
        try:
            with Fleet([Batch(one, rows=options.batch_size) for one in synthesizers]) as fleet:
                return measure(lambda: speak_lines(fleet, lines, generate), options.repeats)
        finally:
            for one in synthesizers:
                one.free()


def measure_server(
    lines: Sequence[Line],
    options: argparse.Namespace,
    checkpoint: Path,
    model: Model,
    devices: Sequence[str],
) -> Timing:
    words = server_words(options, checkpoint)
    if options.simulated:
        words += ["--engine", "graph", "--frame", SIMULATED.frame, "--slower", options.slower]
    module = "lab.benchmarks.simulated" if options.simulated else "serve"
    with started([*map(str, words), "--devices", *devices], module) as (address, *_):
        facts = ask_server(Server(SERVER, address))
        with RemoteSpeaks(facts, in_flight=options.in_flight * len(devices)) as speaks:
            before, client_s = read_metrics(address), time.process_time()
            generate = generate_options(model, options)
            made = measure(partial(speak_lines, speaks, lines, generate), options.repeats)
            after, client_s = read_metrics(address), time.process_time() - client_s
    hours = FRAME_S * sum(made.frames) * (1 + options.repeats) / HOUR_S
    server_s = after.get(PROCESS_CPU, 0.0) - before.get(PROCESS_CPU, 0.0)
    used = {"server_cpu": server_s / hours, "client_cpu": client_s / hours}
    return replace(made, details={**used, **slow_moments_of(before, after)})


def server_words(options: argparse.Namespace, checkpoint: Path) -> list[object]:
    return ["--rows", options.batch_size, "--waiting", options.in_flight, "--checkpoint", checkpoint]


def measure_ray(lines: Sequence[Line], options: argparse.Namespace, checkpoint: Path, model: Model) -> Iterator[Timing]:
    """Measure one replica, then one for each device."""
    for replicas in sorted({1, len(options.devices)}):
        generate = generate_options(model, options)
        with serving(checkpoint, replicas, options) as address:
            facts = ask_server(Server("ray", address))
            with RemoteSpeaks(facts, in_flight=options.in_flight * replicas) as speaks:
                yield measure(partial(speak_lines, speaks, lines, generate), options.repeats)


def generate_options(model: Model, options: argparse.Namespace) -> GenerateOptions:
    """Return the options of lines: at most ``--frames`` long, without retries."""
    sampling = fixed_length(model, options.frames)
    return GenerateOptions(SEQ_GROUPS, sampling, options.batch_size, retries=0)


@contextmanager
def serving(checkpoint: Path, replicas: int, options: argparse.Namespace) -> Iterator[str]:
    """Start ``serve --ray`` on this host; yield its address."""
    port = free_ports(1)[0]
    words = ["--port", port, "--replicas", replicas, *server_words(options, checkpoint)]
    device = "cpu" if options.devices[0] == "cpu" else "cuda"  # Ray shows each replica one GPU
    command = [sys.executable, "-m", "serve", "serve", "--ray", *words, "--device", device]
    env = {**os.environ, "RAY_ADDRESS": "local"}
    process = subprocess.Popen([str(word) for word in command], cwd=pack.ROOT, env=env, stdout=subprocess.DEVNULL)
    try:
        wait_until_ready(process, f"http://127.0.0.1:{port}")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)


def wait_until_ready(process: subprocess.Popen[bytes], address: str) -> None:
    """Return when every replica has spoken a first line; RuntimeError if the server ends, TimeoutError if slow."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}: see what it says above")
        try:
            with urllib.request.urlopen(f"{address}/ready", timeout=60):
                return
        except OSError:  # refused, 503, or no answer yet
            time.sleep(1)
    raise TimeoutError(f"the server was not ready after {PATIENCE_S} s")


def rows_of(engine: str, measured: Sequence[Timing], options: argparse.Namespace, model: Model) -> list[Row]:
    """Return the measured rows: of one device, and of all."""
    setting = RowSetting("many", engine, SEQ_GROUPS, options.batch_size)
    return [
        make_row(
            setting, options, model, one.ms, one.frames,
            devices=count, lines=options.lines, times_one=speed(one) / speed(measured[0]),
            **one.details, **({"in_flight": count * options.in_flight} if engine in (SERVER, RAY) else {}),
        )
        for one, count in zip(measured, (1, len(options.devices)), strict=False)
    ]  # fmt: skip


def speed(measured: Timing) -> float:
    """Return frames per millisecond."""
    return sum(measured.frames) / measured.ms


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    table = parser(__doc__, frames=250, repeats=3)
    table.add_argument("--devices", nargs="+", default=[f"cuda:{n}" for n in range(torch.cuda.device_count())])
    table.add_argument("--lines", type=int, default=512)
    table.add_argument("--batch-size", type=int, default=64)
    table.add_argument("--in-flight", type=int, help="of servers, for each; default: twice the --batch-size")
    table.add_argument("--engines", nargs="+", choices=(SHARED, SERVER, RAY), default=[SHARED])
    add_simulated(table)
    table.add_argument(
        "--slower", type=float, default=1.0, help="of --simulated: how many times as long the device takes"
    )
    options = table.parse_args(arguments)
    check_simulated(table, options)
    options.in_flight = options.in_flight or options.batch_size * 2
    if len(options.devices) < 2 and len(options.engines) < 2:
        table.error("name two devices or more: --devices cuda:0 cuda:1")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_arguments(arguments)
    with tempfile.TemporaryDirectory() as folder:
        options.checkpoints = options.checkpoints or Path(folder)  # one random checkpoint for all devices
        models = [load_muted(argparse.Namespace(**{**vars(options), "device": one})) for one in options.devices]
        lines = make_lines(models[0], options.lines)
        rows: list[Row] = []
        if SHARED in options.engines:
            shared = [measure_shared(models[:count], lines, options) for count in sorted({1, len(models)})]
            rows += rows_of("simulated" if options.simulated else SHARED, shared, options, models[0])
            keep(rows, options, models[0])
        path = pack.ROOT / "demo_voice" if options.shape == DEMO else options.checkpoints / options.shape
        if SERVER in options.engines:
            counts = sorted({1, len(models)})
            served = [measure_server(lines, options, path, models[0], options.devices[:count]) for count in counts]
            rows += rows_of(SERVER, served, options, models[0])
            keep(rows, options, models[0])
        if RAY in options.engines:
            ray: list[Timing] = []
            for one in measure_ray(lines, options, path, models[0]):
                ray.append(one)
                # Immediately: a rented machine may be gone before the server has stopped.
                keep([*rows, *rows_of(RAY, ray, options, models[0])], options, models[0])


if __name__ == "__main__":
    # Every line reaches its limit, as it should: do not log it.
    logging.getLogger("qwen3_tts_morph").setLevel(logging.ERROR)
    main()
