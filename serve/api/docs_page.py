"""The page ``/docs``: the OpenAPI document as tables, without a script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from .fields import NULL, Schema, allowed

KINDS = {"string": "text", "array": "a list"}
FIELD = ("Field", "Values", "What it says")
OBJECTS = {"speech": "Speech", "sampling": "SamplingFields", "shift": "VoiceShift"}
PAGE = Path(__file__).parents[1] / "page" / "docs.html"


def render(document: Mapping[str, Any]) -> str:
    schemas = document["components"]["schemas"]
    answer = document["paths"]["/v1/audio/speech"]["post"]["responses"]["200"]
    routes = [
        (f"{method.upper()} {path}", one["description"])
        for path, methods in document["paths"].items()
        for method, one in methods.items()
    ]
    headers = [(name, one["description"]) for name, one in answer["headers"].items()]
    objects = {f"{name}_fields": _table(FIELD, _rows(schemas[one])) for name, one in OBJECTS.items()}
    return PAGE.read_text(encoding="utf-8").format(
        title=escape(document["info"]["title"]),
        version=escape(document["info"]["version"]),
        routes=_table(("Route", "What it does"), routes),
        headers=_table(("Header", "What it says"), headers),
        **objects,
    )


def values_of(schema: Schema) -> str:
    words = " or ".join(_kind(one) for one in schema.get("anyOf", [schema]) if one != NULL)
    default = schema.get("default")
    return f"{words}; default {str(default).removesuffix('.0')}" if default else words


def _kind(schema: Schema) -> str:
    longest = f"at most {schema['maxLength']} characters" if "maxLength" in schema else ""
    return allowed(schema) or longest or KINDS.get(schema.get("type", ""), "an object")


def _rows(schema: Schema) -> list[tuple[str, str, str]]:
    """Return the fields of an object, required ones first."""
    fields, needed = schema["properties"], schema.get("required", ())
    names = sorted(fields, key=lambda one: one not in needed)
    return [(one, values_of(fields[one]), fields[one]["description"]) for one in names]


def _table(heads: Iterable[str], rows: Iterable[tuple[str, ...]]) -> str:
    top = "".join(f'<th scope="col">{escape(one)}</th>' for one in heads)
    lines = [
        f'<tr><th scope="row"><code>{escape(first)}</code></th>'
        + "".join(f"<td>{escape(one)}</td>" for one in rest)
        + "</tr>"
        for first, *rest in rows
    ]
    return f"<table><thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
