"""The answers and this server's limits in ``/openapi.json``; the rest comes from routes and ``fields``."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema

from ...morph.audio.formats import SERVED
from ...morph.options import IGNORE
from .fields import Schema, Speech
from .guard import KEYED
from .request import Rules


class ErrorDetails(BaseModel):
    """What was wrong, in one sentence."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(BaseModel):
    """An answer with another status than 200."""

    error: ErrorDetails


class Word(BaseModel):
    """When a word is heard."""

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


HEADERS = {
    "x-request-id": "the client's own, or another",
    "x-speech-seed": "of the line",
    "x-speech-seq-groups": "of the line",
    "x-speech-sample-rate": "in Hz",
    "x-speech-ignored": "fields that this checkpoint cannot follow, or that were removed",
    "x-speech-ended": "how the take ended, with stream false",
}
BINARY: Schema = {"schema": {"type": "string", "format": "binary"}}
FAILED: dict[int | str, Schema] = {
    "default": {"model": Error, "description": "What was wrong, in one sentence."}
}
SPOKEN: dict[int | str, Schema] = {
    200: {
        "model": SpeechJson,
        "description": "The sound, or events with it.",
        "headers": {
            name: {"description": about, "schema": {"type": "string"}} for name, about in HEADERS.items()
        },
        "content": dict.fromkeys((*SERVED.values(), "text/event-stream", "multipart/mixed"), BINARY),
    }
}


def body_of(content: Schema) -> Schema:
    """Document a route that reads its body itself, within the server's limits."""
    return {"requestBody": {"required": True, "content": content}}


def describe(app: FastAPI, rules: Rules, has_key: bool) -> None:
    """Complete the document of an application with all its routes: the limits of this server, and its key."""
    document = app.openapi()
    for path, operations in document["paths"].items():
        for operation in operations.values():
            operation |= {"security": [{"key": []}]} if has_key and path.startswith(KEYED) else {}
    _, schemas = models_json_schema([(Speech, "validation")], ref_template="#/components/schemas/{model}")
    fields = schemas["$defs"]["Speech"]["properties"]
    fields["input"]["maxLength"] = rules.limits.characters
    fields["seq_groups"]["default"] = rules.seq_groups
    fields["language"]["examples"] = list(rules.model.languages)
    if rules.model.alignment is None:  # nothing tells which words are spoken
        fields["wrong_words"]["anyOf"][0]["enum"] = [IGNORE]
        fields["return_timestamps"]["anyOf"][0]["const"] = False
    document["components"]["schemas"] |= schemas["$defs"]
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
