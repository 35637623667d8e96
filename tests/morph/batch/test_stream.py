"""Lines that are heard while they are made: the chunks of a stream joined, its readers, its end, and its report."""

import gc
import math
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.batch.codec.pacing import Speed
from qwen3_tts_morph.morph.batch.speech import Chunk
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.model.tail import Tail
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling
from qwen3_tts_morph.morph.speech import pieces
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.synthesizer import Engine, Synthesizer
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice, preset_voice
from qwen3_tts_morph.morph.waveform.incremental import RowStream

from lab.streams import SpeechStream, render_lines, stream_line, stream_lines
from tests.morph.codec_lines import FLOAT32_DB, FRAME, note_references, signal_to_noise
from tests.morph.endless import pin_ends
from tests.morph.model.test_tail import ABOUT, random_parts
from tests.morph.pairwise import each_value
from tests.patience import PATIENCE

SHORT = Sampling(max_new_tokens=17)  # at most 16 frames
THREE = "This is the first sentence of them. And this is the second sentence. The third comes last."
TEXTS = ["One.", "A much longer line than the first one is.", "Three, four."]
ENGINES = ["eager", "graph"]  # on a CPU with upstream's codec and with the codec of many lines


# By default on the graph engine alone, but for what each engine makes: a line alone, lines together, an ICL voice,
# every way of decoding. That readers, rows and pauses do not depend on the engine is shown with --all.
@pytest.fixture(params=[pytest.param("eager", marks=pytest.mark.slow), "graph"])
def synthesizer(model, request):
    return Synthesizer(model, Engine(request.param))


def of_line(chunks: Iterable[Chunk], line: int = 0) -> tuple[torch.Tensor, np.ndarray]:
    """A line's codes and samples, after checks of how its chunks follow each other."""
    own = [chunk for chunk in chunks if chunk.line == line]
    starts = np.cumsum([0, *(len(chunk.samples) for chunk in own)])
    assert [chunk.start for chunk in own] == starts[:-1].tolist()
    assert [chunk.last for chunk in own] == [False] * (len(own) - 1) + [True]
    assert all(chunk.samples.dtype == np.float32 and chunk.codes.shape[1:] == (16,) for chunk in own)
    return torch.cat([chunk.codes for chunk in own]), np.concatenate([chunk.samples for chunk in own])


def check_equal(chunks: list[Chunk], stream: SpeechStream, whole: list) -> None:
    """The joined chunks are what the stream reports, and what rendering the lines gives."""
    for line, (streamed, rendered) in enumerate(zip(stream.spoken, whole, strict=True)):
        codes, samples = of_line(chunks, line)
        assert streamed.waveform.tobytes() == samples.tobytes()
        assert streamed.report == rendered.report and streamed.spans == rendered.spans
        assert (streamed.engine, streamed.sample_rate) == (rendered.engine, rendered.sample_rate)
        assert len(codes) == rendered.report.frames and codes.dtype == torch.int64
        assert len(samples) == len(rendered.waveform)
        assert signal_to_noise(rendered.waveform, samples) > FLOAT32_DB


def codes_of(monkeypatch) -> list:
    """Note the codes of every piece that is judged."""
    judged, original = [], pieces.judge_end

    def judge(text, decoded, *arguments):
        judged.append(decoded)
        return original(text, decoded, *arguments)

    monkeypatch.setattr(pieces, "judge_end", judge)
    return judged


@pytest.mark.parametrize(
    ("synthesizer", "seq_groups"),
    each_value({engine: engine for engine in ENGINES}, {str(groups): groups for groups in (1, 5, 15)}),
    indirect=["synthesizer"],
)
def test_a_line_equals_the_line_rendered(synthesizer, voice, monkeypatch, seq_groups) -> None:
    calls = codes_of(monkeypatch)
    options = GenerateOptions(seq_groups, SHORT, retries=0)
    line = Line("Hello there.", voice, seed=3)
    whole = render_lines(synthesizer, [line], options)
    stream = stream_line(synthesizer, line, options)
    chunks = list(stream)
    check_equal(chunks, stream, whole)
    [rendered, streamed] = calls
    assert torch.equal(rendered.codes, streamed.codes) and rendered.ended == streamed.ended
    assert torch.equal(of_line(chunks)[0], streamed.codes)
    assert list(stream) == [], "an iterator that has ended stays so"


@pytest.mark.parametrize("synthesizer", ENGINES, indirect=True)
def test_lines_decoded_together_equal_the_lines_rendered_together(synthesizer, voice) -> None:
    options = GenerateOptions(5, SHORT, batch_size=3, retries=0)
    lines = [Line(text, voice, seed=number, name=f"N{number}") for number, text in enumerate(TEXTS)]
    with stream_lines(synthesizer, lines, options) as stream:
        chunks = list(stream)
        check_equal(chunks, stream, render_lines(synthesizer, lines, options))
    assert {chunk.line for chunk in chunks[:3]} == {0, 1, 2}, "they are made side by side"


def test_rows_take_the_next_lines(synthesizer, voice) -> None:
    """Lines begin and end at other frames than the line beside them, and their pieces too."""
    options = GenerateOptions(5, SHORT, batch_size=2, split_chars=40, retries=0)
    lines = [Line(text, voice, seed=number) for number, text in enumerate([THREE, *TEXTS])]
    stream = stream_lines(synthesizer, lines, options)
    chunks = list(stream)
    check_equal(chunks, stream, render_lines(synthesizer, lines, options))


PAUSED = "[pause 0.1] One is here. [pause 0.25] And this is the second sentence. The third comes last. [pause 0.5]"


def test_trimmed_ends_are_trimmed_while_they_are_heard(synthesizer, voice) -> None:
    """What a stream gives out is what it reports; a random model's lines are loud from their first sample."""
    options = GenerateOptions(sampling=SHORT, split_chars=40, retries=0, trim_ends=True)
    lines = [Line(PAUSED, voice, seed=2), Line("One.", voice, seed=9)]
    with stream_lines(synthesizer, lines, options) as stream:
        chunks = list(stream)
    whole = render_lines(synthesizer, lines, replace(options, trim_ends=False))
    for index, (line, plain) in enumerate(zip(stream.spoken, whole, strict=True)):
        assert of_line(chunks, index)[1].tobytes() == line.waveform.tobytes()
        assert 0 < len(line.waveform) <= len(plain.waveform)


def test_pauses_are_zeros_between_pieces_as_in_a_rendering(synthesizer, voice) -> None:
    options = GenerateOptions(sampling=SHORT, split_chars=40, retries=0)
    lines = [Line(PAUSED, voice, seed=2), Line("One [pause 0.02] two.", voice, seed=9)]
    with stream_lines(synthesizer, lines, options) as stream:
        chunks = list(stream)
        check_equal(chunks, stream, render_lines(synthesizer, lines, options))
    _, samples = of_line(chunks)
    assert not samples[:2400].any() and samples[2400:4800].any() and not samples[-12000:].any()


def test_pieces_as_short_as_a_frame(synthesizer, voice) -> None:
    """A piece is shorter than two fades: a fade takes half of it."""
    sampling = Sampling(max_new_tokens=2)
    options = GenerateOptions(5, sampling, split_chars=40, retries=0, batch_size=1)
    stream = stream_line(synthesizer, Line(THREE, voice), options)
    chunks = list(stream)
    check_equal(chunks, stream, render_lines(synthesizer, [Line(THREE, voice)], options))
    report = stream.spoken[0].report
    assert (report.frames, report.ended) == (3, "cap")
    assert len(of_line(chunks)[1]) == 3 * FRAME - 2 * (FRAME // 2)


@pytest.mark.parametrize("sizes", [(1,), (3, 7), (300,)], ids=str)
def test_chunks_have_the_sizes_asked_for(synthesizer, voice, sizes, monkeypatch) -> None:
    monkeypatch.setattr(Speed, "late_s", lambda *_: -math.inf)  # no hurry on a busy machine
    options = GenerateOptions(1, SHORT, chunk_frames=sizes, retries=0)
    stream = stream_line(synthesizer, Line("Hello there.", voice, seed=3), options)
    made = [len(chunk.codes) for chunk in stream if len(chunk.codes)]
    left = stream.spoken[0].report.frames
    asked = [*sizes, *[sizes[-1]] * left]
    assert made == [
        min(size, left - sum(asked[:index])) for index, size in enumerate(asked) if sum(asked[:index]) < left
    ]


@pytest.mark.parametrize("engine", ENGINES)
def test_an_icl_voice(load, recording, engine, monkeypatch) -> None:
    begun = note_references(monkeypatch)
    model = load("tiny", "base")
    voice = clone_voice(model, recording, 24000, CloneOptions("icl", transcript="a tone"))
    synthesizer = Synthesizer(model, Engine(engine))
    options = GenerateOptions(5, SHORT, retries=0)
    lines = [Line("Hello.", voice, seed=seed) for seed in (1, 2)]
    whole = render_lines(synthesizer, lines, options)
    for _ in range(2):
        stream = stream_lines(synthesizer, lines, options)
        check_equal(list(stream), stream, whole)
    assert all(len(one.waveform) == one.report.frames * FRAME for one in whole)
    assert len(begun) == 1, "the voice's reference is decoded once"


@pytest.mark.parametrize(
    ("engine", "kind"), each_value({one: one for one in ENGINES}, {one: one for one in ("tail", "int8")})
)
def test_every_way_of_decoding_streams(checkpoint, engine, kind) -> None:
    weights = "int8" if kind == "int8" else "full"
    model = load_model(checkpoint("tiny", "custom_voice"), LoadOptions("fp32", "sdpa", weights=weights))
    if kind == "tail":
        model.add_tails({5: random_tail(model)})
    synthesizer = Synthesizer(model, Engine(engine))
    options = GenerateOptions(5, SHORT, retries=0)
    line = Line("Hello there.", preset_voice(model, "ryan"), seed=3)
    stream = stream_line(synthesizer, line, options)
    check_equal(list(stream), stream, render_lines(synthesizer, [line], options))


def random_tail(model) -> Tail:
    heads = torch.stack([head.weight for head in model.talker.code_predictor.lm_head])
    return Tail(5, random_parts(5), ABOUT, heads)


# Readers


def wait_until_free(synthesizer: Synthesizer) -> None:
    """Wait until another thread can have the model at once."""
    taken = threading.Event()

    def take() -> None:
        with synthesizer.session():
            taken.set()

    threading.Thread(target=take).start()
    assert taken.wait(PATIENCE), "the session is held"


LONG = Sampling(max_new_tokens=201)  # 200 frames
ENDLESS = GenerateOptions(1, LONG, guard=False, retries=0)


@pytest.fixture
def long_line(voice, monkeypatch) -> Line:
    """A line that takes all the frames it may have."""
    pin_ends(monkeypatch, 10_000, "")
    return Line("A line that takes a while.", voice, seed=11)


# On a GPU


@pytest.fixture
def on_cuda(load, recording):
    """A model on the GPU, and an ICL voice of it; cuDNN's default, TF32, is some 40 dB from float32."""
    model = load("tiny", "base")
    voice = clone_voice(model, recording, 24000, CloneOptions("icl", transcript="a tone"))
    model.module.to("cuda")
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield model, voice
    model.module.to("cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("engine", ENGINES)
def test_on_a_gpu_a_stream_equals_the_lines_rendered(on_cuda, engine) -> None:
    model, voice = on_cuda
    synthesizer = Synthesizer(model, Engine(engine))
    options = GenerateOptions(5, SHORT, batch_size=3, retries=0)
    lines = [Line(text, voice, seed=number) for number, text in enumerate(TEXTS)]
    whole = render_lines(synthesizer, lines, options)
    waves = []
    for _ in range(4):  # steps run directly, are captured, and are replayed
        stream = stream_lines(synthesizer, lines, options)
        check_equal(list(stream), stream, whole)
        waves.append([one.waveform for one in stream.spoken])
    synthesizer.free()
    for line in zip(*waves, strict=True):
        assert engine == "eager" or all(np.array_equal(line[0], one) for one in line[1:])


@pytest.mark.gpu
def test_on_a_gpu_leavers_leave_no_memory_behind(on_cuda) -> None:
    model, voice = on_cuda
    synthesizer = Synthesizer(model, Engine("graph"))
    lines = [Line("A line that takes a while.", voice, seed=seed) for seed in (11, 12)]

    def leave_after(chunks: int) -> int:
        with stream_lines(synthesizer, lines, ENDLESS) as stream:
            for _ in islice(stream, chunks):
                pass
        wait_until_free(synthesizer)
        gc.collect()
        return torch.cuda.memory_allocated()

    # A step is captured when it runs for the second time, and each kind of leaver has steps of its own.
    used = [leave_after(chunks) for _ in range(6) for chunks in (40, 1)]
    assert max(leave_after(chunks) for _ in range(20) for chunks in (40, 1)) <= max(used)
    synthesizer.free()


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["native", "cudaMallocAsync"])
def test_on_a_gpu_streams_run_with_both_allocators(backend: str) -> None:
    """In a process of its own: the allocator of a process is chosen once."""
    here, root = Path(__file__), Path(__file__).parents[3]
    files = [here, root / "tests/morph/waveform/test_incremental.py"]
    chosen = "equals_the_lines_rendered or captured_row"
    command = [sys.executable, "-m", "pytest", "--all", "-m", "gpu", "-k", chosen, *map(str, files)]
    setting = f"backend:{backend}"  # torch 2.9 and later read the first, all versions the second
    env = os.environ | {"PYTORCH_ALLOC_CONF": setting, "PYTORCH_CUDA_ALLOC_CONF": setting}
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout


@pytest.mark.parametrize(("sizes", "begun"), [((1, 4), 1), ((2, 4), 0)])
def test_the_first_chunk_is_begun_behind_its_codes(model, long_line, monkeypatch, sizes, begun) -> None:
    """If it is one frame: then it does not wait for the host."""
    calls, begin_ahead = [], RowStream.begin_ahead

    def note(row: RowStream, line: int, codes: torch.Tensor) -> bool:
        calls.append(begin_ahead(row, line, codes))
        return calls[-1]

    monkeypatch.setattr(RowStream, "begin_ahead", note)
    synthesizer = Synthesizer(model, Engine("graph"))
    options = GenerateOptions(1, Sampling(max_new_tokens=20), guard=False, retries=0, chunk_frames=sizes)
    stream = stream_line(synthesizer, long_line, options)
    check_equal(list(stream), stream, render_lines(synthesizer, [long_line], options))
    assert calls == [True] * begun
