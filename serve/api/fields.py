"""The fields of requests as pydantic models, for checks and for ``/openapi.json``."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    create_model,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema
from typing_extensions import Self

from ...morph.audio.formats import SERVED
from ...morph.options import (
    LAYOUTS,
    REQUEST,
    SEED,
    SHIFT_STRENGTHS,
    GenerateOptions,
    Sampling,
    TokenSampling,
)
from ...morph.setting import LARGEST, Setting, settings_of
from ...morph.text.encoding import check_encodable, join_halves
from ...morph.text.pronunciation import LONGEST_READING
from ...morph.voice.recording import LONGEST_READ_S
from ..audio.speed import HIGHEST_SPEED, LOWEST_SPEED
from .errors import ApiError

Schema = dict[str, Any]
TEXTS: dict[str, str] = json.loads(Path(__file__).with_name("fields.json").read_text(encoding="utf-8"))
PART: dict[str, Any] = {"ge": 0, "le": LONGEST_READ_S}  # of a recording, in seconds
DEPRECATED: Schema = {"deprecated": True}
NULL, ABOUT = {"type": "null"}, ("title", "description", "default", "deprecated")

STREAM_FORMATS = ("audio", "sse", "multipart", "json")
COMPLETE_FORMATS = ("multipart", "json")  # of these, the offline ones
LONGEST_INTERVAL_S = 10.0  # between events
LONGEST_SPLIT = GenerateOptions.split_chars  # characters: a piece is held in memory
SUBTALKER = "subtalker_"
MOST_ENTRIES = 500  # of a list or an object: words of a request's own pronunciation list
MOST_SHIFTED = 8  # voices of a mean: each is looked up


def flat(schema: Schema) -> Schema:
    """Return a field's schema without its null."""
    options = [one for one in schema.get("anyOf", ()) if one != NULL]
    return {**schema, "anyOf": [], **options[0]} if len(options) == 1 else schema


def allowed(schema: Schema) -> str:
    """Return the numbers or choices of a field in a few words; "" for other fields."""
    low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    if choices := schema.get("enum"):
        return " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))
    if schema.get("type") == "boolean":
        return "true or false"
    if schema.get("type") == "integer":
        return f"a whole number, {low} or more" if high is None else f"a whole number from {low} to {high}"
    if schema.get("type") == "number":
        return f"{low:g} to {high:g}" if "minimum" in schema else f"above {low:g}, at most {high:g}"
    return ""


def _complete(schema: Schema) -> None:
    """Add the fields' texts, and null to optional ones."""
    for name, one in schema["properties"].items():
        if name in TEXTS:
            one["description"] = TEXTS[name]
        if name not in schema.get("required", ()) and NULL not in one.get("anyOf", ()):
            about = {key: one.pop(key) for key in ABOUT if key in one}
            schema["properties"][name] = {"anyOf": [*(one.get("anyOf") or [one]), NULL], **about}


class Fields(BaseModel):
    """A JSON object of a request. Unknown fields are refused; null stands for a missing field.

    Raises ApiError 400, with the field and its values, instead of pydantic's error.
    """

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, json_schema_extra=_complete)
    PART_OF: ClassVar[str] = ""  # the object's own field in a request

    @model_validator(mode="wrap")
    @classmethod
    def _explain(cls, sent: Any, check: ModelWrapValidatorHandler[Self]) -> Self:
        fields = cls._known(sent)
        try:
            return check(fields)
        except ValidationError as error:
            raise cls._refusal(error.errors(include_url=False)[0], fields) from None

    @classmethod
    def _known(cls, sent: Any) -> dict[str, Any]:
        """Return the fields without nulls. Refuse long lists here: pydantic would collect all their errors."""
        what, known = cls.PART_OF or "the request", cls.model_fields
        if not isinstance(sent, dict):
            raise ApiError(400, f"{what} is not a JSON object: send one with the fields {', '.join(known)}")
        for name, value in sent.items():
            if name not in known and cls.model_config["extra"] == "forbid":
                why = f"{what} has a field {name[:64]!r}, which this server does not know: leave it out"
                raise ApiError(400, why, name[:64])
            if isinstance(value, list | dict) and len(value) > MOST_ENTRIES:
                why = f"{name} has {len(value)} entries and {MOST_ENTRIES} are allowed: send fewer"
                raise ApiError(400, why, name)
        return {name: value for name, value in sent.items() if value is not None}

    @classmethod
    def _refusal(cls, error: Any, fields: dict[str, Any]) -> ApiError:
        name = str(error["loc"][0])
        param, whose = (cls.PART_OF, f"{name} of {cls.PART_OF}") if cls.PART_OF else (name, name)
        if error["type"] == "value_error":
            return ApiError(400, str(error["ctx"]["error"]), param)
        if error["type"] == "string_too_long":
            return too_long(name, fields[name], error["ctx"]["max_length"])
        schema = flat(schema_of(cls)["properties"][name])
        choices = allowed(schema)
        wanted = f"choose {choices}" if choices else f"send {schema['description'].partition(';')[0]}"
        value = f"is {fields[name]!r:.40}" if name in fields else "is missing"
        return ApiError(400, f"{whose} {value}: {wanted}", param)


@cache
def schema_of(model: type[Fields]) -> Schema:
    return model.model_json_schema()


def too_long(name: str, text: str, most: int) -> ApiError:
    return ApiError(400, f"{name} has {len(text)} characters and {most} are allowed: send it in parts", name)


@dataclass(frozen=True)
class OneOf:
    """``Literal`` for choices from a table."""

    choices: tuple[str, ...]

    def __get_pydantic_core_schema__(self, *_: Any) -> CoreSchema:
        return core_schema.literal_schema(list(self.choices))


def _whole_characters(sent: object, info: ValidationInfo) -> object:
    return check_encodable(join_halves(sent), str(info.field_name)) if isinstance(sent, str) else sent


class VoiceId(BaseModel):
    """A voice as OpenAI's clients may name it."""

    model_config = ConfigDict(extra="forbid")
    id: str | None


Text = Annotated[str, BeforeValidator(_whole_characters)]
Name = Annotated[str, Field(pattern=r"\S")]
Names = Name | Annotated[list[Name], Field(min_length=1, max_length=MOST_SHIFTED)]


def about(description: str, default: Any = ..., **limits: Any) -> Any:
    return Field(default, description=description, **limits)


class VoiceShift(Fields):
    """Names of voices whose difference is added to a request's voice, and how often."""

    PART_OF = "voice_shift"
    toward: Names
    away: Names
    strength: float = Field(1.0, ge=SHIFT_STRENGTHS[0], le=SHIFT_STRENGTHS[1])


class _SamplingFields(Fields):
    PART_OF = "sampling"


class SettingsFields(Fields):
    """Settings of a request and of a WebSocket's first message; ``GENERATED`` has more."""

    model: str | None = None
    voice: Name | VoiceId | None = None
    voice_shift: VoiceShift | None = None
    instructions: Text = Field("", max_length=4096)  # as OpenAI's
    response_format: Annotated[str, OneOf(tuple(SERVED))] = "mp3"
    speed: float = Field(1.0, ge=LOWEST_SPEED, le=HIGHEST_SPEED)
    return_timestamps: bool = False
    language: str = "auto"
    decoding: Literal["crossbar", "lossless"] = Field("crossbar", json_schema_extra=DEPRECATED)
    continuity: bool = Field(False, json_schema_extra=DEPRECATED)
    pronunciation: dict[str, Annotated[str, Field(max_length=LONGEST_READING)]] | None = Field(
        None, max_length=MOST_ENTRIES
    )


class SpeechFields(SettingsFields):
    """``POST /v1/audio/speech``."""

    input: Text = Field(min_length=1)
    stream_format: Annotated[str, OneOf(STREAM_FORMATS)] = "audio"
    stream: bool | None = None
    event_interval: float = Field(0.0, ge=0, le=LONGEST_INTERVAL_S)


class ConfigFields(SettingsFields):
    """``session.config``, a WebSocket's first message."""

    type: str
    api_key: Any = None
    layout: Annotated[str, OneOf(LAYOUTS)] = LAYOUTS[0]
    response_format: Annotated[str, OneOf(tuple(SERVED))] = "pcm"


class Upload(Fields):
    """The query of an upload."""

    model_config = ConfigDict(strict=False, extra="ignore")
    name: str = about("what requests call the voice", min_length=1)
    consent: Literal["true"] = about("true if the person whose voice it is has agreed")
    replace: bool = about("true to replace an uploaded voice of this name", False)


class RecordingUpload(Upload):
    """The query of a recording whose voice is cloned."""

    transcript: str = about("the words of the recording, for the manner of speaking too", "")
    start: float = about("the second at which the part of the recording starts", 0.0, **PART)
    end: float = about("the second at which it ends; 0: the recording's end", 0.0, **PART)
    best: bool = about("true for the best 3 to 12 s, in place of start and end", False)


def _of(one: Setting, default: Any, words: str = "") -> tuple[Any, Any]:
    """Return a setting's type and field for ``create_model``."""
    kind: Any = Annotated[str, OneOf(one.choices)] if one.choices else one.kind
    limits: dict[str, Any] = {}
    if one.kind in (int, float):
        limits = {"gt" if one.above else "ge": one.low} | ({} if one.high == LARGEST else {"le": one.high})
    return kind | None, about(words or one.served or one.help, default, **limits)


TOKENS, OPTIONS = settings_of(TokenSampling, REQUEST), settings_of(GenerateOptions, REQUEST)
SAMPLING: dict[str, Any] = {
    **{name: _of(one, None) for name, one in TOKENS.items()},
    **{SUBTALKER + name: _of(one, None, f"{name} of groups 1 to 15") for name, one in TOKENS.items()},
    **{name: _of(one, None) for name, one in settings_of(Sampling, REQUEST).items()},
}
SamplingFields = create_model("SamplingFields", __base__=_SamplingFields, **SAMPLING)
GENERATED: dict[str, Any] = {
    **{one.public: _of(one, one.default) for one in OPTIONS.values()},
    "split_chars": _of(replace(OPTIONS["split_chars"], high=LONGEST_SPLIT), LONGEST_SPLIT),
    "seed": _of(SEED, None),
    "sampling": (SamplingFields | None, about("what differs from the checkpoint's own sampling", None)),
}
Speech = create_model("Speech", __base__=SpeechFields, **GENERATED)
SessionConfig = create_model("SessionConfig", __base__=ConfigFields, **GENERATED)
FIELDS = tuple(Speech.model_fields)
