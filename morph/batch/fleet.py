"""Share one scheduler among several devices: each takes the next line when it has a free row."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch

from ..options import GenerateOptions
from ..speech.lines import Line
from .batch import Backend, Batch
from .scheduler import Scheduler


class Fleet(Backend):
    """The same checkpoint on several devices, as one backend. Any thread may call it.

    They share one scheduler: each takes the next line when it has a free row. ``close`` closes the batches. Raises
    ValueError for no batch, and for checkpoints that differ.
    """

    def __init__(self, batches: Sequence[Batch]):
        check_alike(batches)
        self._batches, rows = batches, [batch.rows for batch in batches]
        super().__init__(batches[0].synthesizer, [batch.loop for batch in batches], sum(rows))
        if len(batches) > 1:
            scheduler = Scheduler(rows, sum(batch.most_waiting for batch in batches))
            inboxes, names = [loop.inbox for loop in self._loops], name_devices(batches)
            for device, loop in enumerate(self._loops):
                loop.join(scheduler, inboxes, names, device)
        # Devices limit it while they speak; if they overlap, the last to end would decide for later threads.
        self._threads = torch.get_num_threads()

    def key(self, line: Line, options: GenerateOptions) -> str | None:
        """See ``Speaks``. Device kinds round differently: the key covers all of them."""
        keys = {batch.key(line, options) for batch in self._batches}
        if None in keys or len(keys) == 1:
            return next(iter(keys))
        return hashlib.sha256("".join(sorted(map(str, keys))).encode()).hexdigest()

    def close(self) -> None:
        for loop in self._loops:
            loop.inbox.close()
        for batch in self._batches:
            batch.close()
        torch.set_num_threads(self._threads)


def name_devices(batches: Sequence[Batch]) -> list[str]:
    """Return the name of each batch's device: "cuda:0"; a second batch on it is "cuda:0 (2)"."""
    names = [str(batch.synthesizer.model.device) for batch in batches]
    before = [names[:number].count(name) for number, name in enumerate(names)]
    return [f"{name} ({count + 1})" if count else name for name, count in zip(names, before, strict=True)]


def check_alike(batches: Sequence[Batch]) -> None:
    """Raise ValueError if a line would not be the same on every device."""
    if not batches:
        raise ValueError("there is no model to speak with")
    names, first = name_devices(batches), _nature(batches[0])
    for batch, name in zip(batches[1:], names[1:], strict=True):
        for what, value in _nature(batch).items():
            if value != first[what]:
                raise ValueError(
                    f"the models on {names[0]} and {name} cannot share lines: {what} is {first[what]} and {value}. "
                    "Load both with the same settings, and set precision and engine explicitly instead of auto"
                )


def _nature(batch: Batch) -> dict[str, str]:
    model = batch.synthesizer.model
    choice = batch.synthesizer.engine.choose(model)
    return {
        "checkpoint": model.name,
        "the content of the checkpoint": model.fingerprint,
        "precision": str(model.dtype).removeprefix("torch."),
        "weights": model.weights,
        "attention": model.attention,
        "engine": choice.engine,
        "codec": "many lines" if choice.batch_codec else "one line",
    }
