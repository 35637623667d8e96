"""A peer that is missing, or does something else than it is asked to, is said in one line and not measured."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from qwen3_tts_morph.benchmarks import peers
from qwen3_tts_morph.benchmarks.common import Sampling
from qwen3_tts_morph.benchmarks.peers import FasterPeer, find_peers

SAMPLING = Sampling(max_new_tokens=5)


@pytest.fixture
def peer(monkeypatch) -> FasterPeer:
    monkeypatch.setattr(FasterPeer, "__init__", lambda self: None)
    return FasterPeer()


def test_a_peer_that_is_not_installed_is_said(monkeypatch, capsys):
    def missing(name: str) -> str:
        raise peers.PackageNotFoundError(name)

    monkeypatch.setattr(peers, "version", missing)
    assert find_peers(SimpleNamespace()) == []
    assert capsys.readouterr().out == "faster-qwen3-tts is not measured: it is not installed\n"


def test_a_peer_that_cannot_be_set_up_is_said(monkeypatch, capsys):
    monkeypatch.setattr(peers, "version", lambda name: "1.2")
    monkeypatch.setattr(FasterPeer, "__init__", lambda self, model: 1 / 0)
    assert find_peers(SimpleNamespace(device=torch.device("cuda"))) == []
    assert "faster-qwen3-tts 1.2 is not measured: ZeroDivisionError" in capsys.readouterr().out


@pytest.mark.parametrize(("made", "fine"), [(4, True), (3, False)])
def test_only_as_many_frames_as_asked_for_are_a_measurement(monkeypatch, capsys, peer, made, fine):
    monkeypatch.setattr(peer, "decode", lambda prompt, sampling: torch.zeros(made, 16))
    assert peer.runs(None, SAMPLING) is fine
    assert ("it made 3 frames of 4" in capsys.readouterr().out) is not fine


def test_a_peer_that_fails_is_said(monkeypatch, capsys, peer):
    def fail(prompt: object, sampling: object) -> torch.Tensor:
        raise TypeError("lazy_initialization() takes 2 arguments\nmore")

    monkeypatch.setattr(peer, "decode", fail)
    assert not peer.runs(None, SAMPLING)
    assert capsys.readouterr().out == (
        "faster-qwen3-tts is not measured: TypeError: lazy_initialization() takes 2 arguments\n"
    )
