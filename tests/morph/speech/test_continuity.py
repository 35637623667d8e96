"""Pieces that go on from the one before: what they go on from, and when they are spoken."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.batch.fitting import needed_rows
from qwen3_tts_morph.morph.batch.queue import Waiting
from qwen3_tts_morph.morph.batch.speech import Delivery, Speech
from qwen3_tts_morph.morph.decode.decoded import Decoded
from qwen3_tts_morph.morph.engine import Engine
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.runtime.bell import Bell
from qwen3_tts_morph.morph.speech import continuity, pieces
from qwen3_tts_morph.morph.speech.continuity import find_context
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice, design_voice
from qwen3_tts_morph.morph.voice.prompt import Context
from qwen3_tts_morph.morph.words.head import AlignmentHead
from qwen3_tts_morph.morph.words.trace import Trace

from lab.streams import render_lines, stream_line

TEXT = "Nobody had told them that it was closed. They walked on until it was dark. Then they all sat down."
OPTIONS = GenerateOptions(
    5, Sampling(max_new_tokens=9), retries=0, split_chars=50, normalize="off", continuity=True
)


@pytest.fixture
def model(load):
    return load("tiny", "base")


@pytest.fixture
def following(model, monkeypatch):
    monkeypatch.setattr(model, "alignment", AlignmentHead(1, 3))
    return model


@pytest.fixture
def voice(model, recording):
    return clone_voice(model, recording, 24000, CloneOptions("x_vector"))


def spoken_as(tokens: list[int], ended: str = "eos") -> Decoded:
    """Return a take in which each token is looked at for a frame; a frame's codes are its number."""
    ones = np.ones(len(tokens), dtype=np.float32)
    codes = torch.arange(len(tokens))[:, None].expand(-1, 16)
    return Decoded(codes, ended, Trace(np.array(tokens, dtype=np.int32), ones, ones))


def test_a_short_piece_is_the_context_whole(model) -> None:
    decoded = replace(spoken_as(list(range(50))), trace=None)
    context = find_context(model, TEXT, decoded)
    assert context is not None and context.text == TEXT and torch.equal(context.codes, decoded.codes)


def test_of_a_long_piece_it_is_the_last_words_that_fit(following) -> None:
    spans = following.texts.spans(TEXT)
    tokens = [index for index in range(len(spans)) for _ in range(2)]
    context = find_context(following, TEXT, spoken_as(tokens))
    assert context is not None and TEXT.endswith(context.text)
    begin = TEXT.rindex(context.text)
    assert begin == 0 or TEXT[begin - 1] == " "
    first = next(index for index, (_, end) in enumerate(spans) if end > begin)
    assert context.codes[0, 0] == 2 * first, "it begins where its first word does"
    assert context.codes[-1, 0] == len(tokens) - 1
    assert 40 < len(context.codes) <= continuity.MOST_FRAMES


def test_without_a_head_a_piece_is_the_context_up_to_10_s(model) -> None:
    decoded = replace(spoken_as([0] * 125), trace=None)
    assert find_context(model, TEXT, decoded) is not None
    assert find_context(model, TEXT, replace(decoded, codes=decoded.codes.repeat(2, 1)[:126])) is None


@pytest.mark.parametrize("ended", ["cap", "loop", "silent", "words", "cancelled"])
def test_a_piece_that_went_wrong_is_no_context(model, ended) -> None:
    assert find_context(model, TEXT, spoken_as([0] * 45, ended)) is None
    assert find_context(model, TEXT, spoken_as([0] * 9)) is None, "too early for its text"


@pytest.fixture
def contexts(monkeypatch) -> list[tuple[str, torch.Tensor]]:
    """The pieces that others go on from, with their codes; the last five frames are the context."""
    found: list[tuple[str, torch.Tensor]] = []

    def find(model, text: str, decoded: Decoded) -> Context:
        found.append((text, decoded.codes))
        return Context(decoded.codes[-5:], text)

    monkeypatch.setattr(pieces, "find_context", find)
    return found


@pytest.fixture
def built(monkeypatch) -> list[tuple[str, Context | None]]:
    """The prompts that are built: their texts and contexts."""
    made: list[tuple[str, Context | None]] = []
    build = pieces.build_piece

    def note(builder, line, text, context=None):
        made.append((text, context))
        return build(builder, line, text, context)

    monkeypatch.setattr(pieces, "build_piece", note)
    return made


@pytest.mark.parametrize("engine", ["eager", "graph"])
def test_each_piece_goes_on_from_the_one_before(model, voice, contexts, built, engine) -> None:
    synthesizer = Synthesizer(model, Engine(engine))
    [spoken] = render_lines(synthesizer, [Line(TEXT, voice, seed=3)], OPTIONS)
    texts = [span.text for span in spoken.spans]
    assert len(texts) == 3 and [text for text, _ in contexts] == texts[:2]
    carried = [(text, context) for text, context in built if context is not None]
    assert [text for text, _ in carried] == texts[1:]
    for (_, context), (text, codes) in zip(carried, contexts, strict=True):
        assert context.text == text and torch.equal(context.codes, codes[-5:])
    heard_contexts = list(contexts)
    contexts.clear()
    with stream_line(synthesizer, Line(TEXT, voice, seed=3), OPTIONS) as stream:
        codes = torch.cat([chunk.codes for chunk in stream])
    for (_, one), (_, other) in zip(heard_contexts, contexts, strict=True):
        assert torch.equal(one, other), "a line that is heard has the same codes"
    assert torch.equal(codes[: len(heard_contexts[0][1])], heard_contexts[0][1])
    fresh = render_lines(synthesizer, [Line(TEXT, voice, seed=3)], replace(OPTIONS, continuity=False))[0]
    first = spoken.spans[0].end
    assert np.allclose(fresh.waveform[: first - 2000], spoken.waveform[: first - 2000], atol=1e-4)
    assert not np.allclose(fresh.waveform[-2000:], spoken.waveform[-2000:], atol=1e-4)


def test_the_reference_of_an_icl_voice_stays_in_the_prompt(model, recording, contexts, built) -> None:
    voice = clone_voice(model, recording, 24000, CloneOptions("icl", "a tone that rises"))
    render_lines(Synthesizer(model, Engine("graph")), [Line(TEXT, voice, seed=3)], OPTIONS)
    carried = [context for _, context in built if context is not None]
    assert len(carried) == 2
    for context, (text, codes) in zip(carried, contexts, strict=True):
        assert torch.equal(context.codes, torch.cat((voice.ref_codes, codes[-5:])))
        assert context.text == f"a tone that rises {text}"


def test_the_take_that_stays_is_the_context(model, voice, contexts, monkeypatch) -> None:
    ends = iter(["early", "eos", "eos", "eos"])
    monkeypatch.setattr(pieces, "judge_end", lambda *_: next(ends))
    synthesizer = Synthesizer(model, Engine("graph"))
    line = Line(TEXT, voice, seed=3)
    [spoken] = render_lines(synthesizer, [line], replace(OPTIONS, retries=1))
    assert (spoken.report.takes, spoken.report.ended) == (2, "eos")
    retaken = contexts[0][1]
    contexts.clear()
    monkeypatch.setattr(pieces, "judge_end", lambda *_: "eos")
    # Piece 0 of three has the seed 3 + 3 in its second take.
    render_lines(synthesizer, [replace(line, seed=6)], OPTIONS)
    assert torch.equal(retaken, contexts[0][1])


def test_a_piece_that_cannot_go_on_begins_from_the_voice_and_the_report_says_so(model, voice, built) -> None:
    """Nothing of random weights ends by itself, so nothing is gone on from."""
    synthesizer = Synthesizer(model, Engine("graph"))
    [spoken] = render_lines(synthesizer, [Line(TEXT, voice)], OPTIONS)
    assert all(context is None for _, context in built)
    [note] = [one for one in spoken.report.notes if "voice alone" in one]
    assert note.startswith("2 pieces of 3 began from the voice alone")
    with stream_line(synthesizer, Line(TEXT, voice), OPTIONS) as stream:
        for _ in stream:
            pass
        assert note in stream.spoken[0].report.notes


def test_late_sentences_go_on_too(model, voice, contexts) -> None:
    sentences = [part + " " for part in TEXT.split(". ")]
    late = (text if text.endswith(". ") else text.strip() + ". " for text in sentences)
    with stream_line(Synthesizer(model, Engine("graph")), Line(late, voice, seed=3), OPTIONS) as stream:
        assert len([chunk for chunk in stream if chunk.frames]) > 2
    assert [text for text, _ in contexts] == [part.strip() + "." for part in sentences[:2]]


def test_a_line_that_goes_on_needs_one_row(model, voice) -> None:
    for options, rows in ((OPTIONS, 1), (replace(OPTIONS, continuity=False), 2)):
        speech = Speech(Line(TEXT, voice), options, Delivery(live=False), Bell())
        assert needed_rows(model, [Waiting(speech, (), 24000)]) == rows


def test_a_description_has_no_speaker_to_go_on_with(load) -> None:
    model = load("tiny-1.7B", "voice_design")
    line = Line(TEXT, design_voice(model, "an old man"))
    with pytest.raises(ValueError, match="continuity is on and voice 'designed voice' is a description"):
        render_lines(Synthesizer(model, Engine("graph")), [line], OPTIONS)
    with pytest.raises(ValueError, match="turn continuity off"):
        stream_line(Synthesizer(model, Engine("graph")), line, OPTIONS)
