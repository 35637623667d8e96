"""A server's facts: its engine, its checkpoint, and its abilities."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from ...morph.hearing.whisper import CODES
from .reported import LISTED, Name, Names, Rate, Reported, read
from .servers import Server

SEED = "seed"
PARTS = "multipart"  # of ``stream_format``
OUR_UPLOADS = "comfyui-"  # prefix of voices that clients of this pack upload
SAMPLE_RATE = 24000  # Hz: of Qwen3-TTS; the audio of other servers is resampled to it
MOST_LINES = 64  # of a server that does not report its limit
MOST_AT_ONCE = 10**9
MOST_WIDTH = 10**6  # numbers of a speaker embedding
# For servers that do not report their checkpoint's.
PUBLISHED_LANGUAGES = ("auto", *CODES)
OURS, VLLM_OMNI, OTHER = "qwen3-tts-morph", "vLLM-Omni", "another server"


@dataclass(frozen=True)
class ServerFacts:
    """The facts of a server at the time of the question; "", () or 0 if it does not report one."""

    server: Server
    engine: str  # OURS, VLLM_OMNI or OTHER
    model: str  # the name of its checkpoint
    # Sorted and without our clients' uploads (OUR_UPLOADS): both change while lines are spoken.
    voices: tuple[str, ...]
    languages: tuple[str, ...] = ()  # of its checkpoint, as the next three; see ``Model``
    kind: str = ""
    size: str = ""
    width: int = 0
    sample_rate: int = SAMPLE_RATE
    fingerprint: str = ""  # a hash of all that it reports and that changes its audio
    takes_seed: bool = True  # requests may have a seed
    takes_interval: bool = False  # requests may set a shortest time between events
    sends_parts: bool = False  # it can answer with offline audio and progress in parts
    most_lines: int = MOST_LINES  # the most concurrent requests
    follows_instructions: bool = True  # our server ignores them if its checkpoint cannot
    tells_words: bool = False  # answers may have word times

    def __str__(self) -> str:
        return f"{self.server}, {self.engine}"

    def speaker(self, name: str) -> str:
        """Return a voice's name as the server spells it; ValueError, with all names, for an unknown one."""
        known = {voice.lower(): voice for voice in self.voices}
        if name.strip().lower() not in known:
            there = f"choose one of {', '.join(self.voices)}" if self.voices else "it lists none"
            raise ValueError(f"server {self} has no voice {name[:64]!r}: {there}")
        return known[name.strip().lower()]


class ServerStatus(Reported):
    """The answer of this pack's server to ``/v1/status``."""

    model: Name
    kind: Name
    size: Name
    fingerprint: Name
    width: Annotated[int, Field(ge=1, le=MOST_WIDTH)]
    sample_rate: Rate
    languages: Names = ()
    fields: Names = ()
    stream_formats: Names = ()
    most_lines: Annotated[int, Field(ge=1, le=MOST_AT_ONCE)] = MOST_LINES
    follows_instructions: bool = True
    word_times: bool = False


class Named(Reported):
    """A voice or a model in a list."""

    id: Name


class Lists(Reported):
    """The answers to ``/v1/audio/voices`` and ``/v1/models``."""

    voices: Annotated[tuple[Name | Named, ...], LISTED] = ()
    data: Annotated[tuple[Named, ...], LISTED] = ()


def read_facts(
    server: Server,
    status: Mapping[str, Any] | None,
    voices: Mapping[str, Any] | None,
    models: Mapping[str, Any] | None,
    schema: Any,
) -> ServerFacts:
    """Read the answers to ``/v1/status`` (only ours has it), ``/v1/audio/voices`` and ``/v1/models``.

    ``schema``, the OpenAPI document, tells whether an unknown server accepts a seed. Raises ValueError for answers of
    another shape.
    """
    listed = read(Lists, {**(models or {}), "voices": (voices or {}).get("voices", [])})
    ids = [one.id if isinstance(one, Named) else one for one in listed.voices]
    names = tuple(sorted(name for name in ids if not name.startswith(OUR_UPLOADS)))
    if status is not None and status.get("server") == OURS:
        ours = read(ServerStatus, status)
        same = {name: value for name, value in vars(ours).items() if name in ServerFacts.__dataclass_fields__}
        if ours.fingerprint and ours.sample_rate != SAMPLE_RATE:  # one track has one rate
            same["fingerprint"] += f" {ours.sample_rate} Hz"
        return ServerFacts(
            server,
            OURS,
            voices=names,
            **same,
            takes_interval="event_interval" in ours.fields,
            sends_parts=PARTS in ours.stream_formats,
            tells_words=ours.word_times,
        )
    engine = VLLM_OMNI if "uploaded_voices" in (voices or {}) else OTHER
    model = listed.data[0].id if listed.data else ""
    fingerprint = hashlib.sha256(f"{server.url} {engine} {model}".encode()).hexdigest()
    takes_seed = engine == VLLM_OMNI or SEED in speech_fields(schema)
    return ServerFacts(server, engine, model, names, fingerprint=fingerprint, takes_seed=takes_seed)


def speech_fields(schema: Any) -> tuple[str, ...]:
    """Return the fields of a speech request in an OpenAPI document, or ()."""
    try:
        body = schema["paths"]["/v1/audio/speech"]["post"]["requestBody"]["content"]["application/json"]
        fields = body["schema"]
        if "$ref" in fields:
            fields = schema["components"]["schemas"][fields["$ref"].rpartition("/")[2]]
        return tuple(fields["properties"])
    except (KeyError, TypeError, AttributeError):
        return ()
