"""A line decoded step by step has the samples of the whole line, whatever the steps."""

from collections.abc import Iterable

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.codec.complete import decode_waveform as whole_line
from qwen3_tts_morph.morph.codec.packing import CONTEXT_FRAMES, PART_FRAMES, first_needed
from qwen3_tts_morph.morph.codec.stream import CodecState, CodecStream, _Pass
from qwen3_tts_morph.morph.codec.weights import context_of

from tests.morph.codec_lines import FLOAT32_DB, FRAME, RAMP, random_codes, signal_to_noise, steps


@pytest.fixture
def model(load):
    return load("tiny", "base")


def stream(stream: CodecStream, state: CodecState, codes: torch.Tensor, sizes: Iterable[int]) -> np.ndarray:
    waves = []
    for part in steps(sizes, codes):
        wave = stream.decode(state, part)
        assert wave.dtype == np.float32 and wave.shape == (len(part) * FRAME,)
        waves.append(wave)
    return np.concatenate([np.zeros(0, np.float32), *waves])


def after(codec: CodecStream, reference: torch.Tensor) -> CodecState:
    state = CodecState()
    while state.frames < len(reference):
        codec.feed(state, reference)
    return state


# Around what a sample depends on, the window of the transformer, and the restart after 300 frames.
FRAMES = [
    *(0, 1, 11, 301),
    *(pytest.param(frames, marks=pytest.mark.slow) for frames in (2, 9, 10, 71, 72, 73, 299, 300, 325, 601)),
]


@pytest.mark.parametrize("frames", FRAMES)
def test_a_line_of_any_length_has_the_samples_of_the_whole_line(model, frames):
    codes, codec = random_codes(model, frames), CodecStream(model)
    whole = whole_line(model, codes)
    ours = stream(codec, CodecState(), codes, RAMP)
    assert ours.shape == whole.shape
    assert not frames or signal_to_noise(whole, ours) > FLOAT32_DB


@pytest.mark.parametrize(
    "sizes",
    [
        *(pytest.param(sizes, marks=pytest.mark.slow) for sizes in ((1,), (2,), (3, 1), (25,), (73,))),
        (7,),
        (330,),
    ],
    ids=str,
)
def test_the_sizes_of_the_steps_do_not_matter(model, sizes):
    codes, codec = random_codes(model, 330), CodecStream(model)
    assert signal_to_noise(whole_line(model, codes), stream(codec, CodecState(), codes, sizes)) > FLOAT32_DB


@pytest.mark.parametrize(
    "length", [0, 25, 301, *(pytest.param(one, marks=pytest.mark.slow) for one in (1, 11, 125, 300, 375))]
)
def test_a_line_after_a_reference(model, length):
    """Its state is made once and serves several lines."""
    reference, codec = random_codes(model, length, 7), CodecStream(model)
    warm = after(codec, reference)
    for seed, frames in enumerate((5, 40)):
        codes = random_codes(model, frames, seed)
        whole = whole_line(model, codes, reference if length else None)
        assert signal_to_noise(whole, stream(codec, warm.copy(), codes, RAMP)) > FLOAT32_DB
    assert warm.frames == length


@pytest.mark.parametrize("length", [1, 11, 125, 299, 300, 301, 340])
def test_a_reference_is_fed_in_short_parts(model, monkeypatch, length):
    """The transformer runs once over the frames that the state depends on, the convolutions over the last few."""
    transformed, convolved = [], []
    transform, convolve = _Pass.transform, _Pass.convolve

    def note(one, codes):
        transformed.append(len(codes))
        return transform(one, codes)

    def note_again(one, x, reaches=None):
        convolved.append(x.shape[2])
        return convolve(one, x, reaches)

    monkeypatch.setattr(_Pass, "transform", note)
    monkeypatch.setattr(_Pass, "convolve", note_again)
    codec, state, reference = CodecStream(model), CodecState(), random_codes(model, length, 7)
    parts = 0
    while state.frames < length:
        codec.feed(state, reference)
        parts += 1
        assert len(transformed) <= parts
    needed, context = length - first_needed(length), context_of(model.codec.decoder)
    assert sum(transformed) == needed <= 324 and max(transformed, default=0) <= PART_FRAMES
    assert convolved == ([min(needed, context)] if needed else [])
    assert torch.equal(state.recent, reference[-CONTEXT_FRAMES:])


def test_lines_in_turns_do_not_meet(model):
    codec = CodecStream(model)
    lines = [random_codes(model, frames, seed) for seed, frames in enumerate((30, 40, 50))]
    states, waves = [CodecState() for _ in lines], [[] for _ in lines]
    for begin in range(0, 50, 3):
        for line, state, made in zip(lines, states, waves, strict=True):
            made.append(codec.decode(state, line[begin : begin + 3]))
    for line, made in zip(lines, waves, strict=True):
        assert signal_to_noise(whole_line(model, line), np.concatenate(made)) > FLOAT32_DB


def test_bf16_is_no_further_from_float32_than_the_whole_line(load):
    exact, rounded = load("tiny", "base"), load("tiny", "base", "bf16")
    codes, codec = random_codes(exact, 60), CodecStream(rounded)
    reference = whole_line(exact, codes)
    ours = signal_to_noise(reference, stream(codec, CodecState(), codes, RAMP))
    theirs = signal_to_noise(reference, whole_line(rounded, codes))
    assert ours > theirs - 1, "dB; random weights make rounding loud"
