"""cuDNN's attention is excluded as long as any thread wants it, and what was set before comes back."""

import threading
from contextlib import ExitStack

import pytest
import torch
from qwen3_tts_morph.morph.model.layers import without_cudnn

from tests.patience import PATIENCE

allowed = torch.backends.cuda.cudnn_sdp_enabled


@pytest.fixture(params=[True, False])
def before(request: pytest.FixtureRequest):
    """What the user had set."""
    first = allowed()
    torch.backends.cuda.enable_cudnn_sdp(request.param)
    yield request.param
    torch.backends.cuda.enable_cudnn_sdp(first)


def test_it_is_excluded_for_the_with_and_comes_back_after_an_error(before: bool) -> None:
    with pytest.raises(InterruptedError), without_cudnn():
        with without_cudnn():
            assert not allowed()
        assert not allowed(), "the outer with goes on"
        raise InterruptedError
    assert allowed() is before


def test_threads_that_overlap_leave_what_was_set_before(before: bool) -> None:
    """The second begins inside the first and ends after it: a stream's codec beside its frames."""
    begun, go_on = threading.Event(), threading.Event()
    inside: list[bool] = []

    def work() -> None:
        with without_cudnn():
            begun.set()
            go_on.wait(PATIENCE)
            inside.append(allowed())

    with ExitStack() as first:
        first.enter_context(without_cudnn())
        second = threading.Thread(target=work)
        second.start()
        assert begun.wait(PATIENCE)
    go_on.set()
    second.join(PATIENCE)
    assert inside == [False] and allowed() is before
