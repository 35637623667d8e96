"""A speech between who speaks and its reader."""

import numpy as np
import torch
from qwen3_tts_morph.morph.batch.speech import QUEUED_FRAMES, Chunk, Delivery, Speech
from qwen3_tts_morph.morph.options import GenerateOptions
from qwen3_tts_morph.morph.runtime.bell import Bell
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.voice.voice import Voice


class Watching(Bell):
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
    bell = Watching()
    line = Line("Hello.", Voice("preset", "", "ryan", speaker="ryan"))
    speech = bell.speech = Speech(line, GenerateOptions(), Delivery(), bell)
    codes = torch.zeros(QUEUED_FRAMES, 16, dtype=torch.int64)
    speech.put(Chunk(codes, np.zeros(QUEUED_FRAMES * 1920, np.float32), 0, False))
    assert speech.is_full and not bell.seen
    assert speech.take() is not None
    assert bell.seen == [False]
