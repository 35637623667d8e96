"""Load the pack by path under one alias, as ComfyUI does, before any test imports it; choose the cases to run.

Two markers select cases: ``slow`` ones run only with ``--all``, ``gpu`` ones only on a CUDA device.
"""

import pytest

import pack

pack.load()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="also run the cases marked slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if (mark := item.get_closest_marker("gpu")) and (reason := why_no_gpu(**mark.kwargs)):
            item.add_marker(pytest.mark.skip(reason=reason))
    if not config.getoption("all"):
        config.hook.pytest_deselected(items=[item for item in items if is_slow(item)])
        items[:] = [item for item in items if not is_slow(item)]


def is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


def why_no_gpu(capability: tuple[int, int] | None = None) -> str | None:
    """Return why a case that needs a GPU cannot run here; None if it can."""
    import torch

    if not torch.cuda.is_available():
        return "not run: needs a GPU (python run_tests.py --gpu)"
    if capability and torch.cuda.get_device_capability() != capability:
        return "not run: needs a GPU of compute capability {}.{}".format(*capability)
    return None
