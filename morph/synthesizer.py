"""A loaded checkpoint and its engine: the object that callers hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from .checkpoint.load import load_model
from .engine import Engine
from .graph.engine import on_device
from .model.model import Model
from .model.threads import limit_threads
from .options import LoadOptions


@dataclass(frozen=True)
class Synthesizer:
    """A model and its engine.

    Voices are made with the model alone. The engine keeps caches and graphs of this model between renderings.
    """

    model: Model
    engine: Engine = field(default_factory=Engine)

    @classmethod
    def load(
        cls,
        path: Path,
        options: LoadOptions | None = None,
        device: torch.device | str = "cpu",
        move: bool = True,
    ) -> Synthesizer:
        """Load a checkpoint folder; arguments and errors are those of ``load_model``."""
        options = options or LoadOptions()
        return cls(load_model(path, options, device, move), Engine(options.engine))

    @contextmanager
    def session(self) -> Iterator[None]:
        """Hold the model and the engine exclusively inside the ``with``; other threads wait.

        Inside it torch computes on one thread for small models on a CPU (see ``limit_threads``), and the model's GPU
        is the current one: that is where Triton launches its kernels.
        """
        with (
            self.model.exclusive(),
            self.engine.exclusive(),
            limit_threads(self.model),
            on_device(self.model.device),
        ):
            yield

    def free(self) -> None:
        """Release the engine's caches and graphs; call it before the model leaves its device."""
        self.engine.free()
