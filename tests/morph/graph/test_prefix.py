"""Single lines whose voice's prefix is kept as keys and values: the same codes, kept or not."""

from dataclasses import replace

import pytest
import torch
from qwen3_tts_morph.morph.decode.loop import Decoding
from qwen3_tts_morph.morph.graph import engine as graph
from qwen3_tts_morph.morph.graph.backend import FrameBackend
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.synthesizer import Engine
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice, preset_voice
from qwen3_tts_morph.morph.voice.prompt import PromptBuilder, SharedParts

from tests.morph.decoding import GREEDY, TEXTS, GraphDecoder, assert_equal, eager_lines, line_requests
from tests.morph.recorded import Recordings

SEED = [2**64 - 1]


@pytest.fixture
def model(load):
    return load("tiny", "base")


@pytest.fixture
def voices(model, recording):
    return [clone_voice(model, part, 24000, CloneOptions("x_vector")) for part in (recording, -recording[::-1])]


def decode(decoder: GraphDecoder, model, prompt, sampling=GREEDY, seq_groups: int = 5):
    return decoder.decode(model, line_requests([prompt], seeds=SEED), GenerateOptions(seq_groups, sampling))


SAMPLED, GREEDILY = ("tiny", 15, Sampling()), ("tiny-1.7B", 5, GREEDY)


@pytest.mark.parametrize(
    ("shape", "seq_groups", "sampling", "recorded"),
    [
        pytest.param(*SAMPLED, False, id="sampled, plain"),
        pytest.param(*GREEDILY, True, id="greedy, recorded"),
        pytest.param(*SAMPLED, True, id="sampled, recorded", marks=pytest.mark.slow),
        pytest.param(*GREEDILY, False, id="greedy, plain", marks=pytest.mark.slow),
    ],
)
def test_codes_equal_the_eager_engines(load, recording, monkeypatch, shape, seq_groups, sampling, recorded):
    model = load(shape, "base")
    voice = clone_voice(model, recording, 24000, CloneOptions("x_vector"))
    builder = PromptBuilder(model)
    if recorded:
        monkeypatch.setattr(graph, "CapturedGraphs", Recordings)
    decoder, runs, run = GraphDecoder(1), [], FrameBackend.prefill_prefix
    monkeypatch.setattr(FrameBackend, "prefill_prefix", lambda frames, *given: (runs.append(1), run(frames, *given))[1])
    for text in TEXTS:  # the step that begins a line runs directly, is recorded, and is replayed
        prompt = builder.build(text, voice)
        [wanted] = eager_lines(model, [prompt], seq_groups, sampling, SEED, monkeypatch)
        assert len(wanted.codes) > 1
        assert_equal(decode(decoder, model, prompt, sampling, seq_groups), [wanted])
    assert len(runs) == 1, "a voice's prefix is kept"


@pytest.mark.parametrize("seq_groups, rows", [(15, 1), pytest.param(5, 1, marks=pytest.mark.slow), (5, 3)])
def test_a_line_that_is_heard_gets_its_first_codes_before_the_talkers_step(
    model, voices, monkeypatch, seq_groups, rows
):
    """Its first frame is made in two parts once whole frames have been captured; the codes are the same."""
    monkeypatch.setattr(graph, "CapturedGraphs", Recordings)
    builder, decoder = PromptBuilder(model), GraphDecoder(rows)
    steps: list[str] = []
    for name in ("predict", "advance", "decode"):
        make = getattr(FrameBackend, name)
        monkeypatch.setattr(
            FrameBackend, name, lambda *args, make=make, name=name: (steps.append(name), make(*args))[1]
        )
    launched, step = [], Decoding.step

    def note(decoding: Decoding) -> bool:
        made = step(decoding)
        began = decoding.rows.began
        launched.extend((int(decoding.buffers.counts[row]), codes.tolist()) for row, codes in began)
        return made

    monkeypatch.setattr(Decoding, "step", note)
    for text in [*TEXTS, TEXTS[0]]:
        prompt = builder.build(text, voices[0])
        [wanted] = eager_lines(model, [prompt], seq_groups, Sampling(), SEED, monkeypatch)
        launched.clear()
        [request] = line_requests([prompt], seeds=SEED)
        request = replace(request, is_streamed=True)
        assert_equal(decoder.decode(model, [request], GenerateOptions(seq_groups, Sampling())), [wanted])
        assert launched == [(0, wanted.codes[0].tolist())], "once, before the first codes are read"
    # The first line's frames run directly and are captured; then come the parts, each directly and captured.
    assert steps == ["decode", "decode", "predict", "advance", "predict", "advance"]


# What prompts have in common


def test_lines_of_a_voice_begin_with_one_prefix(model, voices):
    builder = PromptBuilder(model)
    first, again = (builder.build(text, voices[0]) for text in TEXTS[:2])
    other, language = builder.build(TEXTS[0], voices[1]), builder.build(TEXTS[0], voices[0], "english")
    assert first.prefix is again.prefix is not None
    assert first.prefix is not other.prefix is not language.prefix is not first.prefix
    assert torch.equal(first.embeds[:-1], first.prefix.embeds)


def test_prompts_of_an_engine_are_the_same_to_the_bit_and_share_what_they_have_in_common(model, voices):
    engine = Engine()
    for voice in voices * 2:
        made = engine.prompt_builder(model).build(TEXTS[2], voice, "german")
        alone = PromptBuilder(model).build(TEXTS[2], voice, "german")
        assert torch.equal(made.embeds, alone.embeds) and torch.equal(made.text_rows, alone.text_rows)
    prefix = engine.prompt_builder(model).build(TEXTS[0], voices[0]).prefix
    assert engine.prompt_builder(model).build(TEXTS[1], voices[0]).prefix is prefix
    engine.free()
    assert engine.prompt_builder(model).build(TEXTS[1], voices[0]).prefix is not prefix


def test_parts_of_another_model_or_place_are_released(load):
    shared, first, second = SharedParts(size=128), load("tiny", "base"), load("tiny", "custom_voice")
    PromptBuilder(second, shared).build(TEXTS[0], preset_voice(second, "ryan"))
    assert len(shared) > 0
    PromptBuilder(second, shared)
    assert len(shared) > 0
    PromptBuilder(first, shared)
    assert len(shared) == 0


def test_no_more_parts_are_kept_than_allowed(load):
    model = load("tiny", "custom_voice")
    shared = SharedParts(size=6)
    voices = [preset_voice(model, "ryan") for _ in range(8)]
    for voice in voices:
        PromptBuilder(model, shared).build(TEXTS[0], voice)
        assert len(shared) <= 6
