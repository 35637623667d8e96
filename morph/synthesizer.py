"""A loaded checkpoint with its engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from .checkpoint.adapter_file import adapt
from .checkpoint.load import load_model
from .engine import Engine
from .graph.engine import on_device
from .model.adapter import Adapter
from .model.model import Model, limit_threads
from .options import LoadOptions


@dataclass(frozen=True)
class Synthesizer:
    """A model and its engine; creating a voice needs only the model."""

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

    def with_adapter(self, adapter: Adapter, strength: float, folder: Path) -> Synthesizer:
        """Return a synthesizer with an adapter and its own engine, or this one at strength 0; see ``adapt``."""
        model = adapt(self.model, adapter, strength, folder)
        return self if model is self.model else Synthesizer(model, Engine(self.engine.choice))

    @contextmanager
    def session(self) -> Iterator[None]:
        """Hold the model and the engine exclusively inside the ``with``; other threads wait."""
        # Triton launches its kernels on the current GPU.
        with (
            self.model.exclusive(),
            self.engine.exclusive(),
            limit_threads(self.model),
            on_device(self.model.device),
        ):
            yield

    def free(self) -> None:
        self.engine.free()
