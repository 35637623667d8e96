"""The graph engine against the eager one: the same codes, in any batch, whatever was decoded before.

The CPU runs the functions that CUDA captures; ``recorded.py`` stands in for the capture.
"""

from dataclasses import replace

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.decode.rows import Guard, LineRequest
from qwen3_tts_morph.morph.graph import engine as graph
from qwen3_tts_morph.morph.graph.engine import (
    LARGEST_PREFILL,
    choose_window,
    expected_positions,
    largest_prefill,
    split_prefill,
)
from qwen3_tts_morph.morph.graph.rows import LAG
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling
from qwen3_tts_morph.morph.runtime.capture import CapturedGraphs

from tests.morph.decoding import (
    CHECKPOINT_OF,
    FILTERED,
    GREEDY,
    SEEDS,
    GraphDecoder,
    assert_equal,
    decode_eager,
    eager_lines,
    graph_lines,
    guards_of,
    line_requests,
    one_stream,
    prompts_of,
)
from tests.morph.pairwise import each_value, pairwise
from tests.morph.recorded import AsOnGpu, Recordings, note_graphs

# Recordings call each function before they record it.
RECORDED = [
    pytest.param(False, id="plain", marks=pytest.mark.slow),
    pytest.param(True, id="recorded"),
]


def note_frames(engine: GraphDecoder, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets an item with every whole frame that the engine makes from now on."""
    made: list[int] = []
    monkeypatch.setattr(engine, "frame", lambda *given: (made.append(1), GraphDecoder.frame(engine, *given))[1])
    return made


@pytest.mark.parametrize(
    ("shape", "seq_groups", "rows", "sampling"),
    pairwise(
        {"tiny": "tiny", "tiny-1.7B": "tiny-1.7B"},
        {"15": 15, "7": 7, "5": 5, "1": 1},
        {"one line": (0,), "batch": (0, 1, 2)},
        {"greedy": GREEDY, "sampled": Sampling(), "filtered": FILTERED},
    ),
)
def test_codes_equal_the_eager_engines(load, monkeypatch, shape, seq_groups, rows, sampling):
    model = load(shape, "custom_voice")
    prompts, seeds = prompts_of(model, rows=rows), [SEEDS[row] for row in rows]
    theirs = eager_lines(model, prompts, seq_groups, sampling, seeds, monkeypatch)
    assert sum(len(one.codes) for one in theirs) > 2 * len(rows)
    assert_equal(graph_lines(model, prompts, seq_groups, sampling, seeds), theirs)


@pytest.mark.parametrize(
    ("shape", "kind", "sampling"),
    each_value(
        {"tiny": "tiny", "tiny-1.7B": "tiny-1.7B"},
        {kind: kind for kind in ("x_vector", "icl", "design", "preset")},
        {"greedy": GREEDY, "sampled": Sampling()},
    ),
)
def test_each_voice_kinds_codes_equal_the_eager_engines(load, monkeypatch, recording, shape, kind, sampling):
    """Clones get their text one token per frame, presets and designs in the prefill."""
    model = load(shape, CHECKPOINT_OF[kind])
    prompts = prompts_of(model, kind, recording=recording)
    theirs = eager_lines(model, prompts, 15, sampling, SEEDS, monkeypatch)
    assert_equal(graph_lines(model, prompts, 15, sampling, SEEDS), theirs)


@pytest.mark.parametrize(
    "sampling",
    [pytest.param(GREEDY, id="greedy", marks=pytest.mark.slow), pytest.param(FILTERED, id="filtered")],
)
def test_lines_through_fewer_rows_are_the_same_as_alone(load, sampling):
    """Rows are refilled as lines end; neither the rows nor the order nor the other lines change a code."""
    model = load("tiny-1.7B", "custom_voice")
    prompts, seeds = prompts_of(model, rows=[0, 1, 2] * 4), list(range(12))
    frames = [3, 20, 12, 1, 14, 7, 2, 9, 17, 4, 15, 6]

    def guards() -> list[Guard]:
        return [Guard(most, False) for most in frames]

    alone = [graph_lines(model, [prompts[line]], 5, sampling, [seeds[line]], [guards()[line]])[0] for line in range(12)]
    assert len({len(one.codes) for one in alone}) > 6
    for rows in (1, 3, 8):
        assert_equal(graph_lines(model, prompts, 5, sampling, seeds, guards(), rows), alone)
    turned = graph_lines(model, prompts[::-1], 5, sampling, seeds[::-1], guards()[::-1], 3)
    assert_equal(turned[::-1], alone)


def test_one_recording_serves_other_texts_seeds_and_settings(load, monkeypatch):
    """Everything that differs between lines is in tensors, which a replay reads."""
    model = load("tiny", "custom_voice")
    monkeypatch.setattr(graph, "CapturedGraphs", Recordings)
    monkeypatch.setattr(Recordings, "made", 0)
    made = note_graphs(monkeypatch)
    prompts, engine = prompts_of(model), GraphDecoder(2)
    runs = [
        ((0, 1), 5, GREEDY, [1, 2]),
        ((2,), 5, Sampling(), [3]),
        ((1, 2), 5, FILTERED, [4, 5]),
        ((0,), 5, GREEDY, [6]),
        ((1, 0), 5, Sampling(), [7, 8]),
        ((0, 1, 2), 5, FILTERED, [9, 10, 11]),
        ((0, 1), 15, GREEDY, [1, 2]),
    ]
    for rows, seq_groups, sampling, seeds in runs:
        chosen = [prompts[row] for row in rows]
        theirs = eager_lines(model, chosen, seq_groups, sampling, seeds, monkeypatch)
        assert_equal(
            engine.decode(
                model, line_requests(chosen, guards_of(chosen), seeds), GenerateOptions(seq_groups, sampling)
            ),
            theirs,
        )
    [recordings] = [one.recordings for one in made]
    assert Recordings.made == len(recordings)
    assert sum(key[0] == "frame" for key in recordings) == 2


@pytest.mark.parametrize("recorded", RECORDED)
def test_the_cache_grows_for_a_line_longer_than_expected(load, monkeypatch, recorded):
    """Larger windows, then a larger cache in the middle of a line: no frame is lost or changed."""
    model = load("tiny", "custom_voice")
    if recorded:
        monkeypatch.setattr(graph, "CapturedGraphs", Recordings)
    monkeypatch.setattr(graph, "SMALLEST_WINDOW", 32)
    monkeypatch.setattr(graph, "PROMPT_STEP", 8)
    monkeypatch.setattr(graph, "reserved_frames", lambda _: 15)
    prompts = prompts_of(model)[:2]
    eos = model.config.talker_config.codec_eos_token_id
    head, kept = model.talker.codec_head.weight, model.talker.codec_head.weight[eos].clone()
    head.data[eos] = 0  # hardly ever an EOS
    rooms: list[int] = []
    try:
        theirs = eager_lines(
            model, prompts, 1, GREEDY, SEEDS[:2], monkeypatch, guards=[Guard(200, False), Guard(90, False)]
        )
        engine = GraphDecoder(2)
        lines = line_requests(prompts, [Guard(200, False), Guard(90, False)], SEEDS[:2])
        ours = engine.decode(model, lines, GenerateOptions(1, GREEDY), lambda _: rooms.append(engine.context))
    finally:
        head.data[eos] = kept
    assert max(len(one.codes) for one in theirs) > 150
    assert rooms[0] == 64 and rooms[-1] == 256
    assert_equal(ours, theirs)


def test_progress_and_ends_are_read_late_and_reported_correctly(load, monkeypatch):
    model = load("tiny", "custom_voice")
    prompts, told = prompts_of(model), []
    theirs = eager_lines(model, prompts, 5, Sampling(), SEEDS, monkeypatch)
    engine = GraphDecoder(4)
    made = note_frames(engine, monkeypatch)
    ours = engine.decode(model, line_requests(prompts, seeds=SEEDS), GenerateOptions(5, Sampling()), told.append)
    assert_equal(ours, theirs)
    lengths = [len(one.codes) for one in ours]
    assert told == [sum(length > step for length in lengths) for step in range(max(lengths))]
    assert len(made) <= max(len(one.codes) for one in ours) + LAG + 1, "more wasted frames than the lag"


def test_no_frame_is_made_beyond_all_lines_caps(load, monkeypatch):
    """The host knows a cap before it has read the frame that reaches it; another line may go on, or begin."""
    model, engine = load("tiny", "custom_voice"), GraphDecoder(2)
    monkeypatch.setattr(graph, "CapturedGraphs", AsOnGpu)
    made = note_frames(engine, monkeypatch)

    def frames_of(*caps: int) -> int:
        made.clear()
        prompts = prompts_of(model)[:1] * len(caps)
        guards = [Guard(cap, False) for cap in caps]
        lines = engine.decode(model, line_requests(prompts, guards, [5] * len(caps)), GenerateOptions(5, GREEDY))
        assert [(len(one.codes), one.ended) for one in lines] == [(cap, "cap") for cap in caps]
        return len(made)

    assert frames_of(9) == 9 and frames_of(1) == 1
    assert frames_of(4, 9) == 9
    assert frames_of(4, 4, 3) == 4 + 3, "the rows' next line begins when theirs have been read"


def test_prefills_are_cut_into_powers_of_two_that_are_not_too_large():
    def parts(lengths: list[int]) -> list[int]:
        cut = list(split_prefill(lengths))
        assert [place for part in cut for place in range(len(lengths))[part]] == list(range(len(lengths)))
        return [part.stop - part.start for part in cut]

    assert parts([9]) == [1] and parts([70] * 7) == [4, 2, 1] and parts([20] * 64) == [64]
    assert parts([LARGEST_PREFILL // 4] * 8) == [4, 4]
    assert parts([LARGEST_PREFILL + 1, 5, 5]) == [1, 2]
    assert [largest_prefill(rows) // LARGEST_PREFILL for rows in (1, 64, 128, 256, 512)] == [1, 1, 2, 4, 4]


@pytest.mark.parametrize("streamed", [False, True], ids=["offline", "streamed"])
def test_a_first_frame_that_is_streamed_is_not_read_late_and_changes_no_code(load, monkeypatch, streamed):
    """The third line takes a row that another one has left."""
    model = load("tiny", "custom_voice")
    prompts = prompts_of(model)
    alone = [graph_lines(model, [prompt], 5, Sampling(), [3])[0] for prompt in prompts]
    monkeypatch.setattr(graph, "CapturedGraphs", AsOnGpu)
    engine, read = GraphDecoder(2), []
    made = note_frames(engine, monkeypatch)
    guards = [Guard(count, False) for count in (4, 9, 6)]
    lines = [replace(one, is_streamed=streamed) for one in line_requests(prompts, guards, [3] * len(prompts))]
    options = GenerateOptions(5, Sampling(), 2)
    together = engine.decode(model, lines, options, lambda _: read.append(len(made)))
    for ours, theirs, guard in zip(together, alone, (4, 9, 6), strict=True):
        assert torch.equal(ours.codes, theirs.codes[:guard])
    # Frames launched before each one was read.
    assert read[:3] == ([1, 2 + LAG, 3 + LAG] if streamed else [1 + LAG, 2 + LAG, 3 + LAG])


def test_space_is_reserved_for_what_a_line_is_likely_to_need(load):
    assert [choose_window(positions) for positions in (1, 256, 257, 5000)] == [256, 256, 512, 8192]
    prompt = prompts_of(load("tiny", "custom_voice"))[0]
    spare = expected_positions(LineRequest(prompt, Guard(8191))) - len(prompt.embeds)
    assert 4 * prompt.text_tokens < spare < 12 * prompt.text_tokens
    assert expected_positions(LineRequest(prompt, Guard(3))) == len(prompt.embeds) + 3 + LAG + 1


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [(0,), (0, 1, 2)], ids=["one line", "batch"])
@pytest.mark.parametrize("seq_groups", [15, 5, 1])
def test_replays_on_cuda_return_the_eager_engines_codes(checkpoint, monkeypatch, seq_groups, rows):
    model = load_model(checkpoint("tiny-1.7B", "custom_voice"), LoadOptions("fp32", "sdpa"), "cuda")
    prompts = prompts_of(model, rows=rows)
    theirs = decode_eager(
        model,
        line_requests(prompts),
        GenerateOptions(seq_groups, GREEDY),
        experiment=one_stream(model),
    )
    made, begin = [], CapturedGraphs.__init__
    monkeypatch.setattr(CapturedGraphs, "__init__", lambda one, *given: (made.append(one), begin(one, *given))[1])
    engine = GraphDecoder(len(rows))
    for _ in range(3):  # plain, captured, replayed
        ours = engine.decode(
            model,
            line_requests(prompts, guards_of(prompts), SEEDS[: len(rows)]),
            GenerateOptions(seq_groups, GREEDY),
        )
        assert_equal(ours, theirs)
    assert engine.fallback is None and made[0].has(("frame", seq_groups, "stock", engine.context))


@pytest.mark.gpu
@torch.inference_mode()
def test_a_replay_on_cuda_has_no_host_sync(checkpoint):
    model = load_model(checkpoint("tiny", "custom_voice"), LoadOptions("bf16", "sdpa"), "cuda")
    prompts, engine = prompts_of(model), GraphDecoder(2)
    lines = line_requests(prompts[:2], guards_of(prompts[:2]), [1, 2])
    for prompt in prompts:  # a voice's first prompt copies from the host
        prompt.make_rows()
    engine.start(model, GenerateOptions(15), 200)
    for _ in range(2):
        engine.put([0], lines[:1])
        engine.frame(100)
    torch.cuda.set_sync_debug_mode("error")
    try:
        engine.put([1], lines[1:])
        engine.frame(100)
        engine.frame(100, [1])
        engine.restore_line(0, lines[1], engine.snapshot_line(1, 40))
    finally:
        torch.cuda.set_sync_debug_mode("default")
