"""Answers and this server's limits in ``/openapi.json`` (``fields`` and routes have the rest), and its page."""

from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema

from ...morph.audio.formats import SERVED
from ...morph.model.model import Model
from ...morph.options import IGNORE
from .middleware import HEADERS, KEYED
from .options import ServerOptions
from .request import NULL, Schema, Speech, allowed

BINARY: Schema = {"schema": {"type": "string", "format": "binary"}}
KINDS = {"string": "text", "array": "a list"}
OBJECTS = {"speech": "Speech", "sampling": "SamplingFields", "shift": "VoiceShift"}
PAGE = Path(__file__).parents[1] / "page" / "docs.html"


class ErrorDetails(BaseModel):
    """One sentence with the cause and the fix."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(BaseModel):
    """An answer with another status than 200."""

    error: ErrorDetails


class Word(BaseModel):
    """A word's time span."""

    word: str
    start_time: float = Field(description="seconds from the beginning of the sound that is sent")
    end_time: float
    first_char: int = Field(description="where it is in the input, in Unicode characters")
    last_char: int = Field(description="the character after its last one")


class SpeechJson(BaseModel):
    """With stream_format json; with multipart the last part has the same without the audio."""

    audio: str = Field(description="the file as base64")
    audio_format: str = Field(description="its media type")
    timestamps: list[Word] = Field([], description="with return_timestamps")
    usage: dict[str, Any]
    report: dict[str, Any]


FAILED: dict[int | str, Schema] = {"default": {"model": Error, "description": "What was wrong, in one sentence."}}
SPOKEN: dict[int | str, Schema] = {
    200: {
        "model": SpeechJson,
        "description": "The sound, or events with it.",
        "headers": {name: {"description": about, "schema": {"type": "string"}} for name, about in HEADERS.items()},
        "content": dict.fromkeys((*SERVED.values(), "text/event-stream", "multipart/mixed"), BINARY),
    }
}


def body_of(content: Schema) -> Schema:
    """Document a route that reads its body itself, within the server's limits."""
    return {"requestBody": {"required": True, "content": content}}


def describe(document: Schema, model: Model, options: ServerOptions) -> Schema:
    """Add this server's limits and its key to the document of all routes; return it."""
    for path, operations in document["paths"].items():
        for operation in operations.values() if options.access.key and path.startswith(KEYED) else ():
            operation["security"] = [{"key": []}]
    _, schemas = models_json_schema([(Speech, "validation")], ref_template="#/components/schemas/{model}")
    fields = schemas["$defs"]["Speech"]["properties"]
    fields["input"]["maxLength"] = options.limits.characters
    fields["seq_groups"]["default"] = options.seq_groups
    fields["language"]["examples"] = list(model.languages)
    if model.alignment is None:  # nothing tells which words are spoken
        fields["wrong_words"]["anyOf"][0]["enum"] = [IGNORE]
        fields["return_timestamps"]["anyOf"][0]["const"] = False
    document["components"]["schemas"] |= schemas["$defs"]
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return document


def render(document: Mapping[str, Any]) -> str:
    schemas = document["components"]["schemas"]
    answer = document["paths"]["/v1/audio/speech"]["post"]["responses"]["200"]
    routes = [
        (f"{method.upper()} {path}", one["description"])
        for path, methods in document["paths"].items()
        for method, one in methods.items()
    ]
    headers = [(name, one["description"]) for name, one in answer["headers"].items()]
    objects = {f"{name}_fields": _fields(schemas[one]) for name, one in OBJECTS.items()}
    return PAGE.read_text(encoding="utf-8").format(
        title=escape(document["info"]["title"]),
        version=escape(document["info"]["version"]),
        routes=_table(("Route", "Description"), routes),
        headers=_table(("Header", "Description"), headers),
        **objects,
    )


def _values(schema: Schema) -> str:
    words = " or ".join(_kind(one) for one in schema.get("anyOf", [schema]) if one != NULL)
    default = schema.get("default")
    return f"{words}; default {str(default).removesuffix('.0')}" if default else words


def _kind(schema: Schema) -> str:
    longest = f"at most {schema['maxLength']} characters" if "maxLength" in schema else ""
    return allowed(schema) or longest or KINDS.get(schema.get("type", ""), "an object")


def _fields(schema: Schema) -> str:
    """Return a table of an object's fields, required ones first."""
    fields, needed = schema["properties"], schema.get("required", ())
    names = sorted(fields, key=lambda one: one not in needed)
    rows = [(one, _values(fields[one]), fields[one]["description"]) for one in names]
    return _table(("Field", "Values", "Description"), rows)


def _table(heads: Iterable[str], rows: Iterable[tuple[str, ...]]) -> str:
    top = "".join(f'<th scope="col">{escape(one)}</th>' for one in heads)
    lines = [
        f'<tr><th scope="row"><code>{escape(first)}</code></th>'
        + "".join(f"<td>{escape(one)}</td>" for one in rest)
        + "</tr>"
        for first, *rest in rows
    ]
    return f"<table><thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
