"""Lines that are heard while they are made: the chunks of a stream joined, its readers, its end, and its report."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.batch import speech
from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.batch.codec.pacing import Speed
from qwen3_tts_morph.morph.batch.speech import QUEUED_FRAMES, Chunk, Speech
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.decode.guard import Guard
from qwen3_tts_morph.morph.engine import Engine
from qwen3_tts_morph.morph.model.tail import Tail
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling
from qwen3_tts_morph.morph.runtime.kept_threads import KEPT
from qwen3_tts_morph.morph.speech import pieces
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice, preset_voice
from qwen3_tts_morph.morph.waveform.incremental import RowStream

from lab import streams as stream_module
from lab.streams import SpeechStream, render_lines, stream_line, stream_lines
from tests.morph.codec_lines import FLOAT32_DB, FRAME, note_references, signal_to_noise
from tests.morph.model.test_tail import ABOUT, random_parts
from tests.patience import PATIENCE, wait_until

SHORT = Sampling(max_new_tokens=17)  # at most 16 frames
THREE = "This is the first sentence of them. And this is the second sentence. The third comes last."
TEXTS = ["One.", "A much longer line than the first one is.", "Three, four."]
ENGINES = ["eager", "graph"]  # on a CPU with upstream's codec and with the codec of many lines


@pytest.fixture
def model(load):
    return load("tiny", "custom_voice")


# By default on the graph engine alone, but for what each engine makes: a line alone, lines together, an ICL voice,
# every way of decoding. That readers, rows and pauses do not depend on the engine is shown with --all.
@pytest.fixture(params=[pytest.param("eager", marks=pytest.mark.slow), "graph"])
def synthesizer(model, request):
    return Synthesizer(model, Engine(request.param))


@pytest.fixture
def voice(model):
    return preset_voice(model, "ryan")


def of_line(chunks: Iterable[Chunk], line: int = 0) -> tuple[torch.Tensor, np.ndarray]:
    """A line's codes and samples, after checks of how its chunks follow each other."""
    own = [chunk for chunk in chunks if chunk.line == line]
    starts = np.cumsum([0, *(len(chunk.samples) for chunk in own)])
    assert [chunk.start for chunk in own] == starts[:-1].tolist()
    assert [chunk.last for chunk in own] == [False] * (len(own) - 1) + [True]
    assert all(chunk.samples.dtype == np.float32 and chunk.codes.shape[1:] == (16,) for chunk in own)
    return torch.cat([chunk.codes for chunk in own]), np.concatenate([chunk.samples for chunk in own])


class Noted(Batch):
    """The batch of a stream, and its lines."""

    speeches: Sequence[Speech] = ()

    def take(self, *speeches: Speech) -> None:
        self.speeches = speeches
        super().take(*speeches)


@pytest.fixture
def batches(monkeypatch) -> list[Noted]:
    """The batches of streams."""
    made: list[Noted] = []
    monkeypatch.setattr(
        stream_module, "Batch", lambda *given, **more: (made.append(Noted(*given, **more)), made[-1])[1]
    )
    return made


def test_a_reader_who_has_enough_at_the_end_of_a_piece_hears_the_line(
    model, voice, monkeypatch, batches
) -> None:
    """Codes of one piece wait then, while the next piece is begun: the codec's state is that of the first."""
    original = pieces.build_piece
    monkeypatch.setattr(
        pieces, "build_piece", lambda *arguments: replace(original(*arguments), min_frames=1000)
    )
    monkeypatch.setattr(speech, "QUEUED_FRAMES", 16)  # those of the first piece
    synthesizer = Synthesizer(model, Engine("graph"))
    options = GenerateOptions(5, SHORT, split_chars=40, retries=0, batch_size=1, chunk_frames=(1,))
    line = Line(f"{THREE} {THREE}", voice, seed=3)
    whole = render_lines(synthesizer, [line], options)
    with stream_line(synthesizer, line, options) as stream:
        wait_until(lambda: batches[-1].status.parked == 1)
        chunks = list(stream)
        check_equal(chunks, stream, whole)
    assert whole[0].report.pieces > 3


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


@pytest.mark.parametrize("synthesizer", ENGINES, indirect=True)
@pytest.mark.parametrize("seq_groups", [1, 5, 15])
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


def test_more_lines_than_rows_come_in_the_order_given(synthesizer, voice) -> None:
    options = GenerateOptions(5, SHORT, batch_size=1, retries=0)
    lines = [Line(text, voice, seed=number) for number, text in enumerate(TEXTS)]
    stream = stream_lines(synthesizer, lines, options)
    chunks = list(stream)
    assert [chunk.line for chunk in chunks] == sorted(chunk.line for chunk in chunks)
    check_equal(chunks, stream, render_lines(synthesizer, lines, options))


def test_rows_take_the_next_lines(synthesizer, voice) -> None:
    """Lines begin and end at other frames than the line beside them, and their pieces too."""
    options = GenerateOptions(5, SHORT, batch_size=2, split_chars=40, retries=0)
    lines = [Line(text, voice, seed=number) for number, text in enumerate([THREE, *TEXTS])]
    stream = stream_lines(synthesizer, lines, options)
    chunks = list(stream)
    check_equal(chunks, stream, render_lines(synthesizer, lines, options))


PAUSED = (
    "[pause 0.1] One is here. [pause 0.25] And this is the second sentence. The third comes last. [pause 0.5]"
)


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


@pytest.mark.parametrize("crossfade_ms", [0.0, 60.0])
def test_pauses_are_zeros_between_pieces_as_in_a_rendering(synthesizer, voice, crossfade_ms) -> None:
    options = GenerateOptions(sampling=SHORT, split_chars=40, crossfade_ms=crossfade_ms, retries=0)
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
    monkeypatch.setattr(Speed, "keeps_up", lambda *_: False)  # no hurry on a busy machine
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


@pytest.mark.parametrize("kind", ["tail", "int8"])
@pytest.mark.parametrize("engine", ENGINES)
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


def test_without_retries_a_line_stays_as_it_was_heard(synthesizer, voice) -> None:
    sampling = Sampling(max_new_tokens=4)
    stream = stream_line(
        synthesizer, Line("Hello.", voice), GenerateOptions(1, sampling, guard=False, retries=0)
    )
    chunks = list(stream)
    report = stream.spoken[0].report
    assert report.takes == 1 and report.ended in ("cap", "early", "silent")
    assert len(of_line(chunks)[0]) == report.frames == 3


class Looping(Guard):
    def _loops(self, code: int) -> bool:
        return self.frames == 20


def test_a_loop_ends_the_stream_where_it_ends_the_line(synthesizer, long_line, monkeypatch) -> None:
    monkeypatch.setattr(pieces, "guard_line", lambda *_: Looping(100))
    stream = stream_line(synthesizer, long_line, ENDLESS)
    chunks = list(stream)
    whole = render_lines(synthesizer, [long_line], ENDLESS)
    assert (whole[0].report.ended, whole[0].report.frames) == ("loop", 20)
    check_equal(chunks, stream, whole)


# Readers


def speech_threads() -> set[threading.Thread]:
    """The pack's own: the process has others, which come and go."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("speech")}


def wait_until_free(synthesizer: Synthesizer) -> None:
    """Wait until no worker is busy and another thread can have the model at once."""
    wait_until(lambda: not synthesizer.engine.threads.working)
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
    original = pieces.build_piece
    monkeypatch.setattr(
        pieces, "build_piece", lambda *arguments: replace(original(*arguments), min_frames=10_000)
    )
    return Line("A line that takes a while.", voice, seed=11)


@pytest.mark.parametrize("count", [0, pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_reader_may_leave_at_any_chunk(synthesizer, long_line, count, batches) -> None:
    stream = stream_line(synthesizer, long_line, ENDLESS)
    for _ in range(count):
        next(stream)
    stream.close()
    at_close = batches[-1].status.frames
    assert list(stream) == []
    wait_until_free(synthesizer)
    assert batches[-1].status.frames == at_close
    with pytest.raises(RuntimeError, match="closed before its end"):
        _ = stream.spoken
    rendered = render_lines(synthesizer, [long_line], ENDLESS)
    again = stream_line(synthesizer, long_line, ENDLESS)
    check_equal(list(again), again, rendered)


def test_a_reader_may_leave_at_the_last_chunk(synthesizer, long_line) -> None:
    stream = stream_line(synthesizer, long_line, GenerateOptions(1, SHORT, retries=0))
    while not next(stream).last:
        pass
    stream.close()
    wait_until_free(synthesizer)


def test_a_stream_that_nobody_holds_is_closed(synthesizer, long_line) -> None:
    for chunk in stream_line(synthesizer, long_line, ENDLESS):
        assert not chunk.last
        break
    gc.collect()
    wait_until_free(synthesizer)


def test_an_error_of_the_reader_closes_the_stream(synthesizer, long_line) -> None:
    with pytest.raises(KeyError), stream_line(synthesizer, long_line, ENDLESS) as stream:
        next(stream)
        raise KeyError
    wait_until_free(synthesizer)


def test_a_stream_can_be_closed_while_another_thread_reads_it(synthesizer, long_line) -> None:
    for_minutes = replace(ENDLESS, sampling=Sampling(max_new_tokens=4001))
    stream, read = stream_line(synthesizer, long_line, for_minutes), []
    reader = threading.Thread(target=lambda: read.extend(stream))
    reader.start()
    while not read:
        assert reader.is_alive()
        time.sleep(0.001)
    stream.close()
    reader.join(PATIENCE)
    assert not reader.is_alive() and not read[-1].last


def test_a_stream_that_waits_for_the_model_can_be_closed(synthesizer, long_line) -> None:
    with synthesizer.session():  # a close that waited for the model would wait for ever
        stream_line(synthesizer, long_line, ENDLESS).close()
    wait_until_free(synthesizer)


def test_a_stream_that_was_closed_before_it_had_the_model_computes_nothing(
    synthesizer, long_line, monkeypatch
) -> None:
    """Its thread is not waited for. One that is in torch when the program ends would abort the program."""
    begun, session = [], Synthesizer.session
    monkeypatch.setattr(Synthesizer, "session", lambda self: begun.append(self) or session(self))
    with synthesizer.model.exclusive():
        stream_line(synthesizer, long_line, ENDLESS).close()
    wait_until(lambda: not synthesizer.engine.threads.working)
    assert begun == []


def test_many_leavers_leave_nothing_behind(model, long_line) -> None:
    synthesizer = Synthesizer(model, Engine("graph"))
    before, noise = speech_threads(), np.random.default_rng(0)
    for _ in range(20):
        with stream_lines(synthesizer, [long_line] * 2, ENDLESS) as stream:
            for _ in range(noise.integers(0, 6)):
                next(stream)
    wait_until_free(synthesizer)
    assert len(speech_threads() - before) <= KEPT
    del synthesizer, stream
    gc.collect()
    wait_until(lambda: not speech_threads() - before)


def test_codes_wait_while_a_reader_does_not_read(synthesizer, long_line, batches) -> None:
    """Beyond the bound nothing is decoded until a chunk is taken, or no frame is left to make."""
    options = GenerateOptions(1, LONG, guard=False, retries=0, chunk_frames=(10,))
    stream = stream_line(synthesizer, long_line, options)
    wait_until(lambda: batches[-1].status.frames >= 150)
    assert batches[-1].speeches[0].queued == QUEUED_FRAMES
    first = next(stream)
    chunks = list(stream)
    assert stream.spoken[0].report.frames == sum(len(chunk.codes) for chunk in [first, *chunks])


# Errors


def test_lines_that_cannot_be_spoken_are_refused_at_once(synthesizer, voice) -> None:
    before = speech_threads()
    for bad, sentence in [("", "text is empty"), ("...", "no letter and no digit")]:
        with pytest.raises(ValueError, match=sentence):
            stream_line(synthesizer, Line(bad, voice))
    with pytest.raises(ValueError, match="no line to speak"):
        stream_lines(synthesizer, [])
    assert speech_threads() <= before


def test_what_is_found_later_is_raised_to_the_reader(synthesizer, voice) -> None:
    stream = stream_line(synthesizer, Line("word " * 9000, voice), GenerateOptions(split_chars=0))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"positions and .* has"):
            next(stream)
    assert stream.spoken[0].report.ended == "failed" and not len(stream.spoken[0].waveform)
    wait_until_free(synthesizer)


def test_the_progress_ends_with_all_frames(synthesizer, long_line, monkeypatch) -> None:
    monkeypatch.setattr("lab.streams.SHOWN_EVERY_S", 60.0)
    done: list[int] = []
    options = GenerateOptions(sampling=SHORT, retries=0)
    stream = stream_line(synthesizer, long_line, options, lambda frames, _: done.append(frames))
    list(stream)
    assert done == sorted(done) and done[-1] == stream.spoken[0].report.frames


def test_what_on_frame_raises_comes_after_the_chunks_before_it(synthesizer, long_line) -> None:
    def cancel(done: int, _: int) -> None:
        if done >= 20:
            raise InterruptedError("cancelled")

    stream, chunks = stream_line(synthesizer, long_line, ENDLESS, cancel), []
    with pytest.raises(InterruptedError, match="cancelled"):
        for chunk in stream:
            chunks.append(chunk)
    assert chunks and not chunks[-1].last
    wait_until_free(synthesizer)


def test_samples_that_are_not_finite_are_an_error(synthesizer, long_line, monkeypatch) -> None:
    original = synthesizer.engine.open_codec

    def poisoned(*arguments):
        codec = original(*arguments)
        launch = codec.launch

        def spoil(codes):
            waves = launch(codes).wait()
            spoiled = {line: wave * np.nan for line, wave in waves.items()}
            return SimpleNamespace(is_ready=True, seconds=None, wait=lambda: spoiled)

        codec.launch = spoil
        return codec

    monkeypatch.setattr(synthesizer.engine, "open_codec", poisoned)
    with pytest.raises(ValueError, match="not finite"):
        next(stream_line(synthesizer, long_line, ENDLESS))


def test_the_report_is_not_there_before_the_end(synthesizer, long_line) -> None:
    with stream_line(synthesizer, long_line, ENDLESS) as stream:
        next(stream)
        with pytest.raises(RuntimeError, match="has not ended"):
            _ = stream.spoken


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
