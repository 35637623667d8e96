"""Speak a split of the corpus with the teacher from a bundle, in several processes, on all available GPUs.

In addition to torch, transformers, numpy and safetensors this needs three pure Python wheels, installed without their
dependencies: ``kokoro==0.9.4`` (model code), ``loguru==0.7.3`` and ``attrs``.
"""

from __future__ import annotations

import logging
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from .bundle import Bundle, read_bundle
from .finish import FinishOptions, finish
from .log import start_log
from .mps import shared_gpus
from .plan import Task, plan
from .shards import Utterance, utterance, write_shard
from .teacher import SAMPLE_RATE, Teacher, load_teacher
from .voices import added_style, mixed_style, spread_of

SHARD_SECONDS = 1800.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SpeakOptions:
    """What to speak, and where to write it. ``limit`` cuts the plan to its first lines (0: all of them)."""

    bundle: Path
    out: Path
    split: str
    hours: float = 0.0
    seed: int = 0
    processes: int = 1
    device: str = "cpu"
    limit: int = 0
    finish: FinishOptions = field(default_factory=FinishOptions)

    def __post_init__(self) -> None:
        if self.processes < 1 or self.limit < 0:
            raise ValueError(f"processes={self.processes} must be at least 1, limit={self.limit} at least 0")


@dataclass(frozen=True)
class Made:
    """How much one process spoke."""

    lines: int
    seconds: float


def speak_split(options: SpeakOptions) -> Made:
    """Speak a complete split; raises ValueError if the folder already has shards of it."""
    options.out.mkdir(parents=True, exist_ok=True)
    if old := sorted(options.out.glob(f"{options.split}-*.safetensors")):
        raise ValueError(
            f"{options.out} already contains {old[0].name}: choose another folder or remove the split's shards"
        )
    if options.processes == 1:
        return _speak_part(options, 0)
    spawn = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    sharing = shared_gpus() if options.device == "cuda" else nullcontext()
    with sharing, ProcessPoolExecutor(options.processes, mp_context=spawn) as pool:
        parts = list(pool.map(_speak_spawned, [options] * options.processes, range(options.processes)))
    return Made(sum(part.lines for part in parts), sum(part.seconds for part in parts))


def planned_tasks(options: SpeakOptions, bundle: Bundle) -> list[Task]:
    """Return the plan of the split, cut to the limit."""
    tasks = plan(options.split, bundle.lines, bundle.cast, options.seed, options.hours)
    return tasks[: options.limit or None]


def choose_device(device: str, part: int) -> str:
    """Return the device of a process: "cuda" distributes the processes over all GPUs."""
    return f"cuda:{part % torch.cuda.device_count()}" if device == "cuda" else device


def _speak_spawned(options: SpeakOptions, part: int) -> Made:
    start_log(options.out / "log.txt")
    return _speak_part(options, part)


def _speak_part(options: SpeakOptions, part: int) -> Made:
    """Speak every ``processes``-th task and write shards."""
    torch.set_num_threads(1)
    started = time.monotonic()
    bundle = read_bundle(options.bundle)
    tasks = planned_tasks(options, bundle)[part :: options.processes]
    teacher = load_teacher(bundle.weights(), bundle.vocabulary, choose_device(options.device, part))
    spread = spread_of(bundle.styles)
    log.info("process %d: %d lines, started in %.1f s", part, len(tasks), time.monotonic() - started)
    waiting: list[Utterance] = []
    made, shard, waited = Made(0, 0.0), 0, 0.0
    for index, task in enumerate(tasks):
        waiting.append(_speak_task(task, teacher, bundle, spread, options.finish))
        waited += len(waiting[-1].audio) / SAMPLE_RATE
        if waited >= SHARD_SECONDS or index == len(tasks) - 1:
            path = options.out / f"{options.split}-{part:02}-{shard:03}.safetensors"
            write_shard(path, waiting, SAMPLE_RATE)
            made = Made(made.lines + len(waiting), made.seconds + waited)
            log.info("process %d: %s, %.2f h in total", part, path.name, made.seconds / 3600)
            waiting, shard, waited = [], shard + 1, 0.0
    return made


@torch.inference_mode()
def _speak_task(
    task: Task, teacher: Teacher, bundle: Bundle, spread: np.ndarray, options: FinishOptions
) -> Utterance:
    line = task.line
    mixed = mixed_style(task.voice, bundle.styles, len(line.phonemes))
    style = torch.from_numpy(mixed + added_style(task.voice, spread))
    audio, durations = teacher.speak(line.phonemes, style, task.seed)
    finished = finish(audio.numpy(), durations.numpy(), SAMPLE_RATE, options)
    return utterance(line.text, line.phonemes, task.voice.name, finished)
