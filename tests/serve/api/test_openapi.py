"""What the server says of itself: the OpenAPI document, its page, and docs/server.md."""

import re

from qwen3_tts_morph.serve.api.options import Access, ServerOptions
from qwen3_tts_morph.serve.api.request import SamplingFields, Speech, flat
from qwen3_tts_morph.serve.remote.facts import speech_fields
from qwen3_tts_morph.serve.routes.app import FILES, App
from starlette.routing import Route

from pack import ROOT
from tests.serve.conftest import Client, asked

KEY = "correct-horse"
FIELDS = tuple(Speech.model_fields)
SAMPLING_FIELDS = tuple(SamplingFields.model_fields)


def test_the_document_has_every_route_and_every_field(client: Client) -> None:
    document = client.get("/openapi.json").json()
    there = {one.path_format for one in client.app.routes if isinstance(one, Route)}
    assert set(document["paths"]) == there - {*FILES, "/openapi.json"}
    assert all(one["description"] for path in document["paths"].values() for one in path.values())
    assert speech_fields(document) == FIELDS, "our own client reads it"
    schemas = document["components"]["schemas"]
    assert tuple(schemas["SamplingFields"]["properties"]) == SAMPLING_FIELDS
    assert schemas["Speech"]["properties"]["input"]["maxLength"] == 20_000
    assert schemas["Speech"]["required"] == ["input"]
    assert schemas["Speech"]["properties"]["language"]["examples"] == client.speaker.model.languages
    wrong_words = flat(schemas["Speech"]["properties"]["wrong_words"])
    assert wrong_words["enum"] == ["ignore"], "this checkpoint knows no words"
    assert [one["name"] for one in document["paths"]["/v1/models/{id}"]["get"]["parameters"]] == ["id"]
    upload = document["paths"]["/v1/audio/voices"]["post"]
    assert [one["name"] for one in upload["parameters"]] == ["name", "consent", "replace"]
    assert "422" not in upload["responses"] and "application/octet-stream" in upload["requestBody"]["content"]


def test_what_the_document_says_of_values_is_true(telling: Client) -> None:
    """The ends of each range and every choice are taken; what lies beyond is refused."""
    schemas = telling.get("/openapi.json").json()["components"]["schemas"]
    for name, schema in schemas["Speech"]["properties"].items():
        schema = flat(schema)
        if "maximum" in schema:
            more = {"stream_format": "sse"} if name == "event_interval" else {}
            ends = [telling.post(asked(**{**more, name: schema[end]})) for end in ("minimum", "maximum")]
            beyond = telling.post(asked(**{**more, name: schema["maximum"] + 1}))
            assert [*(one.status_code for one in ends), beyond.status_code] == [200, 200, 400], name
        if name == "voice_shift":
            pattern = schemas["VoiceShift"]["properties"]["toward"]["anyOf"][0]["pattern"]
            for names, fits in (("ryan", True), ("", False), (" ", False)):
                shift = {"toward": names, "away": "ryan"}
                assert (re.search(pattern, names) is not None) == fits
                assert ("toward of voice_shift is" in telling.post(asked(voice_shift=shift)).text) != fits
        for choice in schema.get("enum", ()):
            assert telling.post(asked(**{name: choice})).status_code == 200, (name, choice)


def test_a_key_is_told_and_not_asked_for_here(client: Client) -> None:
    keyed = Client(App(client.speaker, ServerOptions(Access(key=KEY))), client.speaker)
    paths = keyed.get("/openapi.json").json()["paths"]
    assert paths["/v1/models"]["get"]["security"] == [{"key": []}] and "security" not in paths["/health"]["get"]
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
        name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1] if "|" in row else "")
    }
