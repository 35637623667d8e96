"""Share one scheduler among several devices: each takes the next line when it has a free row."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

import torch

from ..options import GenerateOptions
from ..speech.lines import Line, Spoken
from ..words.timing import WordTime
from .batch import Batch, BatchStatus, status_of
from .scheduler import Scheduler
from .speech import Delivery, Speech
from .utterance import Utterance


class Fleet:
    """The same checkpoint on several devices, as one backend. Any thread may call it.

    They share one scheduler: each takes the next line when it has a free row. ``close`` closes the batches. Raises
    ValueError for no batch, and for checkpoints that differ.
    """

    def __init__(self, batches: Sequence[Batch]):
        check_alike(batches)
        self._batches, self._first = batches, batches[0]
        self.name, self.rate, self.languages = self._first.name, self._first.rate, self._first.languages
        self._rows = sum(batch.rows for batch in batches)
        waiting = sum(batch.most_waiting for batch in batches)
        self._scheduler = Scheduler[Utterance]([batch.rows for batch in batches], waiting)
        self._loops = [batch.loop for batch in batches]
        if len(batches) > 1:
            for device, (loop, name) in enumerate(zip(self._loops, name_devices(batches), strict=True)):
                loop.join(self._scheduler, self._loops, device, name)
        # Devices limit it while they speak; if they overlap, the last to end would decide for later threads.
        self._threads = torch.get_num_threads()

    def check(self, line: Line, options: GenerateOptions) -> None:
        self._first.check(line, options)

    def key(self, line: Line, options: GenerateOptions) -> str | None:
        """See ``Speaks``. Device kinds round differently: the key covers all of them."""
        keys = {batch.key(line, options) for batch in self._batches}
        if None in keys or len(keys) == 1:
            return next(iter(keys))
        return hashlib.sha256("".join(sorted(map(str, keys))).encode()).hexdigest()

    def speak(
        self, line: Line, options: GenerateOptions | None = None, delivery: Delivery | None = None
    ) -> Speech:
        """See ``Speaks``. A line that fails on one device before its first chunk is retried on another.

        Raises BatchClosed after ``close``; Busy if too many lines wait.
        """
        return self.speak_all([line], options or GenerateOptions(), [delivery or Delivery()])[0]

    def speak_all(
        self, lines: Sequence[Line], options: GenerateOptions, deliveries: Sequence[Delivery]
    ) -> list[Speech]:
        for line in lines:
            self.check(line, options)
        return self._loops[0].submit(lines, options, deliveries, is_anywhere=len(self._loops) > 1)

    @property
    def status(self) -> BatchStatus:
        """The sum over all devices; a frame takes as long as on the slowest."""
        utterances = self._scheduler.utterances if len(self._loops) > 1 else self._loops[0].utterances
        return status_of(utterances, self._loops, self._rows)

    def check_words(self) -> None:
        self._first.check_words()

    def words(self, spoken: Spoken) -> tuple[WordTime, ...]:
        return self._first.words(spoken)

    def describe(self, spoken: Sequence[Spoken], options: GenerateOptions, elapsed_s: float) -> str:
        return self._first.describe(spoken, options, elapsed_s)

    def close(self) -> None:
        for loop in self._loops:
            loop.inbox.close()
        for batch in self._batches:
            batch.close()
        torch.set_num_threads(self._threads)

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def name_devices(batches: Sequence[Batch]) -> list[str]:
    """Return the name of each batch's device: "cuda:0"; a second batch on it is "cuda:0 (2)"."""
    seen: Counter[str] = Counter()
    names = []
    for batch in batches:
        name = str(batch.synthesizer.model.device)
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return names


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
