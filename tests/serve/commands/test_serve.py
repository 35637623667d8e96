"""``serve``: the server gets its own options, ComfyUI's voices and a checkpoint by its name."""

import importlib.util
import shutil
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from qwen3_tts_morph.serve.commands import serve

import pack
from tests.morph.adapters import write_adapter

SERVER = "qwen3_tts_morph.serve.process.server"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Replace the server; return the list of options that it is run with."""
    calls: list[Any] = []
    monkeypatch.setattr(serve, "read_options", lambda options: options)
    monkeypatch.setattr(serve, "run_server", calls.append)
    return calls


def test_the_server_runs_with_its_options(run, served, tmp_path, checkpoints) -> None:
    models = tmp_path / "ComfyUI" / "models"
    (models / "qwen3-tts-voices").mkdir(parents=True)
    (models / "TTS").mkdir()
    shutil.copytree(checkpoints(), models / "TTS" / "mine")
    done = run("serve", "--port", "9000", "--checkpoint", "mine", "--comfyui", tmp_path / "ComfyUI")
    assert done.code == 0 and not done.out, done.err
    [options] = served
    assert options.port == 9000 and options.checkpoint == models / "TTS" / "mine"
    assert options.voices == models / "qwen3-tts-voices"
    run("serve", "--voices", tmp_path)
    assert served[1].voices == tmp_path and served[1].checkpoint is None


def test_adapters_are_given_by_their_folders_or_names(run, served, tmp_path, checkpoints) -> None:
    named = write_adapter(tmp_path / "ComfyUI" / "models" / "loras" / "anna", checkpoints())
    ben = write_adapter(tmp_path / "ben", checkpoints())
    words = ("--lora", "anna:0.5", "--lora", ben, "--comfyui", tmp_path / "ComfyUI")
    assert run("serve", *words).code == 0
    assert served[0].lora == [[str(named), 0.5], [str(ben), 1.0]], "plain values, which a replica can be sent"
    done = run("serve", "--lora", "gone")
    assert done.code == 2 and "adapter gone is neither a folder nor in" in done.err


def test_a_port_in_use_is_one_sentence(run: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(_: object) -> None:
        raise OSError(98, "Address already in use")

    monkeypatch.setattr(serve, "run_server", busy)
    done = run("serve", "--port", "9000")
    assert done.code == 2
    assert "cannot listen on 127.0.0.1 port 9000 (Address already in use): choose another" in done.err


def test_a_host_that_cannot_be_one_is_one_sentence(run: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORPH_TTS_API_KEY", "key-of-a-test")
    done = run("serve", "--host", "a..b")
    assert done.code == 2
    assert "cannot listen on a..b port 8765 (no host can have this name): choose another" in done.err


def test_ray_that_is_not_installed_is_one_sentence(run: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    from qwen3_tts_morph.serve.process import ray_server, server

    found = importlib.util.find_spec
    monkeypatch.setattr(ray_server.importlib.util, "find_spec", lambda name: found(name) if name != "ray" else None)
    monkeypatch.setattr(ray_server, "cluster", lambda: pytest.fail("something was started"))
    monkeypatch.setattr(server, "check_packages", lambda: None)
    done = run("serve", "--ray")
    assert done.code == 2 and "--ray needs Ray Serve: run " in done.err
    assert f'-m pip install "{ray_server.RAY}"' in done.err


def test_the_extra_is_the_one_of_the_package() -> None:
    from qwen3_tts_morph.serve.process import ray_server

    text = (pack.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'ray = ["{ray_server.RAY}"]' in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--replicas", "0"), "replicas is 0: choose a whole number from 1 to 1024"),
        (("--replicas", "5000"), "replicas is 5000: choose a whole number from 1 to 1024"),
        (("--device", "cuda:1"), "device is 'cuda:1': with --ray choose auto, cpu, cuda"),
    ],
)
def test_options_that_ray_cannot_have_are_refused(run, monkeypatch, words, said) -> None:
    from qwen3_tts_morph.serve.process import ray_server

    monkeypatch.setattr(ray_server, "check_ray", lambda: None)
    monkeypatch.setattr(ray_server, "cluster", lambda: pytest.fail("something was started"))
    done = run("serve", "--ray", *words)
    assert done.code == 2 and said in done.err


@pytest.mark.parametrize(("gpus", "replicas"), [(0, 1), (2, 2)])
def test_each_replica_has_a_gpu_where_there_are_some(run, monkeypatch, gpus, replicas) -> None:
    from qwen3_tts_morph.serve.process import ray_server

    def deploy(arguments, options, port, found):
        raise ValueError(f"{arguments.replicas} replicas, {found} GPUs")

    monkeypatch.setattr(ray_server, "check_ray", lambda: None)
    monkeypatch.setattr(ray_server, "cluster", lambda: nullcontext(gpus))
    monkeypatch.setattr(ray_server, "deployed", deploy)
    assert f"{replicas} replicas, {gpus} GPUs" in run("serve", "--ray", "--port", "0").err
    if gpus:
        done = run("serve", "--ray", "--port", "0", "--replicas", "3")
        assert done.code == 2 and "replicas is 3 and Ray has 2 GPUs: each replica needs one" in done.err


def test_a_pack_without_the_server_says_so(run: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, SERVER, None)
    monkeypatch.delitem(sys.modules, serve.__name__)
    done = run("serve")
    assert done.code == 1 and "this copy of the pack has no qwen3_tts_morph.serve.process.server" in done.err
