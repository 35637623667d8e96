"""Requests: their fields as pydantic models, also for ``/openapi.json``, then checked against checkpoint and limits."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pydantic
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import core_schema
from typing_extensions import Self

from ...morph import options as settings
from ...morph.audio.formats import SERVED
from ...morph.model.model import Model
from ...morph.options import GenerateOptions, Sampling, TokenSampling, removed_in
from ...morph.setting import LARGEST, Setting, settings_of
from ...morph.speech.takes import check_word_times
from ...morph.text.encoding import join_halves
from ...morph.text.pronunciation import LONGEST_READING, PronunciationList
from ...morph.text.split import check_encodable, check_spoken, read_pauses
from ...morph.voice.recording import LONGEST_READ_S
from ..encoding import HIGHEST_SPEED, LOWEST_SPEED
from .errors import ApiError, refusing
from .options import ServerOptions

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
MOST_PAUSES_S = 60.0  # of one request: silence takes memory and no time
# OpenAI's names, which clients send: they stand for the loaded checkpoint.
OPENAI_MODELS = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
TIMESTAMPS = "return_timestamps"
# A player needs the first frame at once; for rare events larger codec steps are cheaper.
SELDOM_CHUNKS = (12,)


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

    @pydantic.model_validator(mode="wrap")
    @classmethod
    def _explain(cls, sent: Any, check: pydantic.ModelWrapValidatorHandler[Self]) -> Self:
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


def one_of(choices: Iterable[str]) -> pydantic.GetPydanticSchema:
    """Return ``Literal`` for choices from a table."""
    return pydantic.GetPydanticSchema(lambda *_: core_schema.literal_schema(list(choices)))


def _whole_characters(sent: object, info: pydantic.ValidationInfo) -> object:
    return check_encodable(join_halves(sent), str(info.field_name)) if isinstance(sent, str) else sent


class VoiceId(BaseModel):
    """A voice as OpenAI's clients may name it."""

    model_config = ConfigDict(extra="forbid")
    id: str | None


Text = Annotated[str, BeforeValidator(_whole_characters)]
Name = Annotated[str, Field(pattern=r"\S")]
Reading = Annotated[str, Field(max_length=LONGEST_READING)]
Names = Name | Annotated[list[Name], Field(min_length=1, max_length=MOST_SHIFTED)]


def about(description: str, default: Any = ..., **limits: Any) -> Any:
    return Field(default, description=description, **limits)


class VoiceShift(Fields):
    """Names of voices whose difference is added to a request's voice, and how often."""

    PART_OF = "voice_shift"
    toward: Names
    away: Names
    strength: float = Field(1.0, ge=settings.SHIFT_STRENGTHS[0], le=settings.SHIFT_STRENGTHS[1])


class _SamplingFields(Fields):
    PART_OF = "sampling"


class SettingsFields(Fields):
    """Settings of a request and of a WebSocket's first message; ``GENERATED`` has more."""

    model: str | None = None
    voice: Annotated[Name | VoiceId | None, AfterValidator(lambda one: getattr(one, "id", one))] = None
    voice_shift: VoiceShift | None = None
    instructions: Text = Field("", max_length=4096)  # as OpenAI's
    response_format: Annotated[str, one_of(SERVED)] = "mp3"
    speed: float = Field(1.0, ge=LOWEST_SPEED, le=HIGHEST_SPEED)
    return_timestamps: bool = False
    language: str = "auto"
    decoding: Literal["crossbar", "lossless"] = Field("crossbar", json_schema_extra=DEPRECATED)
    continuity: bool = Field(False, json_schema_extra=DEPRECATED)
    pronunciation: dict[str, Reading] | None = Field(None, max_length=MOST_ENTRIES)


class SpeechFields(SettingsFields):
    """``POST /v1/audio/speech``."""

    input: Text = Field(min_length=1)
    stream_format: Annotated[str, one_of(STREAM_FORMATS)] = "audio"
    stream: bool | None = None
    event_interval: float = Field(0.0, ge=0, le=LONGEST_INTERVAL_S)


class ConfigFields(SettingsFields):
    """``session.config``, a WebSocket's first message."""

    type: str
    api_key: Any = None
    layout: Annotated[str, one_of(settings.LAYOUTS)] = settings.LAYOUTS[0]
    response_format: Annotated[str, one_of(SERVED)] = "pcm"


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
    kind: Any = Annotated[str, one_of(one.choices)] if one.choices else one.kind
    limits: dict[str, Any] = {}
    if one.kind in (int, float):
        limits = {"gt" if one.above else "ge": one.low} | ({} if one.high == LARGEST else {"le": one.high})
    return kind | None, about(words or one.served or one.help, default, **limits)


TOKENS = settings_of(TokenSampling, settings.REQUEST)
OPTIONS = settings_of(GenerateOptions, settings.REQUEST)
SAMPLING: dict[str, Any] = {
    **{name: _of(one, None) for name, one in TOKENS.items()},
    **{SUBTALKER + name: _of(one, None, f"{name} of groups 1 to 15") for name, one in TOKENS.items()},
    **{name: _of(one, None) for name, one in settings_of(Sampling, settings.REQUEST).items()},
}
SamplingFields = pydantic.create_model("SamplingFields", __base__=_SamplingFields, **SAMPLING)
GENERATED: dict[str, Any] = {
    **{one.public: _of(one, one.default) for one in OPTIONS.values()},
    "split_chars": _of(replace(OPTIONS["split_chars"], high=LONGEST_SPLIT), LONGEST_SPLIT),
    "seed": _of(settings.SEED, None),
    "sampling": (SamplingFields | None, about("what differs from the checkpoint's own sampling", None)),
}
Speech = pydantic.create_model("Speech", __base__=SpeechFields, **GENERATED)
SessionConfig = pydantic.create_model("SessionConfig", __base__=ConfigFields, **GENERATED)


@dataclass(frozen=True)
class SpeechRequest:
    """One request for speech, by HTTP or a WebSocket."""

    fields: Any  # as it was sent: ``SpeechFields`` or ``ConfigFields``
    language: str
    instructions: str | None
    seed: int
    generate: GenerateOptions
    ignored: tuple[str, ...]  # fields that were removed, or that the checkpoint does not support
    pronunciation: tuple[PronunciationList, ...]
    text: str | Iterable[str]  # an iterable gives it in parts
    layout: str = settings.LAYOUTS[0]  # how parts are spoken
    complete: bool = False  # offline, not streamed
    caller: str = ""  # the client's address


def read_request(fields: SpeechFields, model: Model, server: ServerOptions, caller: str = "") -> SpeechRequest:
    """Return the request of a ``caller``; ApiError 400, or 404 for a model that is not loaded."""
    text, way = fields.input, fields.stream_format
    if len(text) > server.limits.characters:
        raise too_long("input", text, server.limits.characters)
    read_silence(text, "input")
    with refusing("input"):
        check_spoken(text, "input")
    _check_stream(fields)
    complete = fields.stream is False or way in COMPLETE_FORMATS
    asked = read_settings(fields, model, server, text, complete=complete, caller=caller)
    changes: dict[str, Any] = {"chunk_frames": SELDOM_CHUNKS} if fields.event_interval else {}
    if complete and way != "multipart":  # clients of the latter retry themselves
        changes["retries"] = 1
    return replace(asked, generate=replace(asked.generate, **changes)) if changes else asked


def _check_stream(fields: SpeechFields) -> None:
    way, name = fields.stream_format, ""
    if way == "sse" and fields.stream is False:
        name, why = "stream", "stream is false and stream_format is sse: events are a stream, leave one out"
    elif way in COMPLETE_FORMATS and fields.stream is True:
        name, why = "stream", f"stream is true and stream_format is {way}, which is complete: leave one out"
    elif fields.event_interval and way in ("audio", "json"):
        name, why = "event_interval", "event_interval is for events: leave it out, or set stream_format to sse"
    elif fields.return_timestamps and way == "audio":
        name, why = TIMESTAMPS, "return_timestamps is true: set stream_format to json, sse or multipart, not audio"
    if name:
        raise ApiError(400, why, name)


def read_settings(
    fields: SettingsFields, model: Model, server: ServerOptions, text: str | Iterable[str], **more: Any
) -> SpeechRequest:
    """Return a request for speech with ``more`` fields of ``SpeechRequest``. Errors as ``read_request``."""
    check_model(fields.model, model)
    language = fields.language.strip().lower()
    if language not in model.languages:
        known = ", ".join(model.languages)
        raise ApiError(400, f"language is {fields.language!r:.40}: choose one of {known}", "language")
    instructions, ignored = _instructions(fields.instructions, model, server.strict)
    given = _given(fields)
    generate = _options(given, model.sampling, server.seq_groups)
    checked = {TIMESTAMPS: fields.return_timestamps, "wrong_words": generate.wrong_words != settings.IGNORE}
    for name in filter(checked.get, checked):
        with refusing(name):
            check_word_times(model)
    return SpeechRequest(
        fields=fields,
        language=language,
        instructions=instructions,
        seed=given["seed"] if "seed" in given else secrets.randbelow(2**32),
        generate=generate,
        ignored=(*ignored, *removed_in(given)),
        pronunciation=_pronunciation(fields.pronunciation or {}),
        text=text,
        **more,
    )


def read_silence(text: str, name: str, before: float = 0.0) -> float:
    """Return the seconds of a text's pauses, with those ``before`` it; ApiError 400 for a wrong one or too much."""
    with refusing(name):
        silence = before + sum(read_pauses(text).pauses_s)
    if silence > MOST_PAUSES_S:
        why = f"{name} has {silence:g} s of pauses and {MOST_PAUSES_S:g} are allowed: make them shorter"
        raise ApiError(400, why, name)
    return silence


def check_model(name: str | None, model: Model) -> None:
    """Raise ApiError 404 unless a name stands for the model that is loaded; None does."""
    if name is None or name == model.name or name.startswith(OPENAI_MODELS):
        return
    raise ApiError(404, f"model {name[:64]!r} is not loaded: send {model.name!r}, or tts-1", "model", "model_not_found")


def _instructions(words: str, model: Model, strict: bool) -> tuple[str | None, tuple[str, ...]]:
    """Return the instructions, and the names of ignored fields: clients send them to every server."""
    if not words or model.follows_instructions:
        return words or None, ()
    if strict:
        why = f"{model.name} does not follow instructions (only 1.7B CustomVoice and VoiceDesign were trained to)"
        raise ApiError(400, f"{why}: leave them out, or start the server without --strict", "instructions")
    return None, ("instructions",)


def _pronunciation(sent: Mapping[str, str]) -> tuple[PronunciationList, ...]:
    words = tuple((join_halves(word), join_halves(read)) for word, read in sent.items())
    with refusing("pronunciation", "pronunciation cannot be used, "):
        return (PronunciationList(words),) if words else ()


def _given(fields: BaseModel) -> dict[str, Any]:
    return {name: getattr(fields, name) for name in fields.model_fields_set}  # a third of the time of a dump


def _options(given: Mapping[str, Any], sampling: Sampling, seq_groups: int) -> GenerateOptions:
    if "sampling" in given:
        sampling = _sampling(_given(given["sampling"]), sampling)
    options = {name: given[one.public] for name, one in OPTIONS.items() if one.public in given}
    return GenerateOptions(**{"seq_groups": seq_groups, **options}, sampling=sampling, retries=0)


def _sampling(given: dict[str, Any], own: Sampling) -> Sampling:
    talker, subtalker = (
        {name: given.pop(prefix + name) for name in TOKENS if prefix + name in given} for prefix in ("", SUBTALKER)
    )
    changed = {"talker": talker, "subtalker": subtalker}
    with refusing("sampling"):
        tokens = {name: replace(getattr(own, name), **one) for name, one in changed.items() if one}
        return replace(own, **tokens, **given) if tokens or given else own
