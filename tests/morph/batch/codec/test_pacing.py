"""Chunk sizes: those asked for, or smaller where a reader would run dry."""

import pytest
from qwen3_tts_morph.morph.batch.codec.pacing import ChunkSizes, Speed

RAMP = (1, 1, 2, 4, 8, 12)
AUDIO_S = 0.08


def play(frame_s: float, codec_s: float, fixed_s: float, frames: int) -> tuple[list[int], int]:
    """Chunks of a line on a device of constant speed, and how often its reader ran dry."""
    speed = Speed(AUDIO_S)
    sizes = ChunkSizes(RAMP, speed)
    now, waiting, chunks, dry, buffered_until = 0.0, 0, [], 0, None
    for _ in range(frames):
        now += frame_s
        speed.frame_s = frame_s
        waiting += 1
        while count := sizes.due(waiting, now)[0]:
            took = fixed_s + count * codec_s
            now += took
            speed.end_step(1, count, took, 0.0)
            dry += buffered_until is not None and now > buffered_until + 1e-9
            buffered_until = max(now, buffered_until or now) + count * AUDIO_S
            sizes.deliver(count, count * AUDIO_S, now)
            waiting -= count
            chunks.append(count)
    return chunks, dry


@pytest.mark.parametrize("frame_s", [0.03, 0.04, 0.05])
def test_a_device_just_faster_than_real_time_never_lets_its_reader_run_dry(frame_s):
    chunks, dry = play(frame_s, 0.010, 0.010, 300)
    assert not dry
    assert max(chunks) > 4, "and chunks grow as sound builds up"


def test_no_chunk_is_smaller_than_the_smallest_asked_for():
    speed = Speed(AUDIO_S)
    sizes = ChunkSizes((3, 9), speed)
    speed.frame_s = 0.05
    speed.end_step(1, 3, 0.01, 0.0)
    sizes.deliver(3, 3 * AUDIO_S, 0.0)
    assert [sizes.due(waiting, 0.239)[0] for waiting in (1, 2, 3, 8, 9, 20)] == [0, 0, 3, 8, 9, 9]
    assert sizes.due(3, 0.0)[0] == 0, "there is time"


def test_what_an_encoder_holds_back_is_not_played_yet():
    sizes = ChunkSizes((1, 2), Speed(AUDIO_S), held_s=0.05)
    sizes.deliver(1, 0.08, now=10.0)
    assert sizes.empty_at == pytest.approx(10.03)
    sizes.deliver(2, 0.16, now=10.02)
    assert sizes.empty_at == pytest.approx(10.19)
    sizes.deliver(2, 0.16, now=10.3)
    assert sizes.empty_at == pytest.approx(10.46), "a reader that has run dry starts again"
