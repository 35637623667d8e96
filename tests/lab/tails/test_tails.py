"""Training a tail: it gets closer to exact than the stock crossbar, and is used after loading."""

from pathlib import Path

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.checkpoint.trained_files import TAIL_FILE
from qwen3_tts_morph.morph.options import LoadOptions

from lab.random_checkpoint import write_checkpoint
from lab.tails.__main__ import parse_arguments, train

pytestmark = pytest.mark.slow

TEXTS = ["One.", "Two and three.", "Four?", "Five, six."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    return write_checkpoint(tmp_path_factory.mktemp("crossbar") / "voice", "tiny", "custom_voice")


def test_the_command_writes_a_file_that_loading_uses(folder, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("# not spoken\n\n" + "\n".join([*TEXTS, *"abcde"]), encoding="utf-8")
    words = ["--checkpoint", str(folder), "--seq-groups", "3,14", "--texts", str(texts), "--device", "cpu"]
    words += ["--lines", "9", "--takes", "2", "--steps", "40", "--variant", "token+mix"]
    words += ["--recording", str(tmp_path / "kept.safetensors")]
    run = parse_arguments(words)
    assert run.out == folder / TAIL_FILE
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
        (folder / TAIL_FILE).unlink(missing_ok=True)
