"""Config files: JSON, with the differences to another file if they name one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_values(path: Path) -> dict[str, Any]:
    """Return a config file's JSON object, with what its base adds."""
    values = json.loads(path.read_text(encoding="utf-8"))
    base = values.pop("base", None)
    return values if base is None else _changed(read_values(path.parent / base), values)


def _changed(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = {
        name: _changed(values[name], change) if isinstance(change, dict) and name in values else change
        for name, change in changes.items()
    }
    return {**values, **merged}
