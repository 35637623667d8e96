"""The page ``/docs``: the OpenAPI document as tables, without a script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "page" / "docs.html"
KINDS = {
    "string": "text",
    "boolean": "true or false",
    "integer": "a whole number",
}


def render(document: Mapping[str, Any]) -> str:
    """Return the page of a document that ``openapi.describe`` has made."""
    speech = document["components"]["schemas"]["Speech"]["properties"]
    answer = document["paths"]["/v1/audio/speech"]["post"]["responses"]["200"]
    routes = [
        (f"{method.upper()} {path}", one["summary"])
        for path, methods in document["paths"].items()
        for method, one in methods.items()
    ]
    return PAGE.read_text(encoding="utf-8").format(
        title=escape(document["info"]["title"]),
        version=escape(document["info"]["version"]),
        parts=escape(document["paths"]["/v1/audio/speech"]["post"]["description"]),
        routes=_table(("Route", "What it does"), routes),
        fields=_table(("Field", "Values", "What it says"), _rows(speech)),
        sampling=_table(("Field", "Values", "What it says"), _rows(speech["sampling"]["properties"])),
        headers=_table(
            ("Header", "What it says"),
            [(name, one["description"]) for name, one in answer["headers"].items()],
        ),
    )


def values_of(schema: Mapping[str, Any]) -> str:
    """Return in a few words what a field may be."""
    if "anyOf" in schema:
        return 'a name, or {"id": name}'
    kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    words = [KINDS.get(one, one) for one in kinds if one != "null"]
    if "enum" in schema:
        words = [", ".join(one for one in schema["enum"] if one is not None)]
    elif "maximum" in schema:
        words = [" to ".join(_number(schema[end]) for end in ("minimum", "maximum"))]
    elif "properties" in schema:
        words = [f"an object with {', '.join(schema['properties'])}"]
    elif "maxLength" in schema:
        words = [f"at most {schema['maxLength']} characters"]
    if "default" in schema:
        words.append(f"default {schema['default']}")
    return "; ".join(words)


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _rows(fields: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    return [(name, values_of(one), one["description"]) for name, one in fields.items()]


def _table(heads: Iterable[str], rows: Iterable[tuple[str, ...]]) -> str:
    top = "".join(f'<th scope="col">{escape(one)}</th>' for one in heads)
    lines = [
        f'<tr><th scope="row"><code>{escape(first)}</code></th>'
        + "".join(f"<td>{escape(one)}</td>" for one in rest)
        + "</tr>"
        for first, *rest in rows
    ]
    return f"<table><thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
