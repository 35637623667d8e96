"""What ``check`` compares: it finds nothing in a good checkpoint, and differences where they are."""

from dataclasses import replace

import pytest
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.synthesizer import Engine, Synthesizer
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice, design_voice, preset_voice

from lab.check import __main__ as check
from lab.check import parity

FRAMES = 6


def make_line(model, kind: str, recording) -> Line:
    if kind == "preset":
        voice = preset_voice(model, "ryan")
    elif kind == "design":
        voice = design_voice(model, "a calm old man")
    else:
        voice = clone_voice(model, recording, 24000, CloneOptions(kind, transcript="a tone"))
    return Line("Hello there.", voice)


@pytest.mark.parametrize(
    ("kind", "shape", "trained_as"),
    [
        ("preset", "tiny", "custom_voice"),
        ("design", "tiny-1.7B", "voice_design"),
        ("x_vector", "tiny", "base"),
        ("icl", "tiny", "base"),
    ],
)
def test_our_codes_equal_upstreams(load, recording, kind, shape, trained_as):
    model = load(shape, trained_as)
    found = parity.compare_with_upstream(Synthesizer(model), make_line(model, kind, recording), FRAMES)
    assert found.same and found.frames >= 2


def test_engines_are_compared_on_their_codes(load, recording):
    model = load("tiny", "custom_voice")
    line = make_line(model, "preset", recording)
    options = GenerateOptions(15, parity.greedy(model, FRAMES))
    assert parity.compare_engines(model, line, options, (Engine("graph"), Engine("eager"))).same
    sampled = GenerateOptions(15, replace(model.sampling, max_new_tokens=FRAMES + 1))
    assert not parity.compare_engines(model, line, sampled, (Engine("graph"), Engine("eager"))).same


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_kernels_and_codec_on_a_gpu(checkpoint, recording, precision):
    """What ``check`` compares where there is a GPU."""
    loaded = Synthesizer.load(checkpoint("tiny", "custom_voice"), LoadOptions(precision), "cuda")
    line = make_line(loaded.model, "preset", recording)
    assert parity.compare_with_upstream(loaded, line, FRAMES).same
    for test in (check.compare_graph, check.compare_kernels, check.compare_codec, check.compare_streams):
        outcome, detail, _ = test(loaded, line, FRAMES)
        assert outcome in ("ok", "differs"), f"{test.__name__}: {detail}"
