"""The demo voice's model card, from its files and from what the judges wrote.

    python -m lab.training.card --voice demo_voice --row "codec alone" judged/codec --row "clones" judged/test

Fills ``card.md`` in and writes ``README.md`` into the voice's folder. A row is a folder with the judges'
``judged.json`` and, where the voice spoke itself, with ``endings.json`` of ``lab.training.evaluate``; no figure is
typed.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qwen3_tts_morph.morph.checkpoint.tail_file import FILE as TAILS
from safetensors import safe_open

TEMPLATE = Path(__file__).parent / "card.md"
# figure of judged.json: the table's heading, factor, digits
COLUMNS: dict[str, tuple[str, float, int]] = {
    "wer": ("word errors %", 100, 1),
    "identified": ("voice identified %", 100, 1),
    "similarity_to_reference": ("likeness to references", 1, 2),
    "similarity_to_original": ("likeness to the original", 1, 2),
    "distillmos": ("DistillMOS", 1, 2),
    "dnsmos_overall": ("DNSMOS", 1, 2),
}
PARTS = {
    "talker.code_predictor": "code predictor (5 layers, 15 heads)",
    "talker": "talker",
    "speaker_encoder": "speaker encoder (ECAPA)",
    "encoder": "codec encoder",
    "decoder": "codec decoder",
}


def read_figures(folder: Path) -> dict[str, dict[str, float]]:
    """What the judges found; ValueError where they have not been."""
    path = folder / "judged.json"
    if not path.is_file():
        raise ValueError(f"{path} is not there: run python -m lab.judges for {folder} first")
    figures: dict[str, dict[str, float]] = json.loads(path.read_text(encoding="utf-8"))["figures"]
    return figures


def cell(figure: dict[str, float] | None, factor: float, digits: int) -> str:
    """A figure with its 95 % interval, or nothing."""
    if figure is None:
        return ""
    value, low, high = (f"{figure[key] * factor:.{digits}f}" for key in ("value", "low", "high"))
    return f"{value} ({low}-{high})"


def endings(folder: Path) -> tuple[str, str]:
    """The share of lines that ended by themselves, and the real-time factor, of a folder that a voice spoke."""
    path = folder / "endings.json"
    if not path.is_file():
        return "", ""
    about = json.loads(path.read_text(encoding="utf-8"))
    share = 100 * about["ended"].get("eos", 0) / about["lines"]
    return f"{share:.1f}", f"{about['rtf']:.2f} (batch {about['batch_size']})"


def table(rows: Sequence[tuple[str, Path]]) -> str:
    """A markdown table with a line for each row."""
    titles = ["", "lines", *(title for title, _, _ in COLUMNS.values()), "ended by themselves %", "RTF"]
    lines = ["| " + " | ".join(titles) + " |", "|---|" + "--:|" * (len(titles) - 1)]
    for name, folder in rows:
        figures = read_figures(folder)
        cells = [cell(figures.get(key), factor, digits) for key, (_, factor, digits) in COLUMNS.items()]
        lines.append("| " + " | ".join([name, str(figures["wer"]["lines"]), *cells, *endings(folder)]) + " |")
    return "\n".join(lines)


def count_parameters(voice: Path) -> Counter[str]:
    """How many numbers each part of a checkpoint holds, by the longest prefix in PARTS."""
    counts: Counter[str] = Counter()
    for path in (voice / "model.safetensors", voice / "speech_tokenizer" / "model.safetensors"):
        with safe_open(path, "np") as file:
            for name in file.keys():  # noqa: SIM118  (not a dict)
                part = next((prefix for prefix in PARTS if name.startswith(prefix + ".")), "other")
                counts[PARTS.get(part, part)] += math.prod(file.get_slice(name).get_shape())
    return counts


def describe_parts(voice: Path) -> str:
    """A markdown list of the parts with millions of numbers, the checkpoint's size, and that of its trained tails."""
    counts = count_parameters(voice)
    files = [path for path in voice.rglob("*") if path.is_file() and path.suffix != ".md"]
    size = sum(path.stat().st_size for path in files if path.name != TAILS)
    lines = [f"- {part}: {count / 1e6:.1f} M" for part, count in counts.most_common()]
    lines.append(f"- in all {sum(counts.values()) / 1e6:.1f} M numbers, {size / 1e6:.1f} MB")
    tails = voice / TAILS
    if tails.is_file():
        about = f"{tails.stat().st_size / 1e6:.1f} MB: no part of the published format, upstream does not read them"
        lines.append(f"- and trained tails of the crossbar (`{TAILS}`), {about}")
    return "\n".join(lines)


def describe_shapes(voice: Path) -> dict[str, Any]:
    """What the card says of the shape, from the configs."""
    config = json.loads((voice / "config.json").read_text(encoding="utf-8"))["talker_config"]
    predictor = config["code_predictor_config"]
    return {
        "talker_layers": config["num_hidden_layers"],
        "talker_width": config["hidden_size"],
        "predictor_layers": predictor["num_hidden_layers"],
        "predictor_width": predictor["hidden_size"],
        "codebook": predictor["vocab_size"],
        "speakers": ", ".join(sorted(config.get("spk_id", {}))),
    }


def write_card(voice: Path, rows: Sequence[tuple[str, Path]]) -> Path:
    """Fill the template in; give the card's path."""
    text = TEMPLATE.read_text(encoding="utf-8").format(
        figures=table(rows), parts=describe_parts(voice), **describe_shapes(voice)
    )
    card = voice / "README.md"
    card.write_text(text, encoding="utf-8")
    return card


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.training.card", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--voice", type=Path, required=True, help="the checkpoint's folder, which gets the card"
    )
    parser.add_argument(
        "--row", nargs=2, action="append", required=True, metavar=("NAME", "DIR"), help="a line of the table"
    )
    given = parser.parse_args()
    write_card(given.voice, [(name, Path(folder)) for name, folder in given.row])
    return 0


if __name__ == "__main__":
    sys.exit(main())
