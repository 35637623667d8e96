"""What speaks lines in tests: a batch that is watched, and one whose lines come when the test says so."""

from collections.abc import Sequence

import numpy as np
import torch
from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.batch.speech import Chunk, Delivery, Outcome, Speech
from qwen3_tts_morph.morph.options import GenerateOptions
from qwen3_tts_morph.morph.runtime.threads import WakeUpEvent
from qwen3_tts_morph.morph.speech.lines import Line, LineReport, Spoken

RATE = 24000


class Watched:
    """A batch that notes the seeds it speaks, and fails at some.

    Args:
        batch: speaks.
    """

    def __init__(self, batch: Batch):
        self.batch = batch
        self.seeds: list[int] = []
        self.failing: dict[int, BaseException] = {}
        for name in ("name", "rate", "languages", "check", "key", "describe"):
            setattr(self, name, getattr(batch, name))

    def speak(self, line: Line, options: GenerateOptions, delivery: Delivery | None = None) -> Speech:
        self.seeds.append(line.seed)
        if line.seed not in self.failing:
            return self.batch.speak(line, options, delivery)
        speech = Speech(line, options, delivery or Delivery(), WakeUpEvent())
        end_with(speech, self.failing[line.seed])
        return speech

    def speak_all(
        self, lines: Sequence[Line], options: GenerateOptions, deliveries: Sequence[Delivery]
    ) -> list[Speech]:
        return [self.speak(line, options, delivery) for line, delivery in zip(lines, deliveries, strict=True)]

    def made(self) -> list[int]:
        """Return the seeds since the last call, sorted."""
        seeds, self.seeds = sorted(self.seeds), []
        return seeds


class Scripted:
    """Speaks nothing by itself: a test puts chunks into its speeches, which are in the order of the calls."""

    name, rate, languages = "scripted", RATE, ("auto",)

    def __init__(self) -> None:
        self.speeches: list[Speech] = []

    def check(self, line: Line, options: GenerateOptions) -> None:
        """See ``Speaks``."""

    def key(self, line: Line, options: GenerateOptions) -> str | None:
        """See ``Speaks``."""
        return f"{line.seed:064x}"

    def speak(self, line: Line, options: GenerateOptions, delivery: Delivery | None = None) -> Speech:
        self.speeches.append(Speech(line, options, delivery or Delivery(), WakeUpEvent()))
        return self.speeches[-1]

    def speak_all(
        self, lines: Sequence[Line], options: GenerateOptions, deliveries: Sequence[Delivery]
    ) -> list[Speech]:
        return [self.speak(line, options, delivery) for line, delivery in zip(lines, deliveries, strict=True)]

    def describe(self, spoken: Sequence[Spoken], options: GenerateOptions, elapsed_s: float) -> str:
        """See ``Speaks``."""
        return ""


def put(speech: Speech, samples: Sequence[float], last: bool = False) -> None:
    speech.progress.ended += 1
    speech.put(Chunk(torch.zeros(1, 16, dtype=torch.int64), np.array(samples, dtype=np.float32), 0, last))


def end(speech: Speech, samples: Sequence[float], ended: str = "eos", takes: int = 1) -> None:
    line, waveform = speech.line, np.array(samples, dtype=np.float32)
    report = LineReport(line.name, str(line.text), 1, len(waveform) / RATE, ended, 1, takes=takes)
    speech.finish(Outcome(Spoken(waveform, RATE, report)))


def end_with(speech: Speech, error: BaseException) -> None:
    speech.finish(Outcome(error=error))
