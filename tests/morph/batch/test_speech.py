"""A speech between who speaks and its reader."""

import numpy as np
import torch
from qwen3_tts_morph.morph.batch.speech import QUEUED_FRAMES, Chunk, Delivery, Speech
from qwen3_tts_morph.morph.options import GenerateOptions
from qwen3_tts_morph.morph.runtime.wake_up import WakeUpEvent
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.voice.voice import Voice


class Watching(WakeUpEvent):
    """Who speaks: it looks as soon as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.speech: Speech | None = None
        self.seen: list[bool] = []

    def set(self) -> None:
        assert self.speech is not None
        self.seen.append(self.speech.is_full)


def test_who_speaks_is_told_when_the_reader_has_taken_a_chunk_and_not_before():
    """It would see a reader who has enough, and wait for ever."""
    wake_up = Watching()
    line = Line("Hello.", Voice("preset", "", "ryan", speaker="ryan"))
    speech = wake_up.speech = Speech(line, GenerateOptions(), Delivery(), wake_up)
    codes = torch.zeros(QUEUED_FRAMES, 16, dtype=torch.int64)
    speech.put(Chunk(codes, np.zeros(QUEUED_FRAMES * 1920, np.float32), 0, False))
    assert speech.is_full and not wake_up.seen
    assert speech.take() is not None
    assert wake_up.seen == [False]
