"""What the engines say of the alignment head, against upstream's talker that returns its attention."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.decode.rows import Decoded
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import GenerateOptions
from qwen3_tts_morph.morph.synthesizer import Engine
from qwen3_tts_morph.morph.voice.prompt import Prompt, embed_frames
from qwen3_tts_morph.morph.words.alignment import NO_TOKEN, Trace
from qwen3_tts_morph.morph.words.head import AlignmentHead

from lab.upstream.over import upstream_of
from tests.morph import decoding
from tests.morph.decoding import CHECKPOINT_OF, GREEDY, SEEDS, guards_of, line_requests, prompts_of
from tests.morph.pairwise import each_value

HEAD = AlignmentHead(1, 3)
ENGINES = ["eager", "graph"]
KINDS = list(CHECKPOINT_OF)


@pytest.fixture
def aligned(load, monkeypatch):
    """``aligned(kind)``: a model for voices of this kind, with an alignment head."""

    def get(kind: str) -> Model:
        model = load("tiny", CHECKPOINT_OF[kind])
        monkeypatch.setattr(model, "alignment", HEAD)
        return model

    return get


def sequence(model: Model, prompt: Prompt, codes: torch.Tensor) -> torch.Tensor:
    """Return the talker's input up to the position that the last frame is sampled from: ``[P + T - 1, H]``."""
    frames = embed_frames(model, codes[:-1], model.code_tables())
    rest = prompt.pad.expand(max(0, len(frames) - len(prompt.trailing)), -1)
    return torch.cat((prompt.embeds, frames + torch.cat((prompt.text_rows, rest))[: len(frames)]))


@torch.inference_mode()
def attentions(model: Model, prompt: Prompt, codes: torch.Tensor) -> Sequence[torch.Tensor]:
    """Return the attention of each layer as upstream computes it: ``[1, heads, P + T - 1, P + T - 1]``."""
    talker = upstream_of(model).talker.model
    talker.config._attn_implementation = "eager"
    inputs = sequence(model, prompt, codes)[None]
    return talker(inputs_embeds=inputs, output_attentions=True, use_cache=False).attentions


def attention(model: Model, prompt: Prompt, codes: torch.Tensor) -> torch.Tensor:
    """Return the head's attention from the position of each frame: ``[T, P + T - 1]``."""
    return attentions(model, prompt, codes)[HEAD.layer][0, HEAD.head, prompt.length - 1 :]


def first_token(model: Model, kind: str, recording, row: int, monkeypatch) -> int:
    """Return the position of a text's first token: where the inputs differ from those of another first letter."""
    texts = [decoding.TEXTS[row], "Z" + decoding.TEXTS[row][1:]]
    monkeypatch.setattr(decoding, "TEXTS", texts)
    one, other = prompts_of(model, kind, range(2), recording)
    monkeypatch.undo()
    codes = torch.zeros(60, 16, dtype=torch.int64)
    differ = (sequence(model, one, codes) != sequence(model, other, codes)).any(1)
    return int(differ.nonzero()[0])


def expected(model: Model, prompt: Prompt, codes: torch.Tensor, first: int) -> Trace:
    """Return upstream's trace of a line whose first text token is at position ``first``."""
    weights = attention(model, prompt, codes)
    ends = [min(first + prompt.text_tokens, prompt.length + frame) for frame in range(len(codes))]
    rows = [row[first:end].numpy() for row, end in zip(weights, ends, strict=True)]
    return Trace(
        np.array([row.argmax() if len(row) else NO_TOKEN for row in rows]),
        np.array([row.max(initial=0.0) for row in rows]),
        np.array([row.sum() for row in rows]),
    )


def check(decoded: Decoded, wanted: Trace) -> None:
    found = decoded.trace
    assert found is not None and len(found.tokens) == len(decoded.codes) == len(wanted.tokens)
    assert found.tokens.tolist() == wanted.tokens.tolist()
    assert np.allclose(found.weights, wanted.weights, atol=1e-5)
    assert np.allclose(found.mass, wanted.mass, atol=1e-5)


def upstreams(load, kind: str) -> Model:
    """The same checkpoint with attention that can be returned."""
    return load("tiny", CHECKPOINT_OF[kind], attention="eager")


@pytest.mark.parametrize(
    ("kind", "engine"), each_value({kind: kind for kind in KINDS}, {engine: engine for engine in ENGINES})
)
def test_the_trace_is_upstreams_attention(load, aligned, recording, engine, kind):
    """Texts of several lengths in one batch with fewer rows: the third line gets the row of one that has ended."""
    theirs = upstreams(load, kind)
    with pytest.MonkeyPatch.context() as patch:
        firsts = [first_token(theirs, kind, recording, row, patch) for row in range(3)]
    model = aligned(kind)
    prompts = prompts_of(model, kind, recording=recording)
    guards = [replace(guard, max_frames=frames) for guard, frames in zip(guards_of(prompts), (30, 5, 24), strict=True)]
    options = GenerateOptions(5, GREEDY, batch_size=2)
    decoded = Engine(engine).decode(model, line_requests(prompts, guards, SEEDS), options)
    wanted = [
        expected(theirs, prompt, one.codes, first)
        for prompt, one, first in zip(prompts_of(theirs, kind, recording=recording), decoded, firsts, strict=True)
    ]
    for one, trace in zip(decoded, wanted, strict=True):
        check(one, trace)
    assert len(set(wanted[0].tokens.tolist())) > 2


@pytest.mark.parametrize("engine", ENGINES)
def test_codes_are_the_same_with_and_without_a_head(load, recording, monkeypatch, engine):
    model = load("tiny", "base")
    prompts = prompts_of(model, "x_vector", recording=recording)
    options = GenerateOptions(5)
    without = Engine(engine).decode(model, line_requests(prompts), options)
    monkeypatch.setattr(model, "alignment", HEAD)
    decoded = Engine(engine).decode(model, line_requests(prompts), options)
    assert all(torch.equal(one.codes, other.codes) for one, other in zip(decoded, without, strict=True))
    assert all(one.trace is None for one in without) and all(one.trace is not None for one in decoded)
    assert not model.talker.model.layers[HEAD.layer]._forward_pre_hooks
