"""A stand-in for a CUDA graph on the CPU: records operations once, then runs them again at the same addresses."""

from collections.abc import Callable, Hashable
from typing import Any

import pytest
import torch
from qwen3_tts_morph.morph.runtime.capture import CapturedGraphs, CaptureStream
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Operations that sync with the device, or whose result has a data-dependent shape.
FORBIDDEN = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "item", "equal", "is_nonzero")


class Recording(TorchDispatchMode):
    """Runs and records operations. Like a graph, ``replay`` uses the recorded tensors and numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Callable[..., Any], Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in FORBIDDEN:
            raise AssertionError(f"{name} cannot be captured")
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out

    def replay(self) -> None:
        for func, args, kwargs, out in self.calls:
            fresh = func(*args, **kwargs)
            for old, new in zip(tree_leaves(out), tree_leaves(fresh), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class Recordings:
    """Replaces ``capture.CapturedGraphs``: direct, then recorded, then replayed. ``made`` counts the recordings."""

    made = 0

    def __init__(self, device: torch.device, captures: CaptureStream | None = None, temporary: bool = False):
        self.device, self.fallback = device, None
        self._warm_ups = (captures or CaptureStream()).warm_ups
        self.recordings: dict[Hashable, Recording | None] = {}

    def forget(self) -> None:
        self.recordings.clear()

    def has(self, key: Hashable) -> bool:
        return self.recordings.get(key) is not None

    lacks, prepare, plan = CapturedGraphs.lacks, CapturedGraphs.prepare, CapturedGraphs.plan

    def run(self, key: Hashable, function: Callable[[], None]) -> None:
        if key not in self.recordings:
            self.recordings[key] = None
            function()
            return
        if self.recordings[key] is None:
            type(self).made += 1
            with Recording() as fresh:
                function()
            self.recordings[key] = fresh
        else:
            self.recordings[key].replay()


def note_graphs(monkeypatch: pytest.MonkeyPatch) -> list[Recordings]:
    """Return a list, to which all recordings are added that are made from now on, a decoder's after its entry's."""
    made, begin = list[Recordings](), Recordings.__init__

    def note(graphs: Recordings, *given: Any, **named: Any) -> None:
        made.append(graphs)
        begin(graphs, *given, **named)

    monkeypatch.setattr(Recordings, "__init__", note)
    return made


@torch.inference_mode()
def prepare_all(captures: CaptureStream) -> None:
    """Record all that is planned."""
    while captures.warm_ups.prepare_next():
        pass


class AsOnGpu(Recordings):
    """Captures nothing, and a decoder cannot tell: as on a GPU prompts are padded and frames are read late."""

    def prepare(self, key: Hashable, call: Callable[[], object]) -> None:
        pass

    def run(self, key: Hashable, function: Callable[[], None]) -> None:
        function()
