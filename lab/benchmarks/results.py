"""Store measurements: one JSON file per machine with its versions and a list of rows, each with its origin.

python -m lab.benchmarks.results OUT/*/*.json       # adds rows that were measured elsewhere
python -m lab.benchmarks.results FILE.json --commit c4b8170f --date 2026-11-28    # of rows without them
"""

from __future__ import annotations

import argparse
import json
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from pack import ROOT

from ..processor import processor_name
from .origin import RESULTS, Origin

FOLDER = ROOT / RESULTS
ORIGIN = [one.name for one in fields(Origin)]
PACKAGES = ("torch", "transformers", "qwen-tts", "qwen-tts-hf", "triton", "faster-qwen3-tts")


@dataclass(frozen=True)
class Row:
    """One measurement. ``details`` are the table's further columns, by name with unit; in the file they are keys of the
    row.

    ``ms_per_frame`` is for one frame of the whole batch; ``rtf`` is time divided by the audio of all lines together.
    """

    table: str
    system: str
    model: str
    engine: str
    precision: str
    seq_groups: int
    batch: int
    ms_per_frame: float
    audio_seconds_per_second: float
    rtf: float
    details: dict[str, float | str | None] = field(default_factory=dict)

    def flat(self) -> dict[str, Any]:
        """Return the row as one level of keys."""
        values = asdict(self)
        details = values.pop("details")
        return {**values, **details}


@dataclass(frozen=True)
class PartRow:
    """One measurement of a single stage; a table adds its figures. In the file the other keys of ``Row`` are null."""

    table: str
    system: str
    model: str
    engine: str
    precision: str
    batch: int

    def flat(self) -> dict[str, Any]:
        names = [one.name for one in fields(Row) if one.name != "details"]
        return {**dict.fromkeys(names), **asdict(self)}


def machine_name(device: torch.device) -> str:
    """Return the GPU's name, or the processor's with the number of threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{processor_name()}, {torch.get_num_threads()} threads"


def installed_versions() -> dict[str, str]:
    """Return the versions of the packages that the figures depend on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def save_rows(rows: Sequence[Row | PartRow], device: torch.device, options: argparse.Namespace) -> Path:
    """Write the rows to the machine's file, with their origin; rows of the same origin and kind are replaced.

    ``options`` are those of ``origin.add_output``.
    """
    origin = asdict(Origin.of(options.commit))
    made = [{**row.flat(), **origin} for row in rows]
    document = {"machine": machine_name(device), "versions": installed_versions(), "rows": made}
    return add_rows(document, file_of(document, options.out or FOLDER))


def file_of(document: Mapping[str, Any], folder: Path) -> Path:
    """Return the file of the machine that a document names."""
    name = re.sub(r"[^a-z0-9]+", "-", document["machine"].lower()).strip("-")
    return folder / f"{name}.json"


def add_rows(document: Mapping[str, Any], path: Path) -> Path:
    """Add a machine's rows to a file; those that were measured again are replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    measured = {_same(row) for row in document["rows"]}
    kept = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []
    rows = [*(row for row in kept if _same(row) not in measured), *document["rows"]]
    kept_of = {name: document[name] for name in ("machine", "versions")}
    path.write_text(json.dumps({**kept_of, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    return path


def _kind(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["table"], row["model"], is_int8(row.get("precision", ""))


def _same(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the key that a row shares with those of a repeated measurement."""
    return (*_kind(row), row.get("commit"), row.get("command"))


def latest(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows of the last day on which their table was measured, for each model, and INT8 or not."""
    days: dict[tuple[Any, ...], str] = {}
    for row in rows:
        days[_kind(row)] = max(days.get(_kind(row), ""), row["date"])
    return [row for row in rows if row["date"] == days[_kind(row)]]


def is_int8(precision: str) -> bool:
    """Whether a row's precision means INT8 weights."""
    return precision.startswith("int8")


def markdown(rows: Sequence[Row]) -> str:
    """Format the rows as a table; ``times faster`` is relative to the first row."""
    details = list(dict.fromkeys(name for row in rows for name in row.details))
    titles = [
        "system",
        "engine",
        "precision",
        "SEQ_GROUPS",
        "batch",
        "ms/frame",
        "audio s/s",
        "RTF",
        "times faster",
        *details,
    ]
    lines = [f"| {' | '.join(titles)} |", "|---|---|---" + "|--:" * (len(titles) - 3) + "|"]
    for row in rows:
        times = row.audio_seconds_per_second / rows[0].audio_seconds_per_second
        figures = [
            f"{row.ms_per_frame:.2f}",
            f"{row.audio_seconds_per_second:.1f}",
            f"{row.rtf:.4f}",
            f"{times:.2f}",
        ]
        figures += [_cell(row.details.get(name)) for name in details]
        cells = [row.system, row.engine, row.precision, str(row.seq_groups), str(row.batch), *figures]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    table = argparse.ArgumentParser(description="Add rows that were measured elsewhere.")
    table.add_argument("files", type=Path, nargs="+", help="as benchmarks wrote them under --out")
    table.add_argument("--into", type=Path, default=FOLDER, help="folder (default: lab/benchmarks/results)")
    for name in ORIGIN:
        table.add_argument(f"--{name}", help="of the rows that have none")
    options = table.parse_args(arguments)
    given = {name: value for name in ORIGIN if (value := getattr(options, name)) is not None}
    for path in options.files:
        document = json.loads(path.read_text(encoding="utf-8"))
        rows = [{**given, **row} for row in document["rows"]]
        if lacking := {name for name in ("commit", "date") for row in rows if not row.get(name)}:
            table.error(f"{path} has rows without {' and '.join(sorted(lacking))}: say it with --commit, --date")
        add_rows({**document, "rows": rows}, file_of(document, options.into))


if __name__ == "__main__":
    main()
