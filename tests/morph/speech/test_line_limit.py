"""``max_seconds`` bounds a line, all of its pieces together, however it is made; the report says that it was cut."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.batch.speech import Chunk
from qwen3_tts_morph.morph.decode.rows import Decoded
from qwen3_tts_morph.morph.options import FRAME_RATE, GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.speech.pieces import Piece, limit_takes
from qwen3_tts_morph.morph.speech.takes import Take
from qwen3_tts_morph.morph.synthesizer import Engine, Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice

from lab.streams import render_lines, stream_line, stream_lines
from tests.morph.codec_lines import FLOAT32_DB, signal_to_noise
from tests.morph.endless import pin_ends

THREE = "This is the first sentence of them. And this is the second sentence. The third comes last."
PIECE = 8  # frames of each
OPTIONS = GenerateOptions(5, Sampling(max_new_tokens=PIECE + 1), split_chars=40, retries=1)
FRAME = 1920


@pytest.fixture(params=[pytest.param("eager", marks=pytest.mark.slow), "graph"])
def synthesizer(model, request):
    return Synthesizer(model, Engine(request.param))


@pytest.fixture
def line(model, monkeypatch) -> Line:
    """A line of three pieces that each take all the frames they may have."""
    pin_ends(monkeypatch, 1000, "")
    return Line(f"{THREE} [pause 0.5]", preset_voice(model, "ryan"), seed=3)


def limited(frames: int, options: GenerateOptions = OPTIONS) -> GenerateOptions:
    assert options.sampling is not None
    return replace(options, sampling=replace(options.sampling, max_seconds=frames / FRAME_RATE))


def joined(chunks: list[Chunk]) -> tuple[torch.Tensor, np.ndarray]:
    assert [chunk.last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    return torch.cat([one.codes for one in chunks]), np.concatenate([one.samples for one in chunks])


def streamed(synthesizer: Synthesizer, line: Line, options: GenerateOptions) -> tuple:
    with stream_line(synthesizer, line, options) as stream:
        codes, samples = joined(list(stream))
        [spoken] = stream.spoken
    assert spoken.waveform.tobytes() == samples.tobytes()
    return codes, samples, spoken.report


@pytest.mark.parametrize(
    "frames",
    [
        5,
        *(pytest.param(frames, marks=pytest.mark.slow) for frames in (PIECE, 3 * PIECE)),
        PIECE + 4,
        3 * PIECE + 1,
    ],
)
def test_a_line_ends_at_its_limit_in_the_codes_that_it_has_without_one(synthesizer, line, frames) -> None:
    codes, samples, _ = streamed(synthesizer, line, OPTIONS)
    options, count = limited(frames), min(frames, 3 * PIECE)
    [rendered] = render_lines(synthesizer, [line], options)
    assert rendered.report.frames == count and rendered.report.ended == "cap"
    assert rendered.report.takes == 1 and rendered.spans[-1].end <= len(rendered.waveform)
    late = replace(line, text=iter([THREE, " [pause 0.5]"]))
    made = streamed(synthesizer, line, options)
    assert torch.equal(made[0], codes[:count])
    assert len(made[1]) == len(rendered.waveform)
    assert signal_to_noise(rendered.waveform, made[1]) > FLOAT32_DB
    assert (made[2].frames, made[2].ended) == (count, "cap")
    if frames > 3 * PIECE:
        assert len(rendered.waveform) == len(samples)
    made = streamed(synthesizer, late, options)
    assert torch.equal(made[0], codes[:count]) and made[2].ended == "cap"


def test_each_line_has_a_limit_of_its_own(synthesizer, line) -> None:
    texts = [f"{THREE} {THREE}", "One short sentence.", THREE]
    several = [replace(line, text=text, seed=seed) for seed, text in enumerate(texts)]
    options = limited(PIECE + 4, replace(OPTIONS, batch_size=2))
    made = render_lines(synthesizer, several, options)
    with stream_lines(synthesizer, several, options) as stream:
        assert {chunk.line for chunk in stream} == {0, 1, 2}
        heard = stream.spoken
    assert [one.report.frames for one in made] == [one.report.frames for one in heard] == [12, PIECE, 12]
    assert [len(one.waveform) for one in made] == [len(one.waveform) for one in heard]


def test_pieces_that_cannot_be_reached_are_not_made(model, line) -> None:
    text = "And this is the second sentence. " * 50
    reports = [one.report for one in render_lines(Synthesizer(model), [replace(line, text=text)], limited(5))]
    assert reports[0].ended == "cap" and reports[0].pieces < 5


def take(frames: int, ended: str = "eos") -> tuple[Piece, Take]:
    codes = torch.zeros(frames, 16, dtype=torch.int64)
    return Piece("a", 0, 1), Take(Decoded(codes, ended), np.ones(frames * FRAME, np.float32), ended)


@pytest.mark.parametrize(
    ("most", "ends"),
    [
        (None, [(4, "eos"), (3, "early"), (5, "eos")]),
        (12, [(4, "eos"), (3, "early"), (5, "eos")]),
        (8, [(4, "eos"), (3, "early"), (1, "cap")]),
        (7, [(4, "eos"), (3, "early")]),
        (4, [(4, "cap")]),
    ],
)
def test_what_is_left_out_is_said_by_the_last_piece(most, ends) -> None:
    kept = limit_takes([take(4), take(3, "early"), take(5)], most)
    assert [(len(one.decoded.codes), one.ended) for _, one in kept] == ends
    assert all(len(one.waveform) == FRAME * len(one.decoded.codes) for _, one in kept)


def test_text_behind_the_limit_is_not_waited_for(synthesizer, line) -> None:
    def parts() -> Iterator[str]:
        yield THREE
        while True:
            yield " And this is another sentence."

    made = streamed(synthesizer, replace(line, text=parts()), limited(PIECE + 4))
    assert made[2].frames == PIECE + 4 and made[2].ended == "cap"
