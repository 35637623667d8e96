"""What is decoded of a reference before a line's first chunk; tests/morph/waveform/test_stream.py has the samples."""

import pytest
import torch
from qwen3_tts_morph.morph.codec.packing import CONTEXT_FRAMES, PART_FRAMES, first_needed
from qwen3_tts_morph.morph.codec.stream import CodecState, CodecStream, _Pass
from qwen3_tts_morph.morph.codec.weights import reaches_of

from tests.morph.codec_lines import random_codes


@pytest.fixture
def model(load):
    return load("tiny", "base")


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
    needed, (context, _) = length - first_needed(length), reaches_of(model.codec.decoder)
    assert sum(transformed) == needed <= 324 and max(transformed, default=0) <= PART_FRAMES
    assert convolved == ([min(needed, context)] if needed else [])
    assert torch.equal(state.recent, reference[-CONTEXT_FRAMES:])
