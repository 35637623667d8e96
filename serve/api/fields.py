"""The fields of a request, each with its JSON schema: what ``request`` checks, and what ``openapi`` tells."""

from __future__ import annotations

from typing import Any

from ...morph.audio.formats import SERVED
from ...morph.options import (
    REQUEST,
    SEED,
    SHIFT_STRENGTHS,
    GenerateOptions,
    Sampling,
    TokenSampling,
)
from ...morph.setting import LARGEST, Setting, settings_of
from ...morph.text.pronunciation import LONGEST_READING
from ..audio.speed import HIGHEST_SPEED, LOWEST_SPEED

Schema = dict[str, Any]

STREAM_FORMATS = ("audio", "sse", "multipart", "json")
COMPLETE_FORMATS = ("multipart", "json")  # of these, those whose sound is made complete
LONGEST_INSTRUCTIONS = 4096  # characters, as OpenAI's
LONGEST_INTERVAL_S = 10.0  # between events
SHORTEST_SPLIT, LONGEST_SPLIT = 40, GenerateOptions.split_chars  # characters: a piece is kept in memory
MOST_PRONOUNCED = 500  # words of a request's own list


def _text(about: str, **more: Any) -> Schema:
    return {"type": "string", "description": about, **more}


def _choice(about: str, choices: tuple[str, ...], default: str) -> Schema:
    return _text(about, enum=list(choices), default=default)


def _number(about: str, low: float, high: float, **more: Any) -> Schema:
    return {"type": "number", "description": about, "minimum": low, "maximum": high, **more}


def _whole(about: str, low: int, high: int, **more: Any) -> Schema:
    return {**_number(about, low, high, **more), "type": "integer"}


def _switch(about: str) -> Schema:
    return {"type": "boolean", "description": about}


def _of(one: Setting) -> Schema:
    """Return the schema of a setting."""
    about = one.served or one.help
    if one.choices:
        return _choice(about, one.choices, one.default)
    if one.kind is bool:
        return _switch(about)
    return {
        "type": "integer" if one.kind is int else "number",
        "description": about,
        "minimum": one.low,
        **({} if one.high == LARGEST else {"maximum": one.high}),
        **({"exclusiveMinimum": one.low} if one.above else {}),
    }


def _all_of(options: type) -> dict[str, Schema]:
    """Return the schemas of the settings of a dataclass that requests have."""
    return {one.public: _of(one) for one in settings_of(options, REQUEST).values()}


TOKEN_SCHEMAS = _all_of(TokenSampling)
SUBTALKER = "subtalker_"
SAMPLING_SCHEMAS: dict[str, Schema] = {
    **TOKEN_SCHEMAS,
    **{
        SUBTALKER + name: {**schema, "description": f"{schema['description']}; of groups 1 to 15"}
        for name, schema in TOKEN_SCHEMAS.items()
    },
    **_all_of(Sampling),
}
MOST_SHIFTED = 8  # voices of a mean: each is looked up
VOICE_NAME: Schema = {"type": "string", "pattern": r"\S"}
VOICE_NAMES: Schema = {
    "anyOf": [VOICE_NAME, {"type": "array", "items": VOICE_NAME, "minItems": 1, "maxItems": MOST_SHIFTED}]
}
SHIFT_SCHEMAS: dict[str, Schema] = {
    "toward": {**VOICE_NAMES, "description": "a voice that has the mood, or several, whose mean is taken"},
    "away": {**VOICE_NAMES, "description": "one that does not, best of the same speaker, or several"},
    "strength": _number("how often the difference is added", *SHIFT_STRENGTHS, default=1),
}
SCHEMAS: dict[str, Schema] = {
    "model": _text("the loaded checkpoint's name, or one of OpenAI's such as tts-1, which stand for it"),
    "input": _text(
        "the text to speak; [pause 0.4] in it is silence of 0.4 s, and of <shown|read> the second side is read",
        minLength=1,
    ),
    "voice": {
        "description": "a name that GET /v1/audio/voices lists, or one of OpenAI's; left out: the first",
        "anyOf": [
            {"type": "string"},
            {
                "type": "object",
                "properties": {"id": {"type": ["string", "null"]}},
                "required": ["id"],
                "additionalProperties": False,
            },
        ],
    },
    "voice_shift": {
        "type": "object",
        "description": "moves the voice by the difference of others, such as angry less calm: names of toward and away "
        "(each one, or a list), and strength, -2 to 3; left out: the voice as it is",
        "properties": SHIFT_SCHEMAS,
        "required": ["toward", "away"],
        "additionalProperties": False,
    },
    "instructions": _text(
        "how to speak; a checkpoint that cannot follow them ignores them, and the header x-speech-ignored says so; for "
        "VoiceDesign the voice's description",
        maxLength=LONGEST_INSTRUCTIONS,
    ),
    "response_format": _choice("of the sound", tuple(SERVED), "mp3"),
    "stream_format": _choice(
        "the bytes as they are made, or server-sent events; multipart: the sound is made complete, and the answer's "
        "parts are JSON that tells the progress, the file, and JSON that tells how it went; json: one object, with the "
        "complete file as base64 in audio",
        STREAM_FORMATS,
        "audio",
    ),
    "speed": _number("of the speech, at the same pitch", LOWEST_SPEED, HIGHEST_SPEED, default=1),
    "stream": _switch("false: one file with its true length, which is made complete; not with sse"),
    "return_timestamps": _switch(
        "true tells when each word is heard: with sse in events speech.audio.timestamps, with multipart and json in "
        "timestamps; not for checkpoints without an alignment head"
    ),
    "event_interval": _number(
        "with sse: the shortest time between two events, in seconds; with multipart: the time between two parts that "
        "tell the progress (0: none do)",
        0,
        LONGEST_INTERVAL_S,
    ),
    "language": _text("of the text", default="auto"),
    "seed": _of(SEED),
    **_all_of(GenerateOptions),
    "sampling": {
        "type": "object",
        "description": "what differs from the checkpoint's own sampling",
        "properties": SAMPLING_SCHEMAS,
        "additionalProperties": False,
    },
    "decoding": {**_choice("ignored", ("crossbar", "lossless"), "crossbar"), "deprecated": True},
    "pronunciation": {
        "type": "object",
        "description": "how words are read, by word: they count before the server's own; not with layout token",
        "additionalProperties": {"type": "string", "maxLength": LONGEST_READING},
        "maxProperties": MOST_PRONOUNCED,
    },
    "continuity": {**_switch("ignored"), "deprecated": True},
    "split_chars": _whole(
        "the longest piece of a long text, in characters",
        SHORTEST_SPLIT,
        LONGEST_SPLIT,
        default=LONGEST_SPLIT,
    ),
}
