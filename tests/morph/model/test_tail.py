"""Trained tails: what they compute, that both engines use them, and their file."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.checkpoint.trained_files import TAIL_FILE, load_tails, predictor_fingerprint
from qwen3_tts_morph.morph.model.tail import Tail, TailInfo, describe_groups, tail_logits
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling, TokenSampling
from qwen3_tts_morph.morph.study.sweep import measure_distances
from qwen3_tts_morph.morph.synthesizer import Engine
from safetensors import safe_open
from safetensors.torch import save_file

from lab.random_checkpoint import write_checkpoint
from lab.tails.save import save_tails
from tests.morph.decoding import (
    GREEDY,
    SEEDS,
    GraphDecoder,
    assert_equal,
    eager_lines,
    graph_lines,
    guards_of,
    line_requests,
    prompts_of,
)
from tests.morph.recorded import Recordings

ABOUT = TailInfo("token+mix", 0.25, 0.5)
VOCAB, WIDTH, INNER, RANK = 64, 64, 12, 5
KINDS = {
    "token": ("token",),
    "mix": ("mix_up", "mix_down"),
    "groups": ("group_up", "group_down"),
    "rank": ("left", "right"),
    "heads": ("heads",),
}


def random_parts(seq_groups: int, *words: str, seed: int = 0) -> dict[str, torch.Tensor]:
    random, groups = torch.Generator().manual_seed(seed), 15 - seq_groups
    shapes = {
        "token": (VOCAB, WIDTH),
        "mix_up": (INNER, WIDTH),
        "mix_down": (WIDTH, INNER),
        "group_up": (INNER, WIDTH),
        "group_down": (groups, WIDTH, INNER),
        "left": (groups, VOCAB, RANK),
        "right": (groups, RANK, WIDTH),
        "heads": (groups, VOCAB, WIDTH),
    }
    names = [name for word in words or KINDS for name in KINDS[word]]
    parts = {name: torch.randn(shapes[name], generator=random) / 4 for name in names}
    return {name: part.to(torch.bfloat16).float() for name, part in parts.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A checkpoint with trained tails for SEQ_GROUPS 5 (all parts) and 1 (two kinds)."""
    path = write_checkpoint(tmp_path_factory.mktemp("tails") / "voice", "tiny", "custom_voice")
    heads = load_model(path, LoadOptions("fp32", "sdpa")).talker.code_predictor.lm_head
    stock = torch.stack([head.weight for head in heads])
    tails = [Tail(1, random_parts(1, "token", "rank"), ABOUT, stock), Tail(5, random_parts(5), ABOUT, stock)]
    save_tails(path / TAIL_FILE, tails, path)
    return path


@pytest.fixture(scope="module")
def trained(folder):
    return load_model(folder, LoadOptions("fp32", "sdpa"))


@pytest.fixture
def stock(load):
    """The same weights without the file."""
    return load("tiny", "custom_voice")


@pytest.mark.parametrize("words", [*[(word,) for word in KINDS], tuple(KINDS)], ids="+".join)
def test_logits_are_those_of_a_plain_computation(words):
    random = torch.Generator().manual_seed(1)
    parts, heads = random_parts(12, *words), torch.randn(3, VOCAB, WIDTH, generator=random)
    states, tokens = torch.randn(4, WIDTH, generator=random), torch.tensor([3, 0, 63, 3])

    def inner(state: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        raw = up @ (state / (state.square().mean() + 1e-6).sqrt())
        return raw * torch.sigmoid(raw)

    for row in range(4):
        state = states[row] + (parts["token"][tokens[row]] if "token" in parts else 0)
        if "mix_up" in parts:
            state = state + parts["mix_down"] @ inner(state, parts["mix_up"])
        for group in range(3):
            own = state
            if "group_up" in parts:
                own = state + parts["group_down"][group] @ inner(state, parts["group_up"])
            wanted = parts.get("heads", heads)[group] @ own
            if "left" in parts:
                wanted = wanted + parts["left"][group] @ parts["right"][group] @ own
            got = tail_logits(parts, heads, states, tokens)[row, group]
            assert torch.allclose(got, wanted, atol=1e-4)


@pytest.mark.parametrize("seq_groups", [1, 5])
@pytest.mark.parametrize("sampling", [GREEDY, Sampling()], ids=["greedy", "sampled"])
def test_both_engines_use_the_tail(trained, stock, monkeypatch, seq_groups, sampling):
    prompts = prompts_of(trained)
    ours = graph_lines(trained, prompts, seq_groups, sampling, SEEDS)
    assert_equal(ours, eager_lines(trained, prompts, seq_groups, sampling, SEEDS, monkeypatch))
    plain = graph_lines(stock, prompts, seq_groups, sampling, SEEDS)
    first, other = ours[0].codes[0], plain[0].codes[0]
    assert torch.equal(first[: seq_groups + 1], other[: seq_groups + 1])
    assert not torch.equal(first[seq_groups + 1 :], other[seq_groups + 1 :])


@pytest.mark.parametrize("engine", [pytest.param("eager", marks=pytest.mark.slow), "graph"])
def test_the_tail_can_be_left_out(folder, load, engine):
    model = load_model(folder, LoadOptions("fp32", "sdpa"))
    other = load_model(Path(folder), LoadOptions("fp32", "sdpa"))
    other.module.tails.clear()
    prompts = prompts_of(model)
    lines = [
        Engine(engine).decode(one, line_requests(prompts, seeds=SEEDS), GenerateOptions(5, Sampling(), 3, tail=tail))
        for one, tail in ((model, "auto"), (model, "stock"), (other, "auto"))
    ]
    assert_equal(lines[1], lines[2])
    assert not torch.equal(lines[0][0].codes[0], lines[2][0].codes[0])


def test_graphs_of_one_tail_do_not_serve_another(trained, monkeypatch):
    monkeypatch.setattr("qwen3_tts_morph.morph.graph.engine.CapturedGraphs", Recordings)
    prompts, engine = prompts_of(trained), GraphDecoder(3)

    def lines(one: GraphDecoder, tail: str, seq_groups: int):
        guards = guards_of(prompts)
        return one.decode(
            trained, line_requests(prompts, guards, SEEDS), GenerateOptions(seq_groups, GREEDY, tail=tail)
        )

    for tail, seq_groups in (("auto", 5), ("stock", 5), ("auto", 5), ("auto", 1), ("stock", 1)):
        assert_equal(lines(engine, tail, seq_groups), lines(GraphDecoder(3), tail, seq_groups))


@torch.inference_mode()
def test_distances_are_those_of_the_tail(trained, stock):
    """A tail for 14 groups that knows the last head and the exact state would be exact; a random one is not."""
    random = torch.Generator().manual_seed(0)
    hidden = torch.randn(6, 1, trained.width, generator=random)
    codes = torch.randint(VOCAB, (6, 16), generator=random)
    ours, plain = (measure_distances(model, hidden, codes, TokenSampling()) for model in (trained, stock))
    assert [groups for groups in ours if ours[groups] != plain[groups]] == [1, 5]
    assert measure_distances(trained, hidden, codes, TokenSampling(), "stock") == plain


def test_the_report_says_what_the_tail_is(trained):
    assert describe_groups(GenerateOptions(15)) == "SEQ_GROUPS 15 (exact)"
    assert describe_groups(GenerateOptions(5)).endswith("come from the crossbar; stock heads)")
    said = describe_groups(GenerateOptions(5), trained.tails()[5])
    assert said.endswith("trained tail token+mix, distance of its groups 0.250 (stock heads 0.500))")


def test_a_file_gives_back_what_was_saved(folder, trained, stock):
    assert list(trained.tails()) == [1, 5]
    for seq_groups, words in ((1, ("token", "rank")), (5, ())):
        parts = trained.tails()[seq_groups].parts
        wanted = random_parts(seq_groups, *words)
        assert parts.keys() == wanted.keys()
        assert all(torch.equal(parts[name], wanted[name]) for name in wanted)
    assert trained.tails()[1].info == ABOUT
    assert trained.tails("stock") == {} == stock.tails()
    assert not list(folder.glob("*.part"))


def test_the_choice_is_checked():
    with pytest.raises(ValueError, match="tail is 'best': choose one of auto, stock"):
        GenerateOptions(tail="best")


def rewrite(path: Path, change) -> None:
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    change(tensors, metadata)
    save_file(tensors, path, metadata=metadata)


def put(name: str, tensor: torch.Tensor):
    return lambda tensors, _: tensors.update({name: tensor})


BAD = {
    "another version": (lambda _, words: words.update(version="2"), "format version 2 and this pack reads 1"),
    "a foreign file": (lambda _, words: words.pop("format"), "is not a file of trained tails"),
    "another checkpoint": (lambda _, words: words.update(predictor="00"), "trained for another checkpoint"),
    "no list": (lambda _, words: words.pop("tails"), "is damaged"),
    "a deep list": (lambda _, words: words.update(tails="[" * 100_000), "is damaged"),
    "a broken list": (lambda _, words: words.update(tails="[1]"), "is damaged"),
    "a tail of 15": (lambda _, words: words.update(tails=json.dumps({"15": vars(ABOUT)})), "is damaged"),
    "a tail without parts": (
        lambda _, words: words.update(tails=json.dumps({**json.loads(words["tails"]), "7": vars(ABOUT)})),
        "SEQ_GROUPS 7 has no part",
    ),
    "a wrong shape": (put("5.token", torch.zeros(3, WIDTH)), r"token is torch.float32 \(3, 64\), expected"),
    "integers": (put("5.token", torch.zeros(VOCAB, WIDTH, dtype=torch.int64)), "token is torch.int64"),
    "a number that is none": (
        put("5.token", torch.full((VOCAB, WIDTH), torch.nan)),
        "token contains numbers",
    ),
    "an unknown part": (put("5.bias", torch.zeros(3)), "'bias' is not a part of a tail"),
    "half a pair": (lambda tensors, _: tensors.pop("5.mix_up"), "mix_up and mix_down belong together"),
    "a tensor of no tail": (put("9.token", torch.zeros(VOCAB, WIDTH)), "is damaged"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_file_is_refused_by_name(folder, tmp_path, what):
    change, reason = BAD[what]
    checkpoint = tmp_path / "voice"
    shutil.copytree(folder, checkpoint)
    rewrite(checkpoint / TAIL_FILE, change)
    with pytest.raises(ValueError, match=reason) as error:
        load_model(checkpoint, LoadOptions("fp32", "sdpa"))
    assert "crossbar.safetensors of voice" in str(error.value)
    assert "delete it, or train it again with `python -m lab.tails" in str(error.value)


@pytest.mark.parametrize("size", [0, 20, 3000])
def test_a_cut_file_is_refused(folder, tmp_path, size):
    path = tmp_path / TAIL_FILE
    path.write_bytes((folder / TAIL_FILE).read_bytes()[:size])
    with pytest.raises(ValueError, match=r"crossbar\.safetensors of voice is damaged"):
        load_tails(path, folder, torch.zeros(15, VOCAB, WIDTH))


def test_checkpoints_of_the_same_shape_have_different_fingerprints(folder, tmp_path):
    other = write_checkpoint(tmp_path / "other", "tiny", "custom_voice", seed=1)
    assert predictor_fingerprint(other) != predictor_fingerprint(folder)
    shutil.copy(folder / TAIL_FILE, other / TAIL_FILE)
    with pytest.raises(ValueError, match=r"crossbar\.safetensors of other was trained for another checkpoint"):
        load_model(other)
