"""The schema of a node, with what users search for if they do not know its name (``web/js/aliases.json``)."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from comfy_api.latest import io

from .sockets import CATEGORY

log = logging.getLogger(__name__)

ALIASES = Path(__file__).resolve().parents[1] / "web" / "js" / "aliases.json"  # the page reads it too
FIELD = "search_aliases"  # of ``io.Schema``, in newer ComfyUIs


def schema(node_id: str, display_name: str, description: str, advanced: str = "", **fields: Any) -> io.Schema:
    """Return ``io.Schema`` in the pack's category, with the aliases of its node, where this ComfyUI has them.

    ``advanced``: the widgets that the page folds (``web/js/fold.js``). Old input classes have no argument for it.
    """
    for widget in fields["inputs"]:
        if widget.id in advanced.split():
            widget.extra_dict["advanced"] = True
    if FIELD in {field.name for field in dataclasses.fields(io.Schema)}:
        fields[FIELD] = list(read_aliases().get(node_id, ()))
    return io.Schema(node_id, display_name, category=CATEGORY, description=description, **fields)


def listed(failed: str, names: Callable[[], list[str]], otherwise: Sequence[str] = ()) -> list[str]:
    """Return the names for a widget's list, ``otherwise`` if there are none or an error comes, which is logged.

    ComfyUI builds all schemas of a pack in one ``try``: an error here would remove every node of the pack.
    """
    try:
        return names() or list(otherwise)
    except Exception as error:
        log.warning("%s: %s", failed, error, exc_info=True)
        return list(otherwise)


def output(kind: Any, name: str, tooltip: str, shown: str = "", many: bool = False) -> io.Output:
    """Return an output of a node: ``shown`` is its name there, if it is another; ``many``: it gives a list."""
    made: io.Output = kind.Output(name, display_name=shown or name, is_output_list=many, tooltip=tooltip)
    return made


@cache
def read_aliases() -> dict[str, list[str]]:
    """Return the aliases by node id."""
    found: dict[str, list[str]] = json.loads(ALIASES.read_text(encoding="utf-8"))
    return found
