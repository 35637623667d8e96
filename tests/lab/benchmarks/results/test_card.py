"""The demo voice's model card: figures are those of the rows, shapes and sizes those of the files."""

from __future__ import annotations

import math
import re
from collections import Counter

from qwen3_tts_morph.morph.checkpoint.tail_file import FILE as TAILS
from safetensors import safe_open

from tests.lab.benchmarks.results.test_readme import ROOT, check_cell, read_rows, table

CARD = "demo_voice/README.md"
VOICE = ROOT / "demo_voice"
# The columns after the number of lines, and their fields in a row.
COLUMNS = {
    "word errors %": "wrong_words_percent",
    "voice identified %": "identified_percent",
    "similarity to references": "similarity_to_references",
    "similarity to the original": "similarity_to_original",
    "DistillMOS": "distillmos",
    "DNSMOS": "dnsmos",
}
# The first prefix that a tensor's name has is its part.
PARTS = {
    "talker.code_predictor": "code predictor",
    "talker": "talker",
    "speaker_encoder": "speaker encoder",
    "encoder": "codec encoder",
    "decoder": "codec decoder",
}


def test_the_figures_are_those_of_the_rows() -> None:
    rows = {row["row"]: row for row in read_rows("demo_voice_card")}
    cells = table(CARD, "", "lines", *COLUMNS, "ended by themselves %", "RTF")
    assert [line[0] for line in cells] == list(rows)
    for name, lines, *figures, ended, rtf in cells:
        row = rows[name]
        check_cell(lines, row["lines"])
        for cell, field in zip(figures, COLUMNS.values(), strict=True):
            check_cell(cell, *(row[field] or [None]))
        check_cell(ended, row["ended_percent"])
        check_cell(rtf, row["rtf"], row["batch"])
        assert row["date"] in (ROOT / CARD).read_text(encoding="utf-8")
        assert row["commit"] and row["command"]


def count_parameters() -> Counter[str]:
    """Count the parameters of each part of the voice."""
    counts: Counter[str] = Counter()
    for path in (VOICE / "model.safetensors", VOICE / "speech_tokenizer" / "model.safetensors"):
        with safe_open(path, "np") as file:
            for name in file.keys():  # noqa: SIM118  (not a dict)
                part = next(part for prefix, part in PARTS.items() if name.startswith(f"{prefix}."))
                counts[part] += math.prod(file.get_slice(name).get_shape())
    return counts


def test_the_sizes_are_those_of_the_files() -> None:
    text, counts = (ROOT / CARD).read_text(encoding="utf-8"), count_parameters()
    said = re.findall(r"^- ([a-z ]+?)(?: \(.*\))?: ([\d.]+) M$", text, re.M)
    assert said == [(part, f"{count / 1e6:.1f}") for part, count in counts.most_common()]
    files = [path for path in VOICE.rglob("*") if path.is_file() and path.suffix != ".md"]
    size = sum(path.stat().st_size for path in files if path.name != TAILS)
    assert f"- total {counts.total() / 1e6:.1f} M parameters, {size / 1e6:.1f} MB\n" in text
    assert f"(`{TAILS}`), {(VOICE / TAILS).stat().st_size / 1e6:.1f} MB:" in text
