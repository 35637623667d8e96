"""Small models on a CPU compute on one thread, and torch's number is put back."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.find import demo_voice
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.model.model import limit_threads

SMALL = SimpleNamespace(device=torch.device("cpu"), width=256)


@pytest.fixture(autouse=True)
def three_threads(one_thread):
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(1)


def test_the_demo_voice_runs_on_one_thread_and_the_number_is_put_back():
    with limit_threads(load_model(demo_voice())):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3


def test_it_is_put_back_after_an_error_and_after_a_nested_rendering():
    with pytest.raises(InterruptedError), limit_threads(SMALL):
        with limit_threads(SMALL):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
        raise InterruptedError
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize(("device", "width"), [("cpu", 1024), ("cpu", 2048), ("cuda", 256), ("mps", 256)])
def test_larger_models_and_gpus_leave_it_alone(device, width):
    """1,024 is the width of the smallest published checkpoint."""
    with limit_threads(SimpleNamespace(device=torch.device(device), width=width)):
        assert torch.get_num_threads() == 3


def test_a_thread_puts_back_its_own_number():
    """ComfyUI renders in a thread of its own."""

    def render() -> list[int]:
        torch.set_num_threads(2)
        with limit_threads(SMALL):
            inside = torch.get_num_threads()
        return [inside, torch.get_num_threads()]

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(render).result() == [1, 2]
    assert torch.get_num_threads() == 3
