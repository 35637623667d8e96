"""Which token each frame is on, in a line's chunks while it is made, and in its pieces once it has ended."""

from dataclasses import replace

import numpy as np
import pytest
from qwen3_tts_morph.morph.batch.speech import Chunk
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line, PieceSpan
from qwen3_tts_morph.morph.synthesizer import Engine, Synthesizer
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice
from qwen3_tts_morph.morph.words.alignment import Trace
from qwen3_tts_morph.morph.words.head import AlignmentHead

from lab.streams import render_lines, stream_line
from tests.morph.decoding import same_traces

OPTIONS = GenerateOptions(5, Sampling(max_new_tokens=17), split_chars=40, retries=0, normalize="off")
TEXT = "This is the first sentence. [pause 0.1] And here is the second one of them. The third comes last."


@pytest.fixture(params=["eager", "graph"])
def synthesizer(load, monkeypatch, request):
    model = load("tiny", "base")
    monkeypatch.setattr(model, "alignment", AlignmentHead(1, 3))
    return Synthesizer(model, Engine(request.param))


@pytest.fixture
def voice(load, recording):
    return clone_voice(load("tiny", "base"), recording, 24000, CloneOptions("x_vector"))


def streamed(synthesizer, line: Line, options: GenerateOptions) -> tuple[list[Chunk], tuple[PieceSpan, ...]]:
    with stream_line(synthesizer, line, options) as stream:
        chunks = list(stream)
        return chunks, stream.spoken[0].spans


def of_piece(chunks: list[Chunk], piece: int) -> Trace:
    """Return the trace of a piece from its chunks."""
    words = [chunk.words for chunk in chunks if chunk.words is not None and chunk.words.piece == piece]
    shares = ("tokens", "weights", "mass")
    return Trace(*(np.concatenate([getattr(one.trace, name) for one in words]) for name in shares))


def same(one: Trace | None, other: Trace | None) -> bool:
    """Whether there are traces, and they are the same up to the rounding of passes of another shape."""
    return one is not None and same_traces(one, other)


@pytest.mark.parametrize("trim_ends", [False, True])
def test_chunks_say_what_the_pieces_of_the_line_say(synthesizer, voice, trim_ends) -> None:
    """Pieces with a pause and with a crossfade between them; each frame of a piece has its place in the waveform."""
    options = replace(OPTIONS, trim_ends=trim_ends)
    chunks, spans = streamed(synthesizer, Line(TEXT, voice, seed=5), options)
    assert len(spans) == 3 and all(len(one.words.trace.tokens) == len(one.codes) for one in chunks if len(one.codes))
    for index, span in enumerate(spans):
        assert same(of_piece(chunks, index), span.trace)
        last = [chunk.words for chunk in chunks if chunk.words is not None and chunk.words.piece == index][-1]
        assert last.text == span.text and last.begin == span.start - span.trimmed
    [whole] = render_lines(synthesizer, [Line(TEXT, voice, seed=5)], options)
    assert all(same(one.trace, other.trace) for one, other in zip(whole.spans, spans, strict=True))
    assert [(one.start, one.trimmed) for one in whole.spans] == [(one.start, one.trimmed) for one in spans]


def test_text_that_comes_token_by_token_has_the_trace_of_the_whole_text(synthesizer, voice) -> None:
    """Its parts are cut within words, and characters too few for a token."""
    text, options = "One two three, four and a bit more.", replace(OPTIONS, split_chars=0)
    _, (whole,) = streamed(synthesizer, Line(text, voice, seed=5), options)
    for parts in ([text], [text[at : at + 3] for at in range(0, len(text), 3)]):
        chunks, (span,) = streamed(synthesizer, Line(iter(parts), voice, seed=5, layout="token"), options)
        assert same(span.trace, whole.trace) and same(of_piece(chunks, 0), whole.trace)
    tokens = len(synthesizer.model.texts.line(text)) - 8
    assert whole.trace is not None and whole.trace.tokens.max() < tokens


def test_without_a_head_nothing_is_said(synthesizer, voice, monkeypatch) -> None:
    monkeypatch.setattr(synthesizer.model, "alignment", None)
    chunks, spans = streamed(synthesizer, Line(TEXT, voice, seed=5), OPTIONS)
    assert all(chunk.words is None for chunk in chunks) and all(span.trace is None for span in spans)
