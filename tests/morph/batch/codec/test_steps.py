"""Many lines at once, on a device of constant speed whose clock is the test's: nobody's sound runs out."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.batch.codec import pacing
from qwen3_tts_morph.morph.batch.codec import steps as codec_steps
from qwen3_tts_morph.morph.batch.codec.line_chunks import LineChunks, Output
from qwen3_tts_morph.morph.batch.codec.pacing import ChunkSizes, Claim, Speed, choose
from qwen3_tts_morph.morph.batch.codec.steps import FEW, CodecSteps
from qwen3_tts_morph.morph.codec.packing import PART_FRAMES
from qwen3_tts_morph.morph.decode.buffers import RowBuffers
from qwen3_tts_morph.morph.decode.rows import REPORT_WIDTH, Frame, Guard
from qwen3_tts_morph.morph.options import GenerateOptions
from qwen3_tts_morph.morph.runtime.capture import next_power_of_2
from qwen3_tts_morph.morph.speech.pieces import Piece
from qwen3_tts_morph.morph.waveform.incremental import count_steps

AUDIO_S = 0.08
SAMPLES = 8  # per frame
LAG = 2  # frames that the device is ahead of the host
RAMP = (1, 1, 2, 4, 8, 12)


@dataclass
class Device:
    """Works off frames and steps of the codec in the order in which they were launched."""

    frame_s: float
    line_s: float  # of a line in a step
    now: float = 0.0
    free_at: float = 0.0
    steps: list[tuple[int, int]] = field(default_factory=list)  # lines, and frames of the longest chunk
    fed: list[int] = field(default_factory=list)  # lines whose references got a part

    def launch(self, seconds: float) -> float:
        self.free_at = max(self.free_at, self.now) + seconds
        return self.free_at

    def wait(self, until: float) -> None:
        self.now = max(self.now, until)


class Codec:
    """A ``LineCodec`` of the device."""

    def __init__(self, device: Device):
        self.device = device
        self.done: dict[int, int] = {}  # frames of each line
        self.left: dict[int, int] = {}  # frames of references

    def begin(self, line: int, reference: torch.Tensor | None) -> None:
        self.left[line] = 0 if reference is None else len(reference)

    def missing(self, line: int) -> int:
        return self.left[line]

    def feed(self, line: int) -> None:
        self.device.fed.append(line)
        self.left[line] = max(0, self.left[line] - PART_FRAMES)

    def end(self, line: int) -> None:
        pass

    def step_s(self, lines: int) -> float:
        return 0.0015 + self.device.line_s * next_power_of_2(lines)

    def steps(self, line: int, frames: int) -> int:
        return count_steps(self.done.get(line, 0), frames)

    def launch(self, codes: Mapping[int, torch.Tensor]) -> SimpleNamespace:
        assert not any(self.left[line] for line in codes), "the whole reference would be decoded in one go"
        steps = [self.steps(line, len(part)) for line, part in codes.items()]
        took = sum(self.step_s(sum(count > at for count in steps)) for at in range(max(steps)))
        for line, part in codes.items():
            self.done[line] = self.done.get(line, 0) + len(part)
        ready = self.device.launch(took)
        self.device.steps.append((len(codes), max(map(len, codes.values()))))

        def wait() -> dict[int, np.ndarray]:
            self.device.wait(ready)
            return {line: part[:, 0].numpy().repeat(SAMPLES).astype(np.float32) for line, part in codes.items()}

        return _Waves(self.device, ready, took, wait)


class _Waves(SimpleNamespace):
    def __init__(self, device: Device, ready: float, seconds: float, wait):
        super().__init__(seconds=seconds, wait=wait)
        self._device, self._ready = device, ready

    @property
    def is_ready(self) -> bool:
        return self._device.now >= self._ready


class Heard:
    """A line with a player that starts with the first samples."""

    def __init__(self, number: int, speed: Speed, device: Device, begins: int, frames: int, reference: int = 0):
        codes = torch.zeros(reference, 16, dtype=torch.int64) if reference else None
        line = SimpleNamespace(voice=SimpleNamespace(ref_codes=codes))
        speech = SimpleNamespace(options=GenerateOptions(), line=line, is_full=False)
        sizes = ChunkSizes(RAMP, speed)
        self.number, self.made, self.device = number, Piece(), device
        parts = SimpleNamespace(
            pieces=[self.made],
            model=SimpleNamespace(sample_rate=round(SAMPLES / AUDIO_S)),
            sampling=SimpleNamespace(line_frames=None),
        )
        chunks = self.chunks = LineChunks(number, speech, parts, sizes)
        self.begins, self.frames = begins, frames
        chunks.go_on()
        chunks.complete(0.0)
        self.first_at: float | None = None
        self.dry_s, self.empty_at = 0.0, 0.0
        self.samples: list[np.ndarray] = []

    def deliver(self, output: Output) -> None:
        if (chunk := output.chunk) is None:
            return
        if self.first_at is None:
            self.first_at = self.empty_at = self.device.now
        self.dry_s += max(0.0, self.device.now - self.empty_at)
        self.empty_at = max(self.empty_at, self.device.now) + len(chunk.samples) / SAMPLES * AUDIO_S
        self.samples.append(chunk.samples)


def speak(monkeypatch: pytest.MonkeyPatch, device: Device, plan: Sequence[tuple[int, ...]]) -> list[Heard]:
    """Speak lines.

    ``plan`` has for each the frame of the batch at which it begins, how many frames it has, and those of its reference.
    """
    clock = SimpleNamespace(perf_counter=lambda: device.now)
    for module in (codec_steps, pacing):
        monkeypatch.setattr(module, "time", clock)
    speed = Speed(AUDIO_S)
    lines = [Heard(number, speed, device, *times) for number, times in enumerate(plan)]
    turns = CodecSteps(partial(Codec, device), torch.zeros(0), speed, deliver_to(lines))
    buffers = RowBuffers(len(lines), eos=-1)
    turns.use(buffers)
    for line in lines:
        buffers.begin(line.number, Guard(1 << 30, False))
        line.made.frames.enter(buffers, line.number)
        line.chunks.row = line.number
    in_flight: deque[tuple[int, float]] = deque()
    last = max(line.begins + line.frames for line in lines)
    for at in range(last + LAG):
        if at < last:
            in_flight.append((at, device.launch(device.frame_s)))
        if at >= LAG:
            made, ready = in_flight.popleft()
            device.wait(ready)
            _receive(turns, buffers, speed, lines, made)
    turns.settle()
    while turns.flush([line.chunks for line in lines]):
        pass
    return lines


def deliver_to(lines: Sequence[Heard]) -> Callable[[Output], None]:
    return lambda output: lines[output.number].deliver(output)


def _receive(turns: CodecSteps, buffers: RowBuffers, speed: Speed, lines: Sequence[Heard], at: int) -> None:
    own = [line for line in lines if 0 <= at - line.begins < line.frames]
    report = np.array([[at - line.begins] * 16 + [0] * 4 for line in own]).reshape(-1, REPORT_WIDTH)
    buffers.append(Frame(np.array([line.number for line in own], dtype=np.int64), report))
    for line in own:
        if at - line.begins == line.frames - 1:
            line.made.frames.leave(buffers.release(line.number))
            line.chunks.row = None
            line.made.ended = "cap"
            turns.wake(line.number)
    speed.end_frame()
    turns.step([line.chunks for line in lines if line.chunks.has_codes])


# An H200 makes a frame of 0.6B for 64, 128 and 256 lines in about these times, and one line of a step in 0.45 ms.
@pytest.mark.parametrize(("lines", "frame_s"), [(8, 0.0025), (64, 0.0045), (128, 0.009), (256, 0.017)])
def test_lines_that_begin_at_once_never_run_dry(monkeypatch, lines, frame_s):
    device = Device(frame_s, 0.00045)
    heard = speak(monkeypatch, device, [(0, 150)] * lines)
    assert max(line.dry_s for line in heard) == 0
    assert max(line.first_at for line in heard) < 0.4
    for line in heard:
        assert np.array_equal(np.concatenate(line.samples), np.arange(150).repeat(SAMPLES))


def test_lines_that_begin_one_after_another_never_run_dry_and_are_heard_soon(monkeypatch):
    device = Device(0.0045, 0.00045)
    heard = speak(monkeypatch, device, [(3 * number, 200) for number in range(64)])
    assert max(line.dry_s for line in heard) == 0
    late = heard[FEW + 1 :]
    assert len(late) > 50
    # Of the frames before a line's first one, the device is ahead of the host with those of LAG.
    assert all(line.samples[0].size == SAMPLES for line in late), "the first chunk is one frame"
    assert sum(count for count, _ in device.steps) < 64 * 200 / 6, "and chunks grow"


def test_short_lines_that_come_where_all_others_begin_a_chunk_never_run_dry(monkeypatch):
    device = Device(0.017, 0.00045)
    short = [(begins, 12) for begins in range(280, 400, 15)]
    heard = speak(monkeypatch, device, [(0, 420)] * 255 + short)
    assert max(line.dry_s for line in heard) == 0


def test_few_lines_have_the_sizes_asked_for(monkeypatch):
    device = Device(0.002, 0.0005)
    heard = speak(monkeypatch, device, [(0, 40)] * FEW)
    for line in heard:
        assert [part.size // SAMPLES for part in line.samples] == [1, 1, 2, 4, 8, 12, 12]


def test_few_lines_wait_for_one_that_is_to_be_heard_unless_they_run_dry(monkeypatch):
    device = Device(0.002, 0.0005)
    monkeypatch.setattr(codec_steps, "time", SimpleNamespace(perf_counter=lambda: device.now))
    speed = Speed(AUDIO_S)
    line = Heard(0, speed, device, 0, 40)
    turns = CodecSteps(partial(Codec, device), torch.zeros(0), speed, deliver_to([line]))
    buffers = RowBuffers(1, eos=-1)
    buffers.begin(0, Guard(40, False))
    turns.use(buffers)
    line.made.frames.enter(buffers, 0)
    line.chunks.row = 0

    def steps_of_a_turn(comes: bool) -> int:
        buffers.append(Frame(np.array([0]), np.zeros((1, REPORT_WIDTH), dtype=np.int64)))
        before = len(device.steps)
        turns.step([line.chunks], comes)
        return len(device.steps) - before

    assert [steps_of_a_turn(comes) for comes in (True, True, False)] == [1, 0, 1], "its own first is not held back"
    assert steps_of_a_turn(True) == 0
    device.now = line.empty_at - 0.001
    assert steps_of_a_turn(True) == 1


@pytest.mark.parametrize("others", [1, FEW, 20])
def test_a_reference_is_decoded_in_parts_between_the_frames_of_others(monkeypatch, others):
    device, begins = Device(0.0045, 0.00045), 30
    step, fed_in = CodecSteps.step, []

    def note(turns, lines, *given):
        before = len(device.fed)
        step(turns, lines, *given)
        fed_in.append(len(device.fed) - before)

    monkeypatch.setattr(CodecSteps, "step", note)
    heard = speak(monkeypatch, device, [(0, 150)] * others + [(begins, 40, 375), (begins, 1, 250)])
    assert max(fed_in) == 1, "a part between two frames"
    number = others
    assert device.fed == [number] * 4 + [number + 1] * 3, "one reference after the other"
    assert max(line.dry_s for line in heard) == 0
    for line in heard:
        assert np.array_equal(np.concatenate(line.samples), np.arange(line.frames).repeat(SAMPLES))


def test_a_line_that_is_alone_has_its_reference_decoded_at_once(monkeypatch):
    device = Device(0.0045, 0.00045)
    step, fed_in = CodecSteps.step, []

    def note(turns, *given):
        step(turns, *given)
        fed_in.append(len(device.fed))

    monkeypatch.setattr(CodecSteps, "step", note)
    [line] = speak(monkeypatch, device, [(0, 20, 375)])
    assert fed_in[0] == fed_in[-1] == 4 and line.samples[0].size == SAMPLES


def test_lines_that_end_before_their_references_are_decoded_are_sent_to_their_ends(monkeypatch):
    heard = speak(monkeypatch, Device(0.0045, 0.00045), [(0, 1, 375), (0, 2, 375), (0, 1)])
    for line in heard:
        assert np.array_equal(np.concatenate(line.samples), np.arange(line.frames).repeat(SAMPLES))


def test_a_step_is_filled_with_those_that_are_pressed_most():
    calm = [Claim(line, 12, empty_at=float(line)) for line in range(7)]
    assert choose(calm[:3], 8) == [], "nobody waits for them"
    assert [claim.line for claim in choose(calm[::-1], 8)] == [0, 1, 2, 3]
    pressed = [Claim(10 + line, 3, is_urgent=True, empty_at=9.0) for line in range(5)]
    assert [claim.line for claim in choose([*calm, *pressed], 12)] == [10, 11, 12, 13, 14, 0, 1, 2]
    assert len(choose([Claim(line, 12) for line in range(200)], 200)) == 32


def test_lines_that_take_several_steps_are_spread():
    claims = [Claim(line, 12, steps=4) for line in range(200)]
    assert len(choose(claims, 256)) == 8
    urgent = [replace(claim, is_urgent=True) for claim in claims[:50]]
    assert choose([*urgent, *claims[50:]], 256) == urgent, "nobody waits who must not"
