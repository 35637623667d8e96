"""The schema of a node, with what users search for if they do not know its name (``web/js/aliases.json``)."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from pathlib import Path
from typing import Any

from comfy_api.latest import io

ALIASES = Path(__file__).resolve().parents[1] / "web" / "js" / "aliases.json"  # the page reads it too
FIELD = "search_aliases"  # of ``io.Schema``, in newer ComfyUIs


def schema(**fields: Any) -> io.Schema:
    """Return ``io.Schema`` with the aliases of its node, where this ComfyUI has them."""
    if FIELD in {field.name for field in dataclasses.fields(io.Schema)}:
        fields[FIELD] = list(read_aliases().get(fields["node_id"], ()))
    return io.Schema(**fields)


@cache
def read_aliases() -> dict[str, list[str]]:
    """Return the aliases by node id."""
    found: dict[str, list[str]] = json.loads(ALIASES.read_text(encoding="utf-8"))
    return found
