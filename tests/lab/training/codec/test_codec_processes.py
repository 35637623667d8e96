"""Several processes train the codec like one process with their batches joined, and resume together."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lab.training.codec import config as configs
from lab.training.codec.checkpoint import read_weights, write_weights
from lab.training.codec.data import load_speech, pack_lines, sample_batch, segments_of
from lab.training.codec.trainer import Trainer
from lab.training.corpus.shards import write_shard
from tests.lab.training.codec.tiny_codec import line, tiny

pytestmark = pytest.mark.slow  # this training is finished: --all runs it

ROOT = Path(__file__).resolve().parents[4]
CASES = Path(__file__).parent / "codec_cases.py"
LIMIT = 1200  # seconds, on a busy core


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for split in ("train", "dev"):
        lines = [line("a", 200.0), line("b", 300.0)]
        write_shard(folder / f"{split}-00-000.safetensors", lines, configs.SAMPLE_RATE)
    return folder


def run(*command: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, *map(str, command)]
    return subprocess.run(words, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT)


def write_config(config: configs.Config, path: Path) -> Path:
    path.write_text(json.dumps(config.as_json()), encoding="utf-8")
    return path


def additive() -> configs.Config:
    """A config whose losses are plain means over crops: others have a normaliser per process."""
    config = tiny(clip=1e9)
    losses = dataclasses.replace(config.losses, magnitude=0.0, commitment=0.0, scale=0.0, phones=0.0)
    adversarial = dataclasses.replace(config.adversarial, shares=(1.0, 1.0, 1e-9, 1e-9))
    return dataclasses.replace(config, losses=losses, adversarial=adversarial)


def test_two_processes_equal_one_with_both_batches(corpus: Path, tmp_path: Path) -> None:
    """Compared after the first batch: Adam amplifies a gradient's rounding errors as much as the gradient.

    After the first update, only the two processes can be compared with each other; they agree exactly.
    """
    config = write_config(additive(), tmp_path / "config.json")
    for processes in (1, 2):
        done = run(CASES, processes, corpus, config, tmp_path)
        assert done.returncode == 0, done.stderr
    alone, first, second = (
        load_file(tmp_path / f"{name}.safetensors") for name in ("0-of-1", "0-of-2", "1-of-2")
    )
    assert_equal(first, second)
    assert_equal(*(load_file(tmp_path / f"{rank}-of-2-at-the-end.safetensors") for rank in range(2)))
    del alone["size.features"]  # each process has its own normaliser for these
    assert any(name.startswith("gradient.") for name in alone) and {"vectors", "size.fooling"} <= set(alone)
    for name, value in alone.items():
        if name.startswith("size."):  # a crop's gradient is half as large in twice the batch
            value = 2 * value
        assert (first[name] - value).norm() <= 1e-2 * value.norm(), name


def assert_equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def test_processes_train_log_save_resume_and_start(corpus: Path, tmp_path: Path) -> None:
    out, first = tmp_path / "out", tmp_path / "first"
    write_weights(first, Trainer(tiny(), load_speech(corpus, "train")).weights())
    common = (
        "-m",
        "lab.training.codec.train",
        "--corpus",
        corpus,
        "--device",
        "cpu",
        "--processes",
        "2",
        "--out",
        out,
    )
    started = write_config(tiny(total_steps=5, validate_every=100), tmp_path / "config.json")
    longer = write_config(tiny(total_steps=8, validate_every=7), tmp_path / "longer.json")
    for more in (("--config", started, "--start", first), ("--config", longer, "--resume")):
        done = run(*common, *more)
        assert done.returncode == 0, done.stderr
    rows = [json.loads(row) for row in (out / "curve.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row.get("step", row.get("held out")) for row in rows] == [2, 4, 6, 7, 8]
    assert read_weights(out / "weights").step == 8
    (out / "state.safetensors").unlink()  # only the exported weights, as on another machine
    longest = write_config(tiny(total_steps=9, validate_every=100), tmp_path / "longest.json")
    done = run(*common, "--config", longest, "--resume")
    assert done.returncode == 0, done.stderr
    assert read_weights(out / "weights").step == 9


def test_processes_sample_different_crops_of_equal_length() -> None:
    speech, options = pack_lines([line("a", 200.0), line("b", 300.0)]), tiny().training
    lengths = set()
    for step in range(8):
        one, other = (sample_batch(speech, options, 0.5, step, rank) for rank in (0, 1))
        assert one.wave.shape == other.wave.shape and not torch.equal(one.wave, other.wave)
        lengths.add(one.wave.shape[1])
    assert len(lengths) == 2


def test_segments_are_cut_at_the_requested_positions() -> None:
    wave = torch.arange(20.0).repeat(3, 1).requires_grad_()
    found = segments_of(wave, torch.tensor([0.0, 0.5, 0.999]), 5)
    assert found[:, 0].tolist() == [0.0, 8.0, 15.0] and (found.diff(dim=1) == 1).all()
    found.sum().backward()
    assert wave.grad.sum(1).tolist() == [5.0, 5.0, 5.0] and wave.grad[1, 8:13].sum() == 5
    assert segments_of(wave, torch.zeros(3), 30) is wave
