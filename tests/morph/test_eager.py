"""The engine's loop: a line beside others, its end, progress, and a cancel that leaves nothing behind."""

from __future__ import annotations

import pytest
import torch
from qwen3_tts_morph.morph.eager import decode_lines
from qwen3_tts_morph.morph.guard import FRAMES_TO_SPARE, LONGEST_PERIOD, LOOP_WINDOW, Guard, text_cap
from qwen3_tts_morph.morph.options import Sampling
from qwen3_tts_morph.morph.prompt import build_prompt
from qwen3_tts_morph.morph.sampling import line_streams
from qwen3_tts_morph.morph.voice import preset_voice

TEXTS = ["Hello there, how are you?", "No.", "A longer line that has more to say than the others."]
SEEDS = [11, 12, 13]


def decode(model, rows, frames: int = 30, seq_groups: int = 5, on_frame=None, guards=None):
    voice = preset_voice(model, "ryan")
    prompts = [build_prompt(model, TEXTS[row], voice) for row in rows]
    guards = guards or [Guard(frames, detect_loops=False) for _ in rows]
    streams = line_streams([SEEDS[row] for row in rows], model.device)
    return decode_lines(model, prompts, guards, seq_groups, Sampling(), streams, on_frame)


@pytest.mark.parametrize("seq_groups", [15, 5])
def test_a_line_is_the_same_alone_and_in_any_batch(load, seq_groups: int) -> None:
    """In fp32 on the CPU, where another batch size rounds the same for these shapes."""
    model = load("tiny", "custom_voice")
    together = decode(model, [0, 1, 2], seq_groups=seq_groups)
    for row in range(3):
        alone = decode(model, [row], seq_groups=seq_groups)[0]
        assert torch.equal(alone.codes, together[row].codes) and alone.ended == together[row].ended
    swapped = decode(model, [2, 0], seq_groups=seq_groups)
    assert torch.equal(swapped[1].codes, together[0].codes)


def test_another_seed_is_another_line(load) -> None:
    model = load("tiny", "custom_voice")
    voice = preset_voice(model, "ryan")
    prompt = build_prompt(model, TEXTS[0], voice)
    runs = [
        decode_lines(
            model, [prompt], [Guard(10, False)], 5, Sampling(), line_streams([seed], torch.device("cpu"))
        )
        for seed in (1, 1, 2)
    ]
    assert torch.equal(runs[0][0].codes, runs[1][0].codes)
    assert not torch.equal(runs[0][0].codes, runs[2][0].codes)


def test_lines_end_by_eos_and_by_cap_and_keep_their_frames(load) -> None:
    model = load("tiny", "custom_voice")
    ends = {one.ended: one for one in decode(model, [0, 1, 2], frames=30)}
    assert set(ends) <= {"eos", "cap"} and "cap" in ends
    assert len(ends["cap"].codes) == 30
    free = decode(model, [0, 1, 2], frames=2000)
    assert {one.ended for one in free} == {"eos"}
    eos = model.config.talker_config.codec_eos_token_id
    for one in free:
        assert 2 <= len(one.codes) < 2000, "no EOS among the first two tokens"
        assert not (one.codes[:, 0] == eos).any()
        assert one.codes.max() < 64


def test_on_frame_counts_the_lines_that_go_on(load) -> None:
    model = load("tiny", "custom_voice")
    counted: list[int] = []
    decoded = decode(model, [0, 1, 2], frames=2000, on_frame=counted.append)
    lengths = [len(one.codes) for one in decoded]
    assert len(counted) == max(lengths) and sum(counted) == sum(lengths)
    assert counted == [sum(length > step for length in lengths) for step in range(max(lengths))]


def test_a_cancel_ends_within_one_frame_and_leaves_the_model_usable(load) -> None:
    model = load("tiny", "custom_voice")
    before = decode(model, [0])[0].codes
    frames: list[int] = []

    def cancel(lines: int) -> None:
        frames.append(lines)
        if len(frames) == 4:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        decode(model, [0, 2], frames=500, on_frame=cancel)
    assert len(frames) == 4
    assert torch.equal(decode(model, [0])[0].codes, before)


def test_a_looping_line_is_ended_and_its_batch_mates_are_not(load) -> None:
    model = load("tiny", "custom_voice")
    prompt = build_prompt(model, TEXTS[0], preset_voice(model, "ryan"))

    def run(guards: list[Guard], seeds: list[int]):
        streams = line_streams(seeds, model.device)
        return decode_lines(model, [prompt] * len(seeds), guards, 1, Sampling(), streams)

    class Looping(Guard):
        def add(self, code: int) -> str | None:
            return super().add(7)

    unguarded = ((seed, run([Guard(100, False)], [seed])[0]) for seed in range(100))
    seed, alone = next((seed, line) for seed, line in unguarded if line.ended == "cap")
    looping, other = run([Looping(2000), Guard(100, False)], [seed, seed])
    assert looping.ended == "loop" and len(looping.codes) == LOOP_WINDOW + LONGEST_PERIOD
    assert torch.equal(looping.codes, alone.codes[: len(looping.codes)]), "what was spoken is kept"
    assert torch.equal(other.codes, alone.codes)


def codes_until_end(codes, cap: int = 10_000) -> tuple[str | None, int]:
    guard = Guard(cap)
    for code in codes:
        if end := guard.add(code):
            return end, guard.frames
    return None, guard.frames


@pytest.mark.parametrize("period", [1, 2, 7, 16])
def test_guard_finds_loops_of_every_period(period: int) -> None:
    loop = [code % period for code in range(400)]
    end, frames = codes_until_end([90, 91, 92, *loop])
    assert end == "loop" and frames <= 3 + LOOP_WINDOW + LONGEST_PERIOD


def test_guard_lets_speech_and_short_silences_pass() -> None:
    generator = torch.Generator().manual_seed(0)
    speech = torch.randint(2048, (300,), generator=generator).tolist()
    four_seconds = [5] * 50
    assert codes_until_end([*speech, *four_seconds, *speech])[0] is None
    nearly = [code % 9 if code % 10 else 100 + code for code in range(300)]  # one in ten is new
    assert codes_until_end(nearly)[0] is None


def test_guard_caps_and_the_cap_grows_with_the_text() -> None:
    assert codes_until_end(range(1000), cap=40) == ("cap", 40)
    assert text_cap(0) == FRAMES_TO_SPARE
    assert text_cap(100) > text_cap(10) > 4 * 10, "slow speech takes 8 frames a token"
