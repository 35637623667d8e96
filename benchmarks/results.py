"""Keep measurements: one JSON file a machine, a list of rows with the machine, the versions and the date once."""

from __future__ import annotations

import datetime
import json
import platform
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

FOLDER = Path(__file__).parent / "results"
PACKAGES = ("torch", "transformers", "qwen-tts", "qwen-tts-hf", "triton")


@dataclass(frozen=True)
class Row:
    """One measurement. ``predictor_ms`` is the part of ``ms_per_frame`` that predicts groups 1-15."""

    table: str
    system: str
    model: str
    engine: str
    precision: str
    seq_groups: int
    batch: int
    ms_per_frame: float
    predictor_ms: float
    audio_seconds_per_second: float
    rtf: float


def machine_name(device: torch.device) -> str:
    """A GPU's name, or the processor's."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"


def installed_versions() -> dict[str, str]:
    """The versions of what the figures depend on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def save_rows(rows: Sequence[Row], device: torch.device, folder: Path = FOLDER) -> Path:
    """Write the rows to the machine's file: rows of the same table and model are replaced."""
    name = re.sub(r"[^a-z0-9]+", "-", machine_name(device).lower()).strip("-")
    path = folder / f"{name}.json"
    folder.mkdir(parents=True, exist_ok=True)
    measured = {(row.table, row.model) for row in rows}
    kept = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []
    document = {
        "machine": machine_name(device),
        "versions": installed_versions(),
        "date": datetime.date.today().isoformat(),
        "rows": [row for row in kept if (row["table"], row["model"]) not in measured]
        + [asdict(row) for row in rows],
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return path


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table; ``times faster`` is against the first row, which should be upstream."""
    lines = [
        "| system | engine | SEQ_GROUPS | ms/frame | of it predictor | RTF | times faster |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        times = rows[0].ms_per_frame / row.ms_per_frame
        lines.append(
            f"| {row.system} | {row.engine} | {row.seq_groups} | {row.ms_per_frame:.1f} | {row.predictor_ms:.1f} "
            f"| {row.rtf:.2f} | {times:.2f} |"
        )
    return "\n".join(lines)
