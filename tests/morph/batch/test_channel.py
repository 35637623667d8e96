"""The queues between a stream's worker and its readers."""

from __future__ import annotations

import random

import numpy as np
import torch
from qwen3_tts_morph.morph.batch.channel import Channel, Chunk


def chunk(line: int, start: int) -> Chunk:
    return Chunk(line, torch.zeros(1, 16, dtype=torch.int64), np.zeros(1, dtype=np.float32), start, False)


def test_who_reads_all_lines_gets_chunks_in_the_order_made_whoever_else_reads():
    channel, waiting, generator = Channel(5), [], random.Random(1)
    for number in range(400):
        made = chunk(generator.randrange(5), number)
        channel.put(made)
        waiting.append(made)
        if generator.random() < 0.4:
            line = generator.choice(waiting).line
            wanted = next(one for one in waiting if one.line == line)
            assert channel.take([line]) is wanted
            waiting.remove(wanted)
        if waiting and generator.random() < 0.4:
            assert channel.take(range(5)) is waiting.pop(0)
    assert waiting
    for wanted in waiting:
        assert channel.take(range(5)) is wanted
    assert [channel.queued(line) for line in range(5)] == [0] * 5


def test_a_cancelled_lines_chunks_are_left_out_and_the_others_keep_their_order():
    channel = Channel(3)
    made = [chunk(number % 3, number) for number in range(9)]
    for one in made:
        channel.put(one)
    channel.cancel(0)
    channel.put(chunk(0, 99))
    assert [channel.take(range(3)) for _ in range(6)] == [one for one in made if one.line != 0]
