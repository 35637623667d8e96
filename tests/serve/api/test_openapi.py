"""What the server says of itself: the OpenAPI document, its page, and docs/server.md."""

from __future__ import annotations

import re

from qwen3_tts_morph.serve.api.options import Access, ServerOptions
from qwen3_tts_morph.serve.api.request import FIELDS, SAMPLING_FIELDS
from qwen3_tts_morph.serve.remote.facts import speech_fields
from qwen3_tts_morph.serve.routes.app import FILES, Handlers, create_app
from starlette.routing import Route

from pack import ROOT
from tests.serve.conftest import Client, asked

KEY = "correct-horse"


def test_the_document_has_every_route_and_every_field(client: Client) -> None:
    document = client.get("/openapi.json").json()
    routes = Handlers(client.speaker, ServerOptions()).routes
    there = {one.path_format for one in routes if isinstance(one, Route)} - set(FILES)
    assert set(document["paths"]) == there and document["openapi"] == "3.1.0"
    assert all(one["summary"] for path in document["paths"].values() for one in path.values())
    assert speech_fields(document) == FIELDS, "our own client reads it"
    speech = document["components"]["schemas"]["Speech"]
    assert tuple(speech["properties"]["sampling"]["properties"]) == SAMPLING_FIELDS
    assert speech["properties"]["input"]["maxLength"] == 20_000 and speech["required"] == ["input"]
    assert [one["name"] for one in document["paths"]["/v1/models/{id}"]["get"]["parameters"]] == ["id"]


def test_what_the_document_says_of_values_is_true(telling: Client) -> None:
    """The ends of each range and every choice are taken; what lies beyond is refused."""
    fields = telling.get("/openapi.json").json()["components"]["schemas"]["Speech"]["properties"]
    for name, schema in fields.items():
        if "maximum" in schema:
            more = {"stream_format": "sse"} if name == "event_interval" else {}
            ends = [telling.post(asked(**{**more, name: schema[end]})) for end in ("minimum", "maximum")]
            beyond = telling.post(asked(**{**more, name: schema["maximum"] + 1}))
            assert [*(one.status_code for one in ends), beyond.status_code] == [200, 200, 400], name
        if name == "voice_shift":
            pattern = schema["properties"]["toward"]["anyOf"][0]["pattern"]
            for names, fits in (("ryan", True), ("", False), (" ", False)):
                shift = {"toward": names, "away": "ryan"}
                assert (re.search(pattern, names) is not None) == fits
                assert ("names no voices" in telling.post(asked(voice_shift=shift)).text) != fits
        for choice in schema.get("enum", ()):
            assert telling.post(asked(**{name: choice})).status_code == 200, (name, choice)


def test_a_key_is_told_and_not_asked_for_here(client: Client) -> None:
    keyed = Client(create_app(client.speaker, ServerOptions(Access(key=KEY))), client.speaker)
    paths = keyed.get("/openapi.json").json()["paths"]
    assert (
        paths["/v1/models"]["get"]["security"] == [{"key": []}] and "security" not in paths["/health"]["get"]
    )
    assert "security" not in client.get("/openapi.json").json()["paths"]["/v1/models"]["get"]


def test_the_page_lists_the_routes_and_the_fields_without_a_script(client: Client) -> None:
    answer = client.get("/docs")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    named = re.findall(r"<code>([^<]+)</code></th>", answer.text)
    assert {"POST /v1/audio/speech", "GET /v1/models/{id}", *FIELDS, *SAMPLING_FIELDS} <= set(named)
    assert "<script" not in answer.text and "style=" not in answer.text
    linked = re.findall(r'<(?:link rel="stylesheet"|a) [^>]*href="([^"]+)"', answer.text)
    assert [client.get(f"/{one.removeprefix('./')}").status_code for one in linked] == [200] * len(linked)


def test_the_documentation_has_every_field() -> None:
    pages = [(ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("server", "server-api")]
    table = "\n".join(text.partition("| field | values |")[2].partition("\n\n")[0] for text in pages)
    assert set(FIELDS) == {
        name
        for row in table.splitlines()
        for name in re.findall(r"`(\w+)`", row.split("|")[1] if "|" in row else "")
    }
