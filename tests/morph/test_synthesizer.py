"""The choice of the engine, its report, and both engines through one interface."""

import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.codec.stream import decode_waveform
from qwen3_tts_morph.morph.codec.weights import CodecWeights
from qwen3_tts_morph.morph.graph import backend as fused
from qwen3_tts_morph.morph.graph import engine as graph_engine
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.runtime.capture import CapturedGraphs, Fallback
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.synthesizer import Engine, Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice
from qwen3_tts_morph.morph.waveform.engine import BatchCodec, take_all

from lab.streams import render_lines
from tests.morph.held import note_buffers

SAMPLED = Sampling(max_new_tokens=13)
TEXTS = ["One.", "A much longer line than the first one is.", "Three, four.", "Five.", "And six of them."]


@pytest.fixture
def graph(model):
    """Return the same model with the graph engine."""
    return Synthesizer(model, Engine("graph"))


@pytest.fixture
def eager(model):
    """Return the same model with the eager engine."""
    return Synthesizer(model, Engine("eager"))


def lines_of(model) -> list[Line]:
    voice = preset_voice(model, "ryan")
    return [Line(text, voice, seed=number) for number, text in enumerate(TEXTS)]


ON_CUDA = SimpleNamespace(device=torch.device("cuda"))  # what ``choose`` reads from a model on a GPU


def chosen(engine: Engine, model) -> tuple[str, str]:
    """Return the engine that is chosen, and why."""
    choice = engine.choose(model)
    return choice.engine, choice.why


def described(engine: Engine, model) -> str:
    return engine.describe(model, engine.choose(model))


def waveforms(engine: Engine, model, codes, references, on_chunk=None) -> list[np.ndarray]:
    return take_all(engine.begin_waveforms(model, engine.choose(model), codes, references, on_chunk))


@pytest.fixture(autouse=True)
def no_triton(monkeypatch):
    """As on a GPU without Triton; a machine without a GPU cannot test it otherwise."""
    monkeypatch.setattr(fused, "available", lambda device: "triton is not installed")


def test_auto_is_graph_on_cuda_and_for_small_models_on_a_cpu(model, monkeypatch):
    why = "faster for a small model on a CPU"
    assert chosen(Engine(), model) == ("graph", why)
    said = f"engine: graph ({why}; op by op, without CUDA graphs: no CUDA)"
    assert described(Engine(), model) == said
    with monkeypatch.context() as patch:
        patch.setattr(model, "width", 1024)
        assert chosen(Engine(), model) == ("eager", "no CUDA")
        assert described(Engine(), model) == "engine: eager (no CUDA)"
    assert chosen(Engine(), ON_CUDA) == ("graph", "CUDA")
    assert described(Engine(), ON_CUDA) == (
        "engine: graph (CUDA; CUDA graphs; torch operations: triton is not installed)"
    )
    assert described(Engine(kernels=False), ON_CUDA) == (
        "engine: graph (CUDA; CUDA graphs; torch operations: the Triton kernels are off)"
    )


def test_kernels_are_in_the_report_and_can_be_turned_off(model, monkeypatch):
    monkeypatch.setattr(fused, "available", lambda device: None)
    said = described(Engine(), ON_CUDA)
    assert said == "engine: graph (CUDA; CUDA graphs; Triton kernels)"


def test_a_chosen_engine_runs_anywhere_and_the_report_says_how(model):
    assert described(Engine("eager"), ON_CUDA) == "engine: eager (as chosen)"
    assert chosen(Engine("graph"), model) == ("graph", "as chosen")
    assert described(Engine("graph"), model) == "engine: graph (as chosen; op by op, without CUDA graphs: no CUDA)"


def test_a_capture_that_failed_is_in_the_report(graph, monkeypatch):
    class Refused(CapturedGraphs):
        def __init__(self, *given: object):
            super().__init__(*given)
            self.fallback = Fallback("CUDA graphs", "old driver")

    monkeypatch.setattr(graph_engine, "CapturedGraphs", Refused)
    render_lines(graph, lines_of(graph.model)[:1], GenerateOptions(sampling=SAMPLED))
    said = described(graph.engine, ON_CUDA)
    assert said == (
        "engine: graph (as chosen; op by op, without CUDA graphs: old driver; "
        "torch operations: the Triton kernels run on CUDA devices, not on cpu)"
    )


def test_each_engine_uses_its_own_codec(model, monkeypatch):
    """An ICL line's reference is cut off, a line without frames is empty, and both engines agree up to rounding."""
    torch.manual_seed(0)
    codes = [torch.randint(64, (frames, 16)) for frames in (12, 0, 330)]
    heard = [torch.randint(64, (7, 16)), None, None]
    eager, calls = Engine("eager"), []
    theirs = waveforms(eager, model, codes, heard, lambda: calls.append(1))
    assert len(calls) == 3, "a chunk for the first line, none for the second, two for the last"
    for wave, one, reference in zip(theirs, codes, heard, strict=True):
        assert np.array_equal(wave, decode_waveform(model, one, reference))
    calls.clear()
    graph = Engine("graph")
    ours = waveforms(graph, model, codes, heard, lambda: calls.append(1))
    assert len(calls) == 1, "all lines in one row"
    assert [len(wave) for wave in ours] == [len(wave) for wave in theirs]
    assert all(np.allclose(a, b, atol=3e-4) for a, b in zip(ours, theirs, strict=True))


def test_where_auto_chooses_graph_on_a_cpu_the_original_codec_is_used(model, monkeypatch):
    """There it is faster, and bit-equal to upstream."""
    codes, engine = torch.randint(64, (12, 16)), Engine("auto")
    monkeypatch.setattr(BatchCodec, "begin_waveforms", pytest.fail)
    [wave] = waveforms(engine, model, [codes], [None])
    assert np.array_equal(wave, decode_waveform(model, codes))


def test_a_model_that_leaves_its_device_frees_the_engines_memory(graph, monkeypatch):
    held, weights, look_up = note_buffers(monkeypatch), [], BatchCodec.look_up

    def note(codec: BatchCodec) -> CodecWeights:
        found = look_up(codec)
        weights.append(weakref.ref(found))
        return found

    monkeypatch.setattr(BatchCodec, "look_up", note)
    render_lines(graph, lines_of(graph.model), GenerateOptions(5, SAMPLED, 2))
    assert held and not all(one.is_released for one in held) and weights[-1]() is not None
    graph.engine.free()
    assert all(one.is_released for one in held) and weights[-1]() is None
    render_lines(graph, lines_of(graph.model)[:1], GenerateOptions(5, SAMPLED))


def test_a_thread_that_holds_an_engine_decodes_and_others_wait(model):
    """Also ``free``, which ComfyUI may call during a decoding."""
    engine, freed = Engine("graph"), threading.Event()
    other = threading.Thread(target=lambda: (engine.free(), freed.set()))
    with engine.exclusive():
        other.start()
        waveforms(engine, model, [torch.zeros(2, 16, dtype=torch.int64)], [None])
        assert not freed.is_set()
    other.join(600)
    assert freed.is_set()
