"""Write the demo voice's model card from its files and from the judges' figures.

    python -m lab.training.card --voice demo_voice --row "codec alone" judged/codec --row "clones" judged/test

Fills in the template ``card.md`` and writes ``README.md`` into the voice's folder. A row is a folder with the judges'
``judged.json`` and, if the voice spoke these lines itself, ``endings.json`` of ``lab.training.evaluate``. No figure is
typed by hand.
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
# A figure in judged.json: its heading in the table, its factor, its digits.
COLUMNS: dict[str, tuple[str, float, int]] = {
    "wer": ("word errors %", 100, 1),
    "identified": ("voice identified %", 100, 1),
    "similarity_to_reference": ("similarity to references", 1, 2),
    "similarity_to_original": ("similarity to the original", 1, 2),
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
    """Return the judges' figures; ValueError if the folder has not been judged."""
    path = folder / "judged.json"
    if not path.is_file():
        raise ValueError(f"{path} does not exist: run python -m lab.judges for {folder} first")
    figures: dict[str, dict[str, float]] = json.loads(path.read_text(encoding="utf-8"))["figures"]
    return figures


def cell(figure: dict[str, float] | None, factor: float, digits: int) -> str:
    """Format a figure with its 95 % interval; empty for None."""
    if figure is None:
        return ""
    value, low, high = (f"{figure[key] * factor:.{digits}f}" for key in ("value", "low", "high"))
    return f"{value} ({low}-{high})"


def endings(folder: Path) -> tuple[str, str]:
    """Return the percentage of lines that ended with EOS, and the real-time factor; empty without ``endings.json``."""
    path = folder / "endings.json"
    if not path.is_file():
        return "", ""
    about = json.loads(path.read_text(encoding="utf-8"))
    share = 100 * about["ended"].get("eos", 0) / about["lines"]
    return f"{share:.1f}", f"{about['rtf']:.2f} (batch {about['batch_size']})"


def table(rows: Sequence[tuple[str, Path]]) -> str:
    """Return a markdown table with one line per row."""
    titles = ["", "lines", *(title for title, _, _ in COLUMNS.values()), "ended by themselves %", "RTF"]
    lines = ["| " + " | ".join(titles) + " |", "|---|" + "--:|" * (len(titles) - 1)]
    for name, folder in rows:
        figures = read_figures(folder)
        cells = [cell(figures.get(key), factor, digits) for key, (_, factor, digits) in COLUMNS.items()]
        lines.append("| " + " | ".join([name, str(figures["wer"]["lines"]), *cells, *endings(folder)]) + " |")
    return "\n".join(lines)


def count_parameters(voice: Path) -> Counter[str]:
    """Count each part's parameters in a checkpoint, by the first matching prefix in PARTS."""
    counts: Counter[str] = Counter()
    for path in (voice / "model.safetensors", voice / "speech_tokenizer" / "model.safetensors"):
        with safe_open(path, "np") as file:
            for name in file.keys():  # noqa: SIM118  (not a dict)
                part = next((prefix for prefix in PARTS if name.startswith(prefix + ".")), "other")
                counts[PARTS.get(part, part)] += math.prod(file.get_slice(name).get_shape())
    return counts


def describe_parts(voice: Path) -> str:
    """Return a markdown list: each part's parameters, the checkpoint's size, and that of its trained tails."""
    counts = count_parameters(voice)
    files = [path for path in voice.rglob("*") if path.is_file() and path.suffix != ".md"]
    size = sum(path.stat().st_size for path in files if path.name != TAILS)
    lines = [f"- {part}: {count / 1e6:.1f} M" for part, count in counts.most_common()]
    lines.append(f"- total {sum(counts.values()) / 1e6:.1f} M parameters, {size / 1e6:.1f} MB")
    tails = voice / TAILS
    if tails.is_file():
        about = f"{tails.stat().st_size / 1e6:.1f} MB: not part of the published format; upstream does not read them"
        lines.append(f"- plus trained tails of the crossbar (`{TAILS}`), {about}")
    return "\n".join(lines)


def describe_shapes(voice: Path) -> dict[str, Any]:
    """Return the shapes that the card states, from the configs."""
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
    """Fill in the template and write the card; return its path."""
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
        "--voice", type=Path, required=True, help="the checkpoint's folder; the card is written into it"
    )
    parser.add_argument(
        "--row", nargs=2, action="append", required=True, metavar=("NAME", "DIR"), help="a row of the table"
    )
    given = parser.parse_args()
    write_card(given.voice, [(name, Path(folder)) for name, folder in given.row])
    return 0


if __name__ == "__main__":
    sys.exit(main())
