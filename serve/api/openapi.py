"""The OpenAPI document: every route as it is, and the request's fields from ``fields``."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.routing import BaseRoute, Route

from ...morph.audio.formats import SERVED
from ..terminal.folders import pack_version
from .fields import SCHEMAS, Schema
from .guard import KEYED
from .request import Rules

BINARY = {"schema": {"type": "string", "format": "binary"}}
TEXT, TEXT_OR_NULL = {"type": "string"}, {"type": ["string", "null"]}
TOLD = {"message": TEXT, "type": TEXT, "param": TEXT_OR_NULL, "code": TEXT_OR_NULL}
ERROR: Schema = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "object", "required": list(TOLD), "properties": TOLD}},
}
WORD: Schema = {
    "type": "object",
    "required": ["word", "start_time", "end_time", "first_char", "last_char"],
    "properties": {
        "word": TEXT,
        "start_time": {
            "type": "number",
            "description": "seconds from the beginning of the sound that is sent",
        },
        "end_time": {"type": "number"},
        "first_char": {"type": "integer", "description": "where it is in the input, in Unicode characters"},
        "last_char": {"type": "integer", "description": "the character after its last one"},
    },
}
# With stream_format json; with multipart the last part has the same without the audio.
TOLD_ANSWER: Schema = {
    "type": "object",
    "required": ["audio", "audio_format", "usage", "report"],
    "properties": {
        "audio": {"type": "string", "description": "the file as base64"},
        "audio_format": {"type": "string", "description": "its media type"},
        "timestamps": {"type": "array", "items": WORD, "description": "with return_timestamps"},
        "usage": {"type": "object"},
        "report": {"type": "object"},
    },
}
HEADERS = {
    "x-request-id": "the client's own, or another",
    "x-speech-seed": "of the line",
    "x-speech-seq-groups": "of the line",
    "x-speech-sample-rate": "in Hz",
    "x-speech-ignored": "fields that this checkpoint cannot follow, or that were removed",
    "x-speech-ended": "how the take ended, with stream false",
}


def _query(name: str, about: str, required: bool = False, **more: Any) -> Schema:
    schema = {"type": "string", **more}
    return {"name": name, "in": "query", "required": required, "schema": schema, "description": about}


NAME = _query("name", "what requests call the voice", required=True, minLength=1)
CONSENT = _query("consent", "true if the person whose voice it is has agreed", required=True, enum=["true"])
REPLACE = _query("replace", "true to replace an uploaded voice of this name", enum=["true"])
TRANSCRIPT = _query("transcript", "the words of the recording, for the manner of speaking too")
PART = [
    _query("start", "the second at which the part of the recording starts", type="number", minimum=0),
    _query("end", "the second at which it ends; 0: the recording's end", type="number", minimum=0),
    _query("best", "true for the best 3 to 12 s, in place of start and end", enum=["true"]),
]
# What a route's own code does not say, by method and path.
DETAILS: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/v1/audio/speech"): {
        "description": "Text that comes in parts goes to the WebSocket /v1/audio/speech/stream.",
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Speech"}}},
        },
        "responses": {
            "200": {
                "description": "The sound, or events with it.",
                "headers": {name: {"description": about, "schema": TEXT} for name, about in HEADERS.items()},
                "content": {
                    **dict.fromkeys((*SERVED.values(), "text/event-stream", "multipart/mixed"), BINARY),
                    "application/json": {"schema": TOLD_ANSWER},
                },
            }
        },
    },
    ("POST", "/v1/audio/voices"): {
        "parameters": [NAME, CONSENT, REPLACE],
        "requestBody": {"required": True, "content": {"application/octet-stream": BINARY}},
    },
    ("POST", "/v1/audio/voices/clone"): {
        "parameters": [NAME, CONSENT, TRANSCRIPT, *PART],
        "requestBody": {"required": True, "content": {"audio/*": BINARY, "application/octet-stream": BINARY}},
    },
}


def describe(routes: Iterable[BaseRoute], rules: Rules, has_key: bool) -> dict[str, Any]:
    """Return the document.

    Args:
        routes: those that are described; WebSockets are no part of OpenAPI.
        rules: what requests are checked against.
        has_key: whether the server asks for one.
    """
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if isinstance(route, Route):
            for method in sorted((route.methods or set()) - {"HEAD"}):
                made = _operation(route, method, has_key)
                paths.setdefault(route.path_format, {})[method.lower()] = made
    schemas = {"Speech": _speech(rules), "Error": ERROR}
    security = {"key": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Qwen3-TTS Morph speech server", "version": pack_version()},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": security},
    }


def _operation(route: Route, method: str, has_key: bool) -> dict[str, Any]:
    more = DETAILS.get((method, route.path_format), {})
    summary = (inspect.getdoc(route.endpoint) or "").partition("\n")[0].replace("``", "")
    named = [
        {"name": name, "in": "path", "required": True, "schema": TEXT} for name in route.param_convertors
    ]
    failed = {
        "description": "What was wrong, in one sentence.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    made = {"summary": summary, **more}
    made["parameters"] = [*named, *more.get("parameters", ())]
    made["responses"] = {"200": {"description": "OK"}, **more.get("responses", {}), "default": failed}
    if has_key and route.path.startswith(KEYED):
        made["security"] = [{"key": []}]
    return made


def _speech(rules: Rules) -> Schema:
    fields = copy.deepcopy(SCHEMAS)
    fields["input"]["maxLength"] = rules.limits.characters
    fields["seq_groups"]["default"] = rules.seq_groups
    fields["language"]["examples"] = list(rules.model.languages)
    required = ["input"]
    return {
        "type": "object",
        "required": required,
        "properties": {name: one if name in required else _or_null(one) for name, one in fields.items()},
        "additionalProperties": False,
    }


def _or_null(schema: Mapping[str, Any]) -> Schema:
    """Return the schema of a field that may be null, which is as if it was left out."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    made = {**schema, "type": [schema["type"], "null"]}
    if "enum" in schema:
        made["enum"] = [*schema["enum"], None]
    if "properties" in schema:
        made["properties"] = {name: _or_null(one) for name, one in schema["properties"].items()}
    return made
