"""Warm-up: compile, capture and load everything before the first request."""

from collections.abc import Sequence

import numpy as np
import torch

from ...morph.audio.formats import SERVED
from ...morph.audio.writer import encode, open_encoder
from ...morph.batch.batch import Batch
from ...morph.batch.speech import Delivery
from ...morph.decode.rows import NOTHING_AHEAD, Ahead
from ...morph.graph.pool import roomy_context
from ...morph.model.model import Model
from ...morph.options import GenerateOptions
from ...morph.speech.lines import Line
from ...morph.voice.voice import Voice
from ..audio.speed import SpeedChange

WARM_TEXT = "The speech server is ready."
WARM_SPEED = 1.5
WARM_SAMPLES = 4800


def ahead_of(model: Model, rows: int) -> Ahead:
    """Return the preparations before the first line: all on a GPU, as far as its memory allows."""
    if model.device.type != "cuda":
        return NOTHING_AHEAD
    free, _ = torch.cuda.mem_get_info(model.device)
    return Ahead(rows, roomy_context(model, rows, free))


def speak(batch: Batch, lines: Sequence[Line], options: GenerateOptions, live: bool = True) -> None:
    """Speak lines together, streamed or offline: the codec decodes offline lines in other sizes."""
    delivery = Delivery(live=live, keep=False)
    for speech in [batch.speak(line, options, delivery) for line in lines]:
        for _ in speech:
            pass


def lines_beside(batch: Batch, voice: Voice, most: int) -> list[Line]:
    """Return lines for all rows but one, which is a request's; at most ``most``, and one of them with late text."""
    lines = [Line(WARM_TEXT, voice) for _ in range(min(max(1, batch.rows - 1), most))]
    if voice.kind == "x_vector":
        lines[0] = Line((f"{word} " for word in WARM_TEXT.split()), voice, layout="token")
    return lines


def encode_all(sample_rate: int) -> None:
    """Encode silence in every format, streamed and complete, and change its speed: that loads libraries."""
    silence = np.zeros(WARM_SAMPLES, dtype=np.float32)
    speed = SpeedChange(WARM_SPEED, sample_rate)
    speed.add(silence)
    speed.finish()
    for name in SERVED:
        encode(silence, sample_rate, name)
        encoder = open_encoder(name, sample_rate)
        encoder.add(silence)
        encoder.finish()
        encoder.close()
