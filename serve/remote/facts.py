"""A server's facts: its engine, its checkpoint, and its abilities."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .servers import Server
from .told import Fields, check_name, check_rate

SEED = "seed"
PARTS = "multipart"  # of ``stream_format``
OUR_UPLOADS = "comfyui-"  # prefix of voices that clients of this pack upload
SAMPLE_RATE = 24000  # Hz: of Qwen3-TTS; the audio of other servers is resampled to it
MOST_LINES = 64  # of a server that does not report its limit
MOST_AT_ONCE = 10**9
MOST_WIDTH = 10**6  # numbers of a speaker embedding
# For servers that do not report their checkpoint's.
PUBLISHED_LANGUAGES = (
    *("auto", "chinese", "english", "japanese", "korean", "german"),
    *("french", "russian", "portuguese", "spanish", "italian"),
)
OURS, VLLM_OMNI, OTHER = "qwen3-tts-morph", "vLLM-Omni", "another server"


@dataclass(frozen=True)
class ServerFacts:
    """A server, as it was when it was asked; "", () or 0 for what it does not report."""

    server: Server
    engine: str  # OURS, VLLM_OMNI or OTHER
    model: str  # the name of its checkpoint
    # Sorted, without those that our clients upload (OUR_UPLOADS): the server lists voices in the order of their use,
    # and both change while lines are spoken.
    voices: tuple[str, ...]
    languages: tuple[str, ...] = ()  # of its checkpoint, as the next three; see ``Model``
    kind: str = ""
    size: str = ""
    width: int = 0
    sample_rate: int = SAMPLE_RATE
    fingerprint: str = ""  # changes with everything that changes its audio, as far as it reports that
    takes_seed: bool = True  # requests may have a seed
    takes_interval: bool = False  # requests may set a shortest time between events
    sends_parts: bool = False  # it can answer with offline audio and progress in parts
    most_lines: int = MOST_LINES  # concurrent requests that it accepts
    follows_instructions: bool = True  # its checkpoint does; ours ignores them otherwise
    tells_words: bool = False  # answers may have word times

    @property
    def is_ours(self) -> bool:
        return self.engine == OURS

    def __str__(self) -> str:
        return f"{self.server}, {self.engine}"

    def speaker(self, name: str) -> str:
        """Return a voice's name as the server spells it; ValueError, with the names there are, for an unknown one."""
        known = {voice.lower(): voice for voice in self.voices}
        if name.strip().lower() not in known:
            there = f"choose one of {', '.join(self.voices)}" if self.voices else "it lists none"
            raise ValueError(f"server {self} has no voice {name[:64]!r}: {there}")
        return known[name.strip().lower()]


def read_facts(
    server: Server,
    status: Mapping[str, Any] | None,
    voices: Mapping[str, Any] | None,
    models: Mapping[str, Any] | None,
    schema: Any = None,
) -> ServerFacts:
    """Read the answers to ``/v1/status`` (only ours has it), ``/v1/audio/voices`` and ``/v1/models``.

    ``schema``, the OpenAPI document, tells whether an unknown server accepts a seed. Raises ValueError for answers of
    another shape.
    """
    listed = Fields(voices or {}).items("voices")
    names = tuple(sorted(name for name in map(_name, listed) if not name.startswith(OUR_UPLOADS)))
    if status is not None and status.get("server") == OURS:
        return _our_facts(server, names, Fields(status))
    ids = [Fields(one).name("id") for one in Fields(models or {}).items("data")]
    engine = VLLM_OMNI if "uploaded_voices" in (voices or {}) else OTHER
    model = ids[0] if ids else ""
    fingerprint = hashlib.sha256(f"{server.url} {engine} {model}".encode()).hexdigest()
    takes_seed = engine == VLLM_OMNI or SEED in speech_fields(schema)
    return ServerFacts(server, engine, model, names, fingerprint=fingerprint, takes_seed=takes_seed)


def _our_facts(server: Server, names: tuple[str, ...], status: Fields) -> ServerFacts:
    rate, fingerprint = check_rate(status.values.get("sample_rate")), status.name("fingerprint")
    if fingerprint and rate != SAMPLE_RATE:
        fingerprint += f" {rate} Hz"  # kept lines of two rates do not fit into one track
    return ServerFacts(
        server,
        OURS,
        status.name("model"),
        names,
        status.names("languages"),
        status.name("kind"),
        status.name("size"),
        status.whole("width", 1, MOST_WIDTH),
        rate,
        fingerprint,
        takes_interval="event_interval" in status.names("fields"),
        sends_parts=PARTS in status.names("stream_formats"),
        most_lines=status.whole("most_lines", 1, MOST_AT_ONCE, MOST_LINES),
        follows_instructions=status.truth("follows_instructions", True),
        tells_words=status.truth("word_times", False),
    )


def speech_fields(schema: Any) -> tuple[str, ...]:
    """Return the fields of a speech request in an OpenAPI document, or ()."""
    request = _inside(
        schema, "paths", "/v1/audio/speech", "post", "requestBody", "content", "application/json"
    )
    listed = _inside(request, "schema")
    if isinstance(name := _inside(listed, "$ref"), str):
        listed = _inside(schema, *name.removeprefix("#/").split("/"))
    fields = _inside(listed, "properties")
    return tuple(fields) if isinstance(fields, dict) else ()


def _inside(value: Any, *keys: str) -> Any:
    """Return what is inside nested objects; None if a key is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _name(voice: Any) -> str:
    return Fields(voice).name("id") if isinstance(voice, dict) else check_name(voice, "a voice")
