"""Training a tail: it starts as the stock crossbar, gets closer to exact, and is used after loading."""

from pathlib import Path

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.checkpoint.tail_file import FILE
from qwen3_tts_morph.morph.model.crossbar import crossbar, tail_logits
from qwen3_tts_morph.morph.model.tail import check_parts
from qwen3_tts_morph.morph.options import LoadOptions
from qwen3_tts_morph.morph.study.sweep import embed_inputs, sampled_distribution

from lab.random_checkpoint import write_checkpoint
from lab.tails.__main__ import parse_arguments, train
from lab.tails.examples import make_examples
from lab.tails.fit import Teacher
from lab.tails.measure import measure
from lab.tails.record import find_voices, plan_lines, record
from lab.tails.variants import initial

pytestmark = pytest.mark.slow

VARIANTS = ("heads", "rank4", "token", "mix", "groups", "token+mix+rank4", "token+groups+heads")
TEXTS = ["One.", "Two and three.", "Four?", "Five, six."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    return write_checkpoint(tmp_path_factory.mktemp("crossbar") / "voice", "tiny", "custom_voice")


@pytest.fixture(scope="module")
def model(folder):
    return load_model(folder, LoadOptions("fp32", "sdpa"))


@pytest.fixture(scope="module")
def recording(model):
    return record(model, plan_lines(TEXTS, find_voices(model, None, 0), 8, 0), 4, 0)


@pytest.fixture(scope="module")
def teacher(model) -> Teacher:
    heads = torch.stack([head.weight for head in model.talker.code_predictor.lm_head])
    return Teacher(heads, model.code_tables(), model.sampling.subtalker)


@pytest.mark.parametrize("seq_groups", [1, 5, 14])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_starts_as_the_stock_crossbar(teacher, variant, seq_groups):
    heads = teacher.heads[seq_groups:].float()
    parts = initial(variant, heads, teacher.tables[seq_groups - 1], 0.5, 0).parts()
    check_parts({name: part.detach() for name, part in parts.items()}, seq_groups, teacher.heads)
    random = torch.Generator().manual_seed(0)
    states, tokens = torch.randn(5, heads.shape[-1], generator=random), torch.arange(5)
    stock = crossbar(heads, states)
    # A layer with one output per group multiplies the heads in another order.
    exact = "groups" not in variant
    begun = tail_logits(parts, heads, states, tokens)
    assert torch.equal(begun, stock) if exact else torch.allclose(begun, stock, atol=1e-5)


def test_distances_equal_a_plain_computation(model, recording, teacher):
    """Compared with the definition, frame by frame, over the complete distribution."""
    kept = recording.split(4)[1]
    kept = kept.take(torch.arange(5))
    examples, sampling = make_examples(model, kept, 1, 0, [13]), model.sampling.subtalker
    module = model.talker.code_predictor
    found = measure({}, teacher, examples, 13)
    inputs = torch.cat((kept.hidden[:, None], embed_inputs(model, kept.codes)), dim=1)
    states = module.model(module.small_to_mtp_projection(inputs))[:, 1:]
    for index, group in enumerate((13, 14)):
        head = module.lm_head[group]
        exact, drawn = (sampled_distribution(head(states[:, at]), sampling) for at in (group, 12))
        warm = (head(states[:, 12]) / sampling.temperature).log_softmax(-1)
        divergence = torch.special.xlogy(exact, exact).sum(-1) - (exact * warm).sum(-1)
        assert found.divergence[index] == pytest.approx(divergence.mean().item(), abs=1e-4)
        distance = 0.5 * (exact - drawn).abs().sum(-1).mean().item()
        assert found.distance[index] == pytest.approx(distance, abs=1e-4)


def test_the_command_writes_a_file_that_loading_uses(folder, model, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("# not spoken\n\n" + "\n".join([*TEXTS, *"abcde"]), encoding="utf-8")
    words = ["--checkpoint", str(folder), "--seq-groups", "3,14", "--texts", str(texts), "--device", "cpu"]
    words += ["--lines", "9", "--takes", "2", "--steps", "40", "--variant", "token+mix"]
    words += ["--recording", str(tmp_path / "kept.safetensors")]
    run = parse_arguments(words)
    assert run.out == folder / FILE
    try:
        first = train(run)
        loaded = load_model(folder, LoadOptions("fp32", "sdpa")).tails()
        assert [tail.seq_groups for tail in first] == list(loaded) == [3, 14]
        for tail in first:
            assert loaded[tail.seq_groups].info == tail.info
            assert tail.info.variant == "token+mix" and tail.info.distance < tail.info.stock_distance
            for name, part in tail.parts.items():
                assert torch.equal(loaded[tail.seq_groups].parts[name], part.to(torch.bfloat16).float())
        again = train(run)  # from the stored recording
        assert [tail.info for tail in again] == [tail.info for tail in first]
    finally:
        (folder / FILE).unlink(missing_ok=True)
