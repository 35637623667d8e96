"""Lines that join a running batch: their short prompts are run with the kernels of one line, and no code changes."""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import cycle

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.decode.loop import Decoding
from qwen3_tts_morph.morph.decode.rows import NOTHING_AHEAD, Ahead, LineRequest, RowPlan
from qwen3_tts_morph.morph.frame.buffers import SHORT_PROMPTS, Buffers
from qwen3_tts_morph.morph.graph import engine as graph
from qwen3_tts_morph.morph.graph.engine import FEW_LINES, FEW_NEWCOMERS, LATE_LAG
from qwen3_tts_morph.morph.graph.rows import Readback
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling
from qwen3_tts_morph.morph.runtime.capture import CapturedGraphs, CaptureStream
from qwen3_tts_morph.morph.voice.create import preset_voice
from qwen3_tts_morph.morph.voice.prompt import PromptBuilder

from tests.morph import decoding
from tests.morph.decoding import (
    FILTERED,
    GREEDY,
    TEXTS,
    GraphDecoder,
    decode_coming,
    graph_lines,
    guards_of,
    line_requests,
    prompts_of,
)
from tests.morph.held import note_buffers
from tests.morph.recorded import AsOnGpu, Recordings, note_graphs, prepare_all

OPTIONS = GenerateOptions(5, Sampling())
GROUP = (5, graph.STOCK)


def decode_joining(
    decoder: GraphDecoder,
    model,
    groups: Sequence[Sequence[LineRequest]],
    options: GenerateOptions = OPTIONS,
    on_frame=lambda _: None,
    ahead: Ahead = NOTHING_AHEAD,
):
    """Decode groups of lines that come one after another: the next one with every second frame."""
    later, frames = list(groups[1:]), 0

    def come(decoding: Decoding) -> Sequence[LineRequest]:
        nonlocal frames
        frames += 1
        return later.pop(0) if later and frames % 2 == 0 else ()

    plan = RowPlan(decoder.batch, decoder.batch, groups[0], True, ahead)
    return decode_coming(decoder.open_rows(model, options, plan), model, groups[0], come, on_frame)


@pytest.fixture
def ran(monkeypatch) -> list[Hashable]:
    """The keys of the functions that decoders have called, recorded or replayed."""
    keys: list[Hashable] = []

    def note(kind: type) -> None:
        run = kind.run
        monkeypatch.setattr(kind, "run", lambda graphs, *given: (keys.append(given[0]), run(graphs, *given))[1])

    note(CapturedGraphs)
    note(Recordings)
    return keys


def count(ran: list[Hashable], step: str) -> int:
    """Return how often a step was made: "enter" for every line that enters its row with a pass of its own."""
    return sum(key[0] == step for key in ran)


def requests_of(prompts, frames: Sequence[int], samplings=(None,)) -> list[LineRequest]:
    guards = [guards_of([prompt], count)[0] for prompt, count in zip(prompts, frames, strict=True)]
    requests = line_requests(prompts, guards, seeds=range(len(prompts)))
    return [replace(one, sampling=own) for one, own in zip(requests, cycle(samplings), strict=False)]


@pytest.mark.parametrize(
    ("kind", "recorded"),
    [
        pytest.param("x_vector", True, id="x_vector, recorded"),
        pytest.param("preset", False, id="preset, plain"),
        pytest.param("x_vector", False, id="x_vector, plain", marks=pytest.mark.slow),
        pytest.param("preset", True, id="preset, recorded", marks=pytest.mark.slow),
    ],
)
def test_lines_that_join_one_by_one_have_the_codes_that_they_have_alone(
    load, recording, monkeypatch, ran, kind, recorded
):
    model = load("tiny", "base" if kind == "x_vector" else "custom_voice")
    prompts = [*prompts_of(model, kind, recording=recording)] * 4
    frames = [
        9,
        14,
        3,
        8,
        12,
        5,
        7,
        300,
        6,
        4,
        9,
        11,
    ]  # one needs a longer cache than there is: it grows meanwhile
    samplings = (Sampling(), FILTERED, GREEDY, FILTERED)
    alone = [
        graph_lines(model, [one.prompt], 5, one.sampling, [one.seed], [one.guard])[0]
        for one in requests_of(prompts, frames, samplings)
    ]
    if recorded:
        monkeypatch.setattr(graph, "CapturedGraphs", Recordings)
    decoder = GraphDecoder(3)
    for _ in range(2):  # the passes are recorded in the first decoding
        requests = requests_of(prompts, frames, samplings)
        made = decode_joining(decoder, model, [[request] for request in requests])
        for ours, theirs in zip(made, alone, strict=True):
            assert ours.ended == theirs.ended and torch.equal(ours.codes, theirs.codes)
    assert count(ran, "enter") == 2 * len(prompts)


@pytest.mark.parametrize("kind", ["x_vector", "preset"])
def test_a_line_that_is_not_finite_leaves_nothing_for_those_that_join_after_it(load, recording, ran, kind):
    """Also for the line whose prompt is run next, before anybody knows."""
    model = load("tiny", "base" if kind == "x_vector" else "custom_voice")
    long, short = prompts_of(model, kind, rows=(2, 1), recording=recording)
    prefix = None if long.prefix is None else replace(long.prefix, embeds=long.prefix.embeds * torch.nan)
    nan = replace(long, inputs=long.embeds * torch.nan, prefix=prefix)
    [alone] = graph_lines(model, [short], 5, Sampling(), [1], guards_of([short]))
    bad = LineRequest(nan, guards_of([nan])[0])
    coming = [[bad, *requests_of([short] * 2, [16] * 2)[1:]], requests_of([short] * 2, [16] * 2)[1:]]
    made = decode_joining(GraphDecoder(2), model, coming)
    assert made[0].ended == "broken" and count(ran, "enter") == 3
    for one in made[1:]:
        assert one.ended == alone.ended and torch.equal(one.codes, alone.codes)


def listened(prompts, frames: Sequence[int]) -> list[list[LineRequest]]:
    """Lines that come one by one, and are streamed."""
    return [[replace(request, is_streamed=True)] for request in requests_of(prompts, frames)]


def test_a_line_that_joins_few_others_is_heard_before_the_talker_s_step(load, monkeypatch, ran):
    model = load("tiny", "custom_voice")
    prompts, frames = [*prompts_of(model)] * 2, [20, 18, 16, 14, 12, 10]
    guards = [one.guard for one in requests_of(prompts, frames)]
    alone = [
        graph_lines(model, [prompt], 5, Sampling(), [seed], [guard])[0]
        for seed, (prompt, guard) in enumerate(zip(prompts, guards, strict=True))
    ]
    monkeypatch.setattr(graph, "CapturedGraphs", Recordings)
    decoder, unwritten = GraphDecoder(6), []
    put, write, read = GraphDecoder.put, Buffers.put_texts, Readback.pop

    def pop(readback: Readback) -> torch.Tensor:
        assert not unwritten, "texts are written while the device makes the codes, not behind them"
        return read(readback)

    monkeypatch.setattr(GraphDecoder, "put", lambda *given: (unwritten.append(1), put(*given))[1])
    monkeypatch.setattr(Buffers, "put_texts", lambda *given: (unwritten.clear(), write(*given))[1])
    monkeypatch.setattr(Readback, "pop", pop)
    for _ in range(3):  # plain, recorded, replayed
        ran.clear()
        made = decode_joining(decoder, model, listened(prompts, frames))
        for ours, theirs in zip(made, alone, strict=True):
            assert ours.ended == theirs.ended and torch.equal(ours.codes, theirs.codes)
    assert count(ran, "codes") == FEW_LINES, "others play when the next ones come"
    ran.clear()
    together = [line for [line] in listened(prompts, frames)]
    made = decode_joining(decoder, model, [together])
    assert all(torch.equal(ours.codes, theirs.codes) for ours, theirs in zip(made, alone, strict=True))
    assert count(ran, "codes") == 1, "of lines that begin together none plays"


@pytest.mark.parametrize("rows", [2, 6])
def test_the_device_is_not_ahead_where_a_line_may_join_few_others(load, monkeypatch, rows):
    model = load("tiny", "custom_voice")
    monkeypatch.setattr(graph, "CapturedGraphs", AsOnGpu)
    decoder, prompts, ahead = GraphDecoder(rows), [*prompts_of(model)] * 2, {}
    made: list[Readback] = []
    monkeypatch.setattr(graph, "Readback", lambda report: (made.append(Readback(report)), made[-1])[1])

    def note(lines: int) -> None:
        ahead.setdefault(lines, set()).add(made[-1].waiting)

    decode_joining(decoder, model, listened(prompts, [30] * 6), on_frame=note)
    few = [lines for lines in ahead if lines < min(rows, FEW_LINES)]
    assert few and all(ahead[lines] == {0} for lines in few)
    assert LATE_LAG in ahead[rows]


@pytest.mark.parametrize("lines, alone", [(FEW_NEWCOMERS, True), (FEW_NEWCOMERS + 1, False)])
def test_many_lines_that_join_together_have_one_pass(load, ran, lines, alone):
    model = load("tiny", "custom_voice")
    prompts = [*prompts_of(model), *prompts_of(model)][:lines]
    wanted = [graph_lines(model, [prompt], 5, Sampling(), [seed])[0] for seed, prompt in enumerate(prompts)]
    made = decode_joining(GraphDecoder(4), model, [line_requests(prompts)])
    assert all(torch.equal(ours.codes, theirs.codes) for ours, theirs in zip(made, wanted, strict=True))
    assert count(ran, "enter") == (lines if alone else 0)


def test_a_long_prompt_is_run_in_the_batch(load, ran):
    """It takes as long in either."""
    model = load("tiny", "custom_voice")
    long = PromptBuilder(model).build(9 * TEXTS[2], preset_voice(model, "ryan"))
    assert long.length > SHORT_PROMPTS[-1]
    decode_joining(GraphDecoder(3), model, [[one] for one in line_requests([long])])
    assert count(ran, "enter") == 0 < count(ran, "frame")


def test_a_batch_of_lines_that_are_all_there_has_no_decoder_of_one_line(load, monkeypatch):
    model, decoder, held = load("tiny", "custom_voice"), GraphDecoder(3), note_buffers(monkeypatch)
    decoder.decode(model, line_requests(prompts_of(model)), OPTIONS)
    assert [one.rows for one in held] == [3]
    decode_joining(decoder, model, [line_requests(prompts_of(model))])
    assert {one.rows for one in held} == {1, 3}, "lines that come late have one"


@pytest.fixture
def few_lengths(monkeypatch) -> None:
    """Prompts are prepared up to 128 positions, which takes less time."""
    monkeypatch.setattr(graph, "LONGEST_PREPARED", 2 * graph.PROMPT_STEP)


@pytest.fixture
def graphs(monkeypatch) -> list[Recordings]:
    """The recordings of all decoders; those of the last one are the last."""
    return note_graphs(monkeypatch)


def recorded_sizes(graphs: Sequence[Recordings]) -> set[int]:
    made = graphs[-1].recordings if graphs else {}
    return {key[1] for key in made if key[0] == "prefill" and made[key] is not None}


def test_nothing_is_captured_for_lines_that_do_not_join_others(load, monkeypatch, graphs):
    """A stream's first sample would wait for it."""
    model, requests = load("tiny", "custom_voice"), line_requests(prompts_of(load("tiny", "custom_voice")))
    monkeypatch.setattr(graph, "CapturedGraphs", Recordings)
    with GraphDecoder(4).open_rows(model, OPTIONS, RowPlan(4, 4, requests, True)):
        assert recorded_sizes(graphs) == set()


def test_no_pass_is_prepared_that_would_not_be_captured():
    short = graph.PROMPT_STEP
    assert {count for count, length in graph.prefill_kinds(7) if length == short} == {1, 2, 4}
    assert {length for _, length in graph.prefill_kinds(1)} == set(range(64, graph.LONGEST_PREPARED + 1, 64))
    kinds = graph.prefill_kinds(256)
    assert len(kinds) == len(set(kinds)) == 31
    (count, length), *others = kinds
    assert count * length == graph.LARGEST_CAPTURED_PREFILL, "first: all share its memory"
    assert others == sorted(others, key=lambda kind: (kind[1], -kind[0])), "short prompts are the likely ones"


@pytest.mark.parametrize("lengths", [[40] * 33, [500, 9, 9, 9, 9, 9, 9, 9], [300, 200, 100], [2000] * 2])
def test_passes_that_are_prepared_hold_all_prompts_of_lines_that_begin_together(lengths):
    kinds = graph.prefill_kinds(256)
    parts = [lengths[part] for part in graph.split_prefill(lengths, graph.LARGEST_CAPTURED_PREFILL)]
    assert [length for part in parts for length in part] == lengths
    prepared = [(len(part), graph.pad_length(max(part))) for part in parts if max(part) <= 512]
    assert set(prepared) <= set(kinds)
    assert all(len(part) * graph.pad_length(max(part)) <= graph.LARGEST_CAPTURED_PREFILL for part in parts)


@torch.inference_mode()
def test_what_a_line_alone_needs_is_captured_first_and_the_rest_one_by_one_by_need(
    load, monkeypatch, ran, graphs, few_lengths
):
    monkeypatch.setattr(graph, "CapturedGraphs", Recordings)
    monkeypatch.setattr(graph, "SMALLEST_WINDOW", 64)
    monkeypatch.setattr(graph, "LATE_CONTEXT", 64)
    captures = CaptureStream()
    plan, steps = RowPlan(2, 2, (), True, Ahead(2, 256)), []
    with GraphDecoder(2, captures=captures).open_rows(load("tiny", "custom_voice"), OPTIONS, plan):
        alone = {
            ("frame", *GROUP, 64),
            ("keep",),
            ("restore",),
            ("advance", 64),
            ("codes", *GROUP),
            ("begin", 64),
        }
        short = {kind for length in SHORT_PROMPTS for kind in (("prefill", 1, length), ("enter", length))}
        assert {key for one in graphs for key in one.recordings if one.has(key)} == alone | short
        ran.clear()
        while captures.warm_ups.prepare_next():
            steps += [key for key in ran if key not in (("keep",), ("restore",))]
            ran.clear()
    several = [("prefill", 2, 128), ("prefill", 2, 64), ("prefill", 1, 64), ("prefill", 1, 128)]
    long = [(*kind, window) for kind in (("frame", *GROUP), ("advance",)) for window in (128, 256)]
    assert steps == [key for key in [*several, *long] for _ in range(2)], "directly, then captured"


@pytest.mark.parametrize("on", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_what_is_captured_between_the_frames_of_lines_changes_none_of_them(
    checkpoint, monkeypatch, ran, few_lengths, on
):
    model = load_model(checkpoint("tiny", "custom_voice"), LoadOptions("fp32", "sdpa"), on)
    if on == "cpu":
        monkeypatch.setattr(graph, "CapturedGraphs", Recordings)
        monkeypatch.setattr(graph, "SMALLEST_WINDOW", 64)
        monkeypatch.setattr(graph, "LATE_CONTEXT", 64)
    samplings = (Sampling(), GREEDY) if on == "cpu" else (GREEDY,)
    requests = requests_of(prompts_of(model) * 2, [40, 25, 30, 9, 60, 25], samplings)
    alone = [graph_lines(model, [one.prompt], 5, one.sampling, [one.seed], [one.guard])[0] for one in requests]
    captures, later, prepared = CaptureStream(), list(requests[2:]), []
    ahead = Ahead(4, 4 * graph.SMALLEST_WINDOW)

    def come(decoding: Decoding) -> Sequence[LineRequest]:
        ran.clear()
        if captures.warm_ups.prepare_next():
            prepared.append((len(decoding.rows.lines), *ran))
        return [later.pop()] if later and len(prepared) % 4 == 0 else ()

    opened = GraphDecoder(4, captures=captures).open_rows(model, OPTIONS, RowPlan(4, 4, (), True, ahead))
    made = decode_coming(opened, model, requests[:2], come)
    order = [*requests[:2], *reversed(requests[2:])]
    for request, ours in zip(order, made, strict=True):
        theirs = alone[requests.index(request)]
        assert ours.ended == theirs.ended and torch.equal(ours.codes, theirs.codes)
    steps = {key[0] for lines, *keys in prepared if lines > 1 for key in keys}
    assert steps == {"prefill", "frame", "advance", "keep", "restore"}


@pytest.mark.parametrize("kind", ["x_vector", "preset"])
def test_nothing_is_captured_once_lines_are_spoken(load, recording, monkeypatch, graphs, few_lengths, kind):
    """Lines that join one by one or several at a time, with short prompts, long ones, and more frames than usual."""
    model = load("tiny", "base" if kind == "x_vector" else "custom_voice")
    monkeypatch.setattr(graph, "CapturedGraphs", Recordings)
    monkeypatch.setattr(graph, "SMALLEST_WINDOW", 64)
    monkeypatch.setattr(graph, "LATE_CONTEXT", 64)
    prompts = [*prompts_of(model, kind, recording=recording)] * 3
    monkeypatch.setattr(decoding, "TEXTS", [" ".join(TEXTS)] * 3)
    prompts += prompts_of(model, kind, recording=recording)
    requests = requests_of(prompts, [9, 14, 3, 150, 12, 5, 7, 30, 6, 4, 9, 11])
    groups = [requests[:1], requests[1:2], requests[2:4], requests[4:7], requests[7:]]
    captures, made = CaptureStream(), []
    decoder = GraphDecoder(6, captures=captures)

    def note(lines: int) -> None:
        made.append(Recordings.made)

    with decoder.open_rows(model, OPTIONS, RowPlan(6, 6, (), True, Ahead(8, 256))):
        prepare_all(captures)
    decode_joining(decoder, model, groups, on_frame=note, ahead=Ahead(8, 256))
    assert {*made} == {Recordings.made} and decoder.context == 256
    assert len(graphs) == 2, "the decoder's, and those of the one that runs prompts"
    assert all(None not in one.recordings.values() for one in graphs), "nothing ran for the first time"


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["x_vector", "preset"])
@pytest.mark.parametrize("seq_groups", [15, 5])
def test_on_cuda_too(checkpoint, recording, monkeypatch, ran, kind, seq_groups):
    folder = checkpoint("tiny", "base" if kind == "x_vector" else "custom_voice")
    model = load_model(folder, LoadOptions("fp32", "sdpa"), "cuda")
    prompts = prompts_of(model, kind, recording=recording)
    options = GenerateOptions(seq_groups, GREEDY)
    wanted = [graph_lines(model, [prompt], seq_groups, GREEDY, [7])[0] for prompt in prompts]
    made, begin = [], CapturedGraphs.__init__
    monkeypatch.setattr(CapturedGraphs, "__init__", lambda one, *given: (made.append(one), begin(one, *given))[1])
    decoder = GraphDecoder(4)
    ran.clear()
    for _ in range(3):  # plain, captured, replayed
        coming = [[one] for one in line_requests(prompts, seeds=[7] * 3)]
        for ours, theirs in zip(decode_joining(decoder, model, coming, options), wanted, strict=True):
            assert torch.equal(ours.codes, theirs.codes)
    assert count(ran, "enter") == 3 * len(prompts)
    assert len(made) == 2 and not any(one.fallback for one in made)
    assert all(any(one.has(key) for one in made) for key in ran if key[0] in ("enter", "frame"))
