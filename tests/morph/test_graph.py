"""The graph engine beside the eager one: the same codes, and a decoding that leaves nothing behind.

The CPU runs the functions that CUDA captures; ``recorded.py`` stands in for the capture.
"""

from __future__ import annotations

import logging

import pytest
import torch
from qwen3_tts_morph.morph import eager, graph, predictor
from qwen3_tts_morph.morph.graph import GraphEngine, GraphEngines, choose_window, positions_expected
from qwen3_tts_morph.morph.guard import LONGEST_PERIOD, LOOP_WINDOW, Guard
from qwen3_tts_morph.morph.load import load_model
from qwen3_tts_morph.morph.noise import gumbel_noise, line_keys
from qwen3_tts_morph.morph.options import Draw, LoadOptions, Sampling
from qwen3_tts_morph.morph.prompt import build_prompt
from qwen3_tts_morph.morph.readback import LAG
from qwen3_tts_morph.morph.replay import Replayed
from qwen3_tts_morph.morph.sampling import filter_logits
from qwen3_tts_morph.morph.voice import clone_voice, design_voice, preset_voice
from torch.multiprocessing.reductions import StorageWeakRef

from .recorded import Recorded

TEXTS = ["Hello there, how are you?", "No.", "A longer line that has more to say than the others."]
SEEDS = [11, 12, 2**64 - 1]
GREEDY = Sampling(Draw(do_sample=False), Draw(do_sample=False))
FILTERED = Sampling(Draw(top_k=20, top_p=0.8), Draw(temperature=1.1, top_k=0, top_p=0.7), 1.3)
CHECKPOINT_OF = {"preset": "custom_voice", "design": "voice_design", "x_vector": "base", "icl": "base"}
CUDA_ONLY = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a CUDA device")


def prompts_of(model, kind: str = "preset", rows=range(3), recording=None):
    if kind == "preset":
        voice = preset_voice(model, "ryan")
    elif kind == "design":
        voice = design_voice(model, "a calm old man")
    else:
        voice = clone_voice(model, recording, 24000, kind, transcript="a tone")
    return [build_prompt(model, TEXTS[row], voice) for row in rows]


def guards_of(prompts, frames: int = 40) -> list[Guard]:
    return [Guard(frames, detect_loops=False) for _ in prompts]


class SameNoise:
    """Draws for the eager engine with the graph engine's noise: group by group, frame by frame."""

    def __init__(self, seeds):
        self.keys, self.counter = line_keys(seeds), 0

    def draw(self, logits: torch.Tensor, draw: Draw, _: object) -> torch.Tensor:
        groups = logits.shape[1] if logits.dim() == 3 else 1
        counters = (self.counter + torch.arange(groups)).expand(len(logits), -1)
        noise = gumbel_noise(self.keys, counters, logits.shape[-1]).view(logits.shape)
        self.counter += groups
        scores = logits.float()
        return (filter_logits(scores, draw) + noise if draw.do_sample else scores).argmax(-1)


def eager_lines(model, prompts, seq_groups, sampling, seeds, monkeypatch, **options):
    with monkeypatch.context() as patch:
        draw = SameNoise(seeds).draw
        patch.setattr(eager, "draw_tokens", draw)
        patch.setattr(predictor, "draw_tokens", draw)
        guards = options.pop("guards", None) or guards_of(prompts)
        return eager.decode_lines(model, prompts, guards, seq_groups, sampling, None, **options)


def graph_lines(model, prompts, seq_groups, sampling, seeds, **options):
    guards = options.pop("guards", None) or guards_of(prompts)
    return GraphEngines(model).decode_lines(prompts, guards, seq_groups, sampling, seeds, **options)


def assert_equal(ours, theirs) -> None:
    assert [one.ended for one in ours] == [one.ended for one in theirs]
    assert [one.codes.shape for one in ours] == [one.codes.shape for one in theirs]
    assert all(torch.equal(a.codes, b.codes) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(), FILTERED], ids=["greedy", "sampled", "filtered"])
@pytest.mark.parametrize("rows", [(0,), (0, 1, 2)], ids=["one line", "batch"])
@pytest.mark.parametrize("seq_groups", [15, 5, 1])
@pytest.mark.parametrize("shape", ["tiny", "tiny-1.7B"])
def test_codes_are_the_eager_engines(load, monkeypatch, shape, seq_groups, rows, sampling):
    model = load(shape, "custom_voice")
    prompts, seeds = prompts_of(model, rows=rows), [SEEDS[row] for row in rows]
    theirs = eager_lines(model, prompts, seq_groups, sampling, seeds, monkeypatch)
    assert sum(len(one.codes) for one in theirs) > 2 * len(rows)
    assert_equal(graph_lines(model, prompts, seq_groups, sampling, seeds), theirs)


@pytest.mark.parametrize("sampling", [GREEDY, Sampling()], ids=["greedy", "sampled"])
@pytest.mark.parametrize("kind", ["x_vector", "icl", "design", "preset"])
@pytest.mark.parametrize("shape", ["tiny", "tiny-1.7B"])
def test_each_voice_kinds_codes_are_the_eager_engines(load, monkeypatch, recording, shape, kind, sampling):
    """Clones take their text one token a frame, presets and designs in the prefill."""
    model = load(shape, CHECKPOINT_OF[kind])
    prompts = prompts_of(model, kind, recording=recording)
    theirs = eager_lines(model, prompts, 15, sampling, SEEDS, monkeypatch)
    assert_equal(graph_lines(model, prompts, 15, sampling, SEEDS), theirs)


@pytest.mark.parametrize("seq_groups", [15, 5])
def test_a_line_is_the_same_alone_and_in_any_batch(load, seq_groups):
    model = load("tiny", "custom_voice")
    prompts = prompts_of(model)
    together = graph_lines(model, prompts, seq_groups, Sampling(), SEEDS)
    for row in range(3):
        assert_equal(
            graph_lines(model, prompts[row : row + 1], seq_groups, Sampling(), SEEDS[row : row + 1]),
            together[row : row + 1],
        )
    swapped = graph_lines(model, prompts[::-1], seq_groups, Sampling(), SEEDS[::-1])
    assert_equal(swapped[::-1], together)


def test_one_recording_serves_other_texts_seeds_and_settings(load, monkeypatch):
    """What changes from line to line is in tensors: a graph's replay takes it from there."""
    model = load("tiny", "custom_voice")
    monkeypatch.setattr(graph, "Replayed", Recorded)
    monkeypatch.setattr(Recorded, "made", 0)
    prompts, engine = prompts_of(model), GraphEngine(model, 5, 2)
    runs = [
        ((0, 1), GREEDY, [1, 2]),
        ((2,), Sampling(), [3]),
        ((1, 2), FILTERED, [4, 5]),
        ((0,), GREEDY, [6]),
    ]
    for rows, sampling, seeds in runs:
        chosen = [prompts[row] for row in rows]
        theirs = eager_lines(model, chosen, 5, sampling, seeds, monkeypatch)
        assert_equal(engine.decode(chosen, guards_of(chosen), sampling, seeds), theirs)
    lengths = {-(-max(len(prompts[row].embeds) for row in rows) // 64) for rows, _, _ in runs}
    assert 1 < Recorded.made <= 1 + len(lengths)
    engine.seq_groups = 15
    theirs = eager_lines(model, prompts[:2], 15, GREEDY, [1, 2], monkeypatch)
    assert_equal(engine.decode(prompts[:2], guards_of(prompts[:2]), GREEDY, [1, 2]), theirs)


@pytest.mark.parametrize("recorded", [False, True], ids=["plain", "recorded"])
def test_a_line_longer_than_expected_gets_room(load, monkeypatch, recorded):
    """Windows of the cache, then a larger cache, in the middle of a line: no frame is lost or changed."""
    model = load("tiny", "custom_voice")
    if recorded:
        monkeypatch.setattr(graph, "Replayed", Recorded)
    monkeypatch.setattr(graph, "SMALLEST_WINDOW", 32)
    monkeypatch.setattr(graph, "PROMPT_STEP", 8)
    prompts = prompts_of(model)[:2]
    eos = model.config.talker_config.codec_eos_token_id
    head, kept = model.talker.codec_head.weight, model.talker.codec_head.weight[eos].clone()
    head.data[eos] = 0  # hardly ever an EOS
    try:
        theirs = eager_lines(
            model, prompts, 1, GREEDY, SEEDS[:2], monkeypatch, guards=[Guard(200, False), Guard(90, False)]
        )
        engine = GraphEngine(model, 1, 2, 40)
        before = engine.context
        ours = engine.decode(prompts, [Guard(200, False), Guard(90, False)], GREEDY, SEEDS[:2])
    finally:
        head.data[eos] = kept
    assert max(len(one.codes) for one in theirs) > 150
    assert before == 64 and engine.context == 256
    assert_equal(ours, theirs)


def test_progress_and_ends_are_noticed_late_and_told_as_they_were(load, monkeypatch):
    model = load("tiny", "custom_voice")
    prompts, told = prompts_of(model), ([], [])
    guards = [Guard(30, False) for _ in prompts]
    theirs = eager_lines(model, prompts, 5, Sampling(), SEEDS, monkeypatch, on_frame=told[0].append)
    engine = GraphEngine(model, 5, 4)
    made = []
    monkeypatch.setattr(engine, "frame", lambda: (made.append(1), GraphEngine.frame(engine))[1])
    ours = engine.decode(prompts, guards_of(prompts), Sampling(), SEEDS, told[1].append)
    assert_equal(ours, theirs)
    assert told[0] == told[1] and guards[0].frames == 0
    assert len(made) <= max(len(one.codes) for one in ours) + LAG + 1, "more frames in vain than the lag"


def test_a_cancel_passes_through_and_leaves_the_engine_usable(load):
    model = load("tiny", "custom_voice")
    prompts, engine = prompts_of(model), GraphEngine(model, 5, 4)
    wanted = engine.decode(prompts, guards_of(prompts), Sampling(), SEEDS)
    frames: list[int] = []

    def cancel(lines: int) -> None:
        frames.append(lines)
        if len(frames) == 4:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        engine.decode(prompts, guards_of(prompts, 500), Sampling(), SEEDS, cancel)
    assert len(frames) == 4
    assert_equal(engine.decode(prompts, guards_of(prompts), Sampling(), SEEDS), wanted)


def test_a_looping_line_is_ended_and_its_batch_mates_are_not(load):
    model = load("tiny", "custom_voice")
    prompt = prompts_of(model)[0]

    class Looping(Guard):
        def add(self, code: int) -> str | None:
            return super().add(7)

    runs = (
        (seed, graph_lines(model, [prompt], 1, Sampling(), [seed], guards=[Guard(100, False)])[0])
        for seed in range(100)
    )
    seed, alone = next((seed, line) for seed, line in runs if line.ended == "cap")
    looping, other = graph_lines(
        model, [prompt] * 2, 1, Sampling(), [seed] * 2, guards=[Looping(2000), Guard(100, False)]
    )
    assert looping.ended == "loop" and len(looping.codes) == LOOP_WINDOW + LONGEST_PERIOD
    assert torch.equal(looping.codes, alone.codes[: len(looping.codes)])
    assert torch.equal(other.codes, alone.codes)


@pytest.fixture
def fresh(checkpoint):
    """A model of the test's own, whose weights may be moved."""
    return load_model(checkpoint("tiny", "custom_voice"), LoadOptions("fp32", "sdpa"))


def move(model) -> None:
    """What a move to another device and back leaves: every parameter in a storage of its own."""
    for parameter in model.module.parameters():
        parameter.data = parameter.data.clone()


@pytest.mark.parametrize("recorded", [False, True], ids=["plain", "recorded"])
def test_a_model_that_was_moved_in_between_is_met_where_it_is(fresh, monkeypatch, recorded):
    if recorded:
        monkeypatch.setattr(graph, "Replayed", Recorded)
    prompts, engine = prompts_of(fresh), GraphEngine(fresh, 5, 4)
    wanted = engine.decode(prompts, guards_of(prompts), Sampling(), SEEDS)
    fused = StorageWeakRef(fresh.talker.model.layers[0].mlp.gate_proj.weight.untyped_storage())
    cache = StorageWeakRef(engine._slots.cache.keys.untyped_storage())
    move(fresh)
    # A recording holds its tensors; a CUDA graph holds addresses.
    assert fused.expired() or recorded, "the engine holds weights of a model that has left"
    assert_equal(engine.decode(prompts, guards_of(prompts), Sampling(), SEEDS), wanted)
    assert cache.expired()
    with torch.no_grad():
        for parameter in fresh.talker.parameters():
            parameter.mul_(1.5)
    changed = engine.decode(prompts, guards_of(prompts), Sampling(), SEEDS)
    assert not torch.equal(changed[0].codes[:2], wanted[0].codes[:2]), "old weights were used"


def test_free_lets_go_of_caches_and_graphs(load):
    model = load("tiny", "custom_voice")
    prompts, engines = prompts_of(model), GraphEngines(model)
    first = engines.decode_lines(prompts, guards_of(prompts), 5, Sampling(), SEEDS)
    slots = engines._engines[False]._slots
    held = [
        StorageWeakRef(one.untyped_storage())
        for one in (slots.cache.keys, slots.state.text, slots.angles.cos)
    ]
    del slots
    engines.free()
    assert all(one.expired() for one in held)
    assert_equal(engines.decode_lines(prompts, guards_of(prompts), 5, Sampling(), SEEDS), first)


def test_a_batch_keeps_its_engine_and_a_single_line_has_its_own(load):
    model = load("tiny", "custom_voice")
    prompts, engines = prompts_of(model), GraphEngines(model)

    def rows(count: int) -> int:
        chosen = (prompts * 2)[:count]
        engines.decode_lines(chosen, guards_of(chosen, 2), 5, Sampling(), [0] * count)
        return engines._engines[count == 1].batch

    assert [rows(count) for count in (3, 2, 1, 5, 3)] == [4, 4, 1, 8, 8]
    assert len(engines._engines) == 2


def test_an_overflow_in_fp16_gets_its_sentence_and_the_next_line_is_not_spoilt(fresh):
    fresh.module.half()
    prompts, engine = prompts_of(fresh), GraphEngine(fresh, 5, 1)
    wanted = engine.decode(prompts[:1], guards_of(prompts[:1]), GREEDY, [1])
    head = fresh.talker.codec_head.weight
    kept = head.data.clone()
    head.data.fill_(6e4)
    with pytest.raises(ValueError, match="overflow in fp16: load it with precision auto"):
        engine.decode(prompts[:1], guards_of(prompts[:1]), GREEDY, [1])
    head.data.copy_(kept)
    with torch.inference_mode():
        engine._slots.cache.keys.fill_(torch.nan)
    assert_equal(engine.decode(prompts[:1], guards_of(prompts[:1]), GREEDY, [1]), wanted)


@pytest.mark.parametrize(("lines", "seeds"), [(0, 0), (3, 3), (2, 1)])
def test_lines_that_do_not_fit_are_refused(load, lines, seeds):
    model = load("tiny", "custom_voice")
    prompts = prompts_of(model)[:lines]
    with pytest.raises(ValueError, match="give 1 to 2 lines and a seed for each"):
        GraphEngine(model, 5, 2).start(prompts, Sampling(), [0] * seeds)


@pytest.mark.parametrize("seq_groups", [0, 16, 5.0])
def test_bad_seq_groups_are_refused(load, seq_groups):
    model = load("tiny", "custom_voice")
    with pytest.raises(ValueError, match="SEQ_GROUPS"):
        GraphEngine(model, seq_groups)
    with pytest.raises(ValueError, match="SEQ_GROUPS"):
        graph_lines(model, prompts_of(model)[:1], seq_groups, Sampling(), [0])


def test_room_is_made_for_what_a_line_is_likely_to_need(load):
    assert [choose_window(positions) for positions in (1, 256, 257, 5000)] == [256, 256, 512, 8192]
    prompt = prompts_of(load("tiny", "custom_voice"))[0]
    spare = positions_expected(prompt, Guard(8191)) - len(prompt.embeds)
    assert 4 * prompt.text_tokens < spare < 12 * prompt.text_tokens
    assert positions_expected(prompt, Guard(3)) == len(prompt.embeds) + 3 + LAG + 1


def test_a_capture_that_fails_says_why_and_runs_on(monkeypatch, caplog):
    def refuse() -> None:
        raise RuntimeError("this allocator cannot be captured")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", refuse)
    calls: list[int] = []
    replayed = Replayed(lambda: calls.append(1), torch.device("cuda"), None)
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            replayed()
    assert len(calls) == 4
    assert [record.message for record in caplog.records] == [
        "the frame could not be captured in a CUDA graph (this allocator cannot be captured): "
        "it runs op by op, slower"
    ]


@CUDA_ONLY
@pytest.mark.parametrize("rows", [(0,), (0, 1, 2)], ids=["one line", "batch"])
@pytest.mark.parametrize("seq_groups", [15, 5, 1])
def test_replays_on_cuda_give_the_eager_engines_codes(checkpoint, monkeypatch, seq_groups, rows):
    model = load_model(checkpoint("tiny-1.7B", "custom_voice"), LoadOptions("fp32", "sdpa"), "cuda")
    prompts = prompts_of(model, rows=rows)
    theirs = eager.decode_lines(model, prompts, guards_of(prompts), seq_groups, GREEDY, None)
    engine = GraphEngine(model, seq_groups, len(rows))
    for _ in range(3):  # plain, captured, replayed
        ours = engine.decode(prompts, guards_of(prompts), GREEDY, SEEDS[: len(rows)])
        assert_equal(ours, theirs)
    assert all(one.graph is not None for one in engine._graphs.values())


@CUDA_ONLY
def test_a_replay_on_cuda_makes_the_host_wait_for_nothing(checkpoint):
    model = load_model(checkpoint("tiny", "custom_voice"), LoadOptions("bf16", "sdpa"), "cuda")
    engine = GraphEngine(model, 15)
    engine.start(prompts_of(model)[:1], Sampling(), [1])
    engine.frame(), engine.frame()
    torch.cuda.set_sync_debug_mode("error")
    try:
        engine.frame()
    finally:
        torch.cuda.set_sync_debug_mode("default")
