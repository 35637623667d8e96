"""A peer that is missing, crashes, or does not do what it should is reported in one line and not measured."""

import json
from pathlib import Path

import pytest
import torch
from qwen3_tts_morph.morph.options import Sampling

from lab.benchmarks import peers
from lab.benchmarks.common import parser
from lab.benchmarks.results import Row


@pytest.fixture
def options(tmp_path: Path):
    given = ["--shape", "tiny", "--device", "cpu", "--frames", "4", "--repeats", "1"]
    return parser("Peers.", 1, 1).parse_args([*given, "--checkpoints", str(tmp_path / "checkpoints")])


class Peer:
    """A fake peer: makes the requested number of frames, or one too few."""

    name, missing = "faster-qwen3-tts", 0

    def __init__(self, model: object, sampling: Sampling):
        self.sampled = sampling.subtalker.do_sample

    def decode(self, prompt: object, sampling: Sampling) -> torch.Tensor:
        assert sampling.talker.do_sample == self.sampled
        return torch.zeros(sampling.max_frames - self.missing, 16)


@pytest.mark.parametrize(("extra", "engine"), [([], "generate"), (["--greedy"], "generate, greedy")])
def test_the_process_writes_the_peers_row(monkeypatch, tmp_path, extra, engine):
    monkeypatch.setattr(peers, "FasterPeer", Peer)
    given = ["--shape", "tiny", "--device", "cpu", "--frames", "4", "--repeats", "1"]
    answer = tmp_path / "row.json"
    peers.main([*given, "--answer", str(answer), *extra])
    row = Row(**json.loads(answer.read_text()))
    assert (row.system, row.engine, row.seq_groups, row.table) == ("faster-qwen3-tts", engine, 15, "frames")
    monkeypatch.setattr(Peer, "missing", 1)
    with pytest.raises(RuntimeError, match="it made 3 frames instead of 4"):
        peers.main([*given, "--answer", str(answer), *extra])
