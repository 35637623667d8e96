"""The model card is filled in from the checkpoint's files and from the judges' figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from lab.random_checkpoint import write_checkpoint
from lab.training.card import (
    TEMPLATE,
    count_parameters,
    describe_parts,
    describe_shapes,
    write_card,
)


def judged(folder: Path, **figures: float) -> Path:
    folder.mkdir(parents=True)
    found = {
        name: {"value": value, "low": value / 2, "high": value * 2, "lines": 40}
        for name, value in figures.items()
    }
    (folder / "judged.json").write_text(json.dumps({"figures": found}), encoding="utf-8")
    return folder


def test_the_card_contains_the_judges_figures_and_the_files_sizes(tmp_path: Path):
    voice = write_checkpoint(tmp_path / "voice", "tiny", "base")
    coded = judged(tmp_path / "codec", wer=0.02, similarity_to_original=0.5)
    clones = judged(tmp_path / "clones", wer=0.1, identified=0.4, distillmos=2.5)
    about = {"lines": 40, "ended": {"eos": 38, "limit": 2}, "rtf": 0.345, "batch_size": 8}
    (clones / "endings.json").write_text(json.dumps(about), encoding="utf-8")
    text = write_card(voice, [("codec alone", coded), ("clones", clones)]).read_text(encoding="utf-8")
    assert "| codec alone | 40 | 2.0 (1.0-4.0) |  |  | 0.50 (0.25-1.00) |  |  |  |  |" in text
    assert (
        "| clones | 40 | 10.0 (5.0-20.0) | 40.0 (20.0-80.0) |  |  | 2.50 (1.25-5.00) |  | 95.0 | 0.34 (batch 8) |"
        in text
    )
    files = (voice / "model.safetensors", voice / "speech_tokenizer" / "model.safetensors")
    numbers = sum(tensor.numel() for file in files for tensor in load_file(file).values())
    assert sum(count_parameters(voice).values()) == numbers and "other" not in count_parameters(voice)
    size = next(line for line in text.splitlines() if f"total {numbers / 1e6:.1f} M parameters" in line)
    (voice / "crossbar.safetensors").write_bytes(bytes(3_200_000))
    with_tails = write_card(voice, [("codec alone", coded)]).read_text(encoding="utf-8")
    assert size in with_tails and "crossbar" not in text
    assert "trained tails of the crossbar (`crossbar.safetensors`), 3.2 MB" in with_tails


def test_a_row_that_was_not_judged_is_refused(tmp_path: Path):
    voice = write_checkpoint(tmp_path / "voice", "tiny", "base")
    with pytest.raises(ValueError, match=r"judged\.json"):
        write_card(voice, [("clones", tmp_path)])


def test_the_demo_voices_card_is_the_template_with_the_voices_own_shapes_and_sizes():
    voice = Path(__file__).parents[3] / "demo_voice"
    card = (voice / "README.md").read_text(encoding="utf-8")
    figures = "\n".join(line for line in card.splitlines() if line.startswith("|"))
    filled = TEMPLATE.read_text(encoding="utf-8").format(
        figures=figures, parts=describe_parts(voice), **describe_shapes(voice)
    )
    assert card == filled
