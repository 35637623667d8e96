"""Words that went wrong, as a line's trace shows them: what is said of them, and what follows."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.batch import utterance
from qwen3_tts_morph.morph.decode.rows import Decoded
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech import lines, pieces
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.speech.takes import wrong_words
from qwen3_tts_morph.morph.synthesizer import Engine, Synthesizer
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice
from qwen3_tts_morph.morph.words.alignment import Trace
from qwen3_tts_morph.morph.words.guard import WordFault
from qwen3_tts_morph.morph.words.head import AlignmentHead

from lab.streams import render_lines, stream_line

TEXT = "Nobody had told them that the bridge was closed, so they walked along the river."
OPTIONS = GenerateOptions(5, Sampling(max_new_tokens=20), retries=0, wrong_words="retry", normalize="off")


@pytest.fixture
def model(load, monkeypatch):
    model = load("tiny", "base")
    monkeypatch.setattr(model, "alignment", AlignmentHead(1, 3))
    return model


@pytest.fixture
def voice(load, recording):
    return clone_voice(load("tiny", "base"), recording, 24000, CloneOptions("x_vector"))


def spoken_as(tokens: list[int], ended: str = "eos") -> Decoded:
    """Return a take in which each token is looked at for a frame."""
    ones = np.ones(len(tokens), dtype=np.float32)
    trace = Trace(np.array(tokens, dtype=np.int32), ones, ones)
    return Decoded(torch.zeros(len(tokens), 16, dtype=torch.int64), ended, trace)


def test_words_that_were_not_said_are_named(model) -> None:
    spans = model.texts.spans(TEXT)
    said = [index for index, (start, _) in enumerate(spans) if not 22 <= start < 45]  # without "that ... was"
    assert wrong_words(model, TEXT, spoken_as(list(range(len(spans))))) == ""
    told = wrong_words(model, TEXT, spoken_as(said))
    assert told.startswith("did not say '") and "the bridge" in told and "river" not in told


def test_nothing_is_said_without_a_trace_and_of_texts_without_spaces(model) -> None:
    no_trace = replace(spoken_as([0, 5]), trace=None)
    assert wrong_words(model, TEXT, no_trace) == ""
    assert wrong_words(model, "你好，世界。今天天气很好。", spoken_as([0, 3])) == ""


@pytest.mark.parametrize("retries, ended, count", [(0, "words", 1), (2, "eos", 2)])
def test_a_line_with_wrong_words_is_spoken_again(model, voice, monkeypatch, retries, ended, count) -> None:
    found = iter(["did not say 'the bridge'"])
    monkeypatch.setattr(pieces, "judge_end", lambda *_: "eos")
    monkeypatch.setattr(pieces, "wrong_words", lambda *_: next(found, ""))
    options = replace(OPTIONS, retries=retries)
    [spoken] = render_lines(Synthesizer(model, Engine("graph")), [Line(TEXT, voice)], options)
    assert (spoken.report.ended, spoken.report.takes) == (ended, count)
    note = "Wrong words: did not say 'the bridge'."
    assert (note in spoken.report.notes) == (ended == lines.WORDS)


class Faulty:
    """A guard of words that finds a fault in the fifth frame."""

    def __init__(self) -> None:
        self.frames = 0

    def take(self, token: int, weight: float) -> WordFault | None:
        self.frames += 1
        return WordFault("skipped", 0, 1) if self.frames == 5 else None


@pytest.mark.parametrize("wrong_words", ["end", "retry"])
@pytest.mark.parametrize("engine", ["eager", "graph"])
def test_a_stream_ends_where_its_words_go_wrong(model, voice, monkeypatch, engine, wrong_words) -> None:
    monkeypatch.setattr(utterance, "follow_words", lambda *_: Faulty())
    options = replace(OPTIONS, wrong_words=wrong_words, guard=False)
    with stream_line(Synthesizer(model, Engine(engine)), Line(TEXT, voice, seed=2), options) as stream:
        heard = sum(len(chunk.codes) for chunk in stream)
        if wrong_words == "end":
            assert (heard, stream.spoken[0].report.ended) == (5, lines.WORDS)
        else:
            assert heard > 5


def test_a_checkpoint_that_does_not_follow_its_text_refuses(load, voice) -> None:
    synthesizer = Synthesizer(load("tiny", "base"), Engine("graph"))
    with pytest.raises(ValueError, match=r"wrong_words is retry: .* attention head .*wrong_words ignore"):
        render_lines(synthesizer, [Line(TEXT, voice)], OPTIONS)
    with pytest.raises(ValueError, match="attention head"):
        stream_line(synthesizer, Line(TEXT, voice), OPTIONS)
