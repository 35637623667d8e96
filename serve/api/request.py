"""The fields of a request, checked: what is not known, or not possible, is refused with a sentence."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...morph.model.model import Model
from ...morph.options import IGNORE, REMOVED, GenerateOptions, Sampling, removed_in
from ...morph.speech.word_times import check_word_times
from ...morph.text.encoding import check_encodable, join_halves
from ...morph.text.pauses import check_spoken, read_pauses
from ...morph.text.pronunciation import PronunciationList
from .errors import ApiError
from .fields import (
    COMPLETE_FORMATS,
    LONGEST_INSTRUCTIONS,
    MOST_PRONOUNCED,
    SAMPLING_SCHEMAS,
    SCHEMAS,
    SHIFT_SCHEMAS,
    SUBTALKER,
    TOKEN_SCHEMAS,
    Schema,
)
from .options import Limits
from .voice_shift import NAME as VOICE_SHIFT
from .voice_shift import VoiceShift, read_shift

RANDOM_SEEDS = 2**32
MOST_PAUSES_S = 60.0  # of one request: silence takes memory and no time
# Names that clients send because OpenAI's models have them: they stand for the one that is loaded.
OPENAI_MODELS = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
FIELDS = tuple(SCHEMAS)
TIMESTAMPS = "return_timestamps"
SAMPLING_FIELDS = tuple(SAMPLING_SCHEMAS)
# A player hears the first frame at once; what is sent seldom is decoded in larger steps.
SELDOM_CHUNKS = (12,)


@dataclass(frozen=True)
class Settings:
    """What a request may say beside its text, and a WebSocket in its first message.

    Args:
        voice: the name of one, or None for the server's first.
        language: of the text.
        instructions: how to speak, or None.
        seed: of the line.
        audio: the format of the bytes.
        generate: the engine's options.
        speed: of the sound that is sent, 0.25..4.
        ignored: fields of the request that this checkpoint cannot follow, or that were removed.
        complete: whether the sound is wanted at its end only.
        timestamps: whether it is wanted when each word is heard.
        pronunciation: how words are read.
        shift: where the voice is moved; None: it stays as it is.
    """

    voice: str | None
    language: str
    instructions: str | None
    seed: int
    audio: str
    generate: GenerateOptions
    speed: float = 1.0
    ignored: tuple[str, ...] = ()
    complete: bool = False
    timestamps: bool = False
    pronunciation: tuple[PronunciationList, ...] = ()
    shift: VoiceShift | None = None


@dataclass(frozen=True)
class SpeechRequest:
    """``POST /v1/audio/speech``.

    Args:
        text: what to speak.
        settings: how.
        way: how the bytes go, one of STREAM_FORMATS.
        interval_s: the shortest time between two events, in seconds; what is made meanwhile is sent in one event. Of a
            complete sound, between parts that tell the progress; 0: none do.
    """

    text: str
    settings: Settings
    way: str
    interval_s: float = 0.0

    @property
    def stream(self) -> bool:
        """Whether the bytes go as they are made; else the sound is made complete, and goes at its end."""
        return not self.settings.complete

    @property
    def sse(self) -> bool:
        """Whether the bytes go as server-sent events."""
        return self.way == "sse"


@dataclass(frozen=True)
class Rules:
    """What requests are checked against: the model, the server's SEQ_GROUPS and its limits.

    ``strict``: whether instructions that the checkpoint cannot follow are refused, not ignored.
    """

    model: Model
    seq_groups: int
    limits: Limits
    strict: bool = False


def read_request(body: object, rules: Rules) -> SpeechRequest:
    """Return a request's fields, checked.

    Raises:
        ApiError: 400, or 404 for a model that is not loaded.
    """
    fields = check_fields(body, FIELDS)
    text = read_text(fields, "input", rules.limits.characters)
    stream_format, stream = _value(fields, "stream_format"), _value(fields, "stream")
    if stream_format == "sse" and stream is False:
        raise _bad("stream", "stream is false and stream_format is sse: events are a stream, leave one out")
    if stream_format in COMPLETE_FORMATS and stream is True:
        raise _bad(
            "stream", f"stream is true and stream_format is {stream_format}, which is complete: leave one out"
        )
    interval_s = _value(fields, "event_interval", unit="seconds") or 0.0
    if interval_s and stream_format in ("audio", "json"):
        raise _bad(
            "event_interval", "event_interval is for events: leave it out, or set stream_format to sse"
        )
    settings = read_settings(fields, rules, "mp3")
    if interval_s:
        settings = replace(settings, generate=replace(settings.generate, chunk_frames=SELDOM_CHUNKS))
    if stream_format == "audio" and _value(fields, TIMESTAMPS):
        raise _bad(
            TIMESTAMPS,
            "return_timestamps is true and stream_format is audio, which has sound only: set stream_format to json, "
            "sse or multipart",
        )
    is_complete = stream is False or stream_format in COMPLETE_FORMATS
    timestamps = wants_timestamps(fields, rules)
    settings = replace(settings, complete=is_complete, timestamps=timestamps)
    return SpeechRequest(text, settings, stream_format, interval_s)


def wants_timestamps(fields: Mapping[str, Any], rules: Rules) -> bool:
    """Return whether the times of words are wanted; ApiError 400 where nothing tells them."""
    if not _value(fields, TIMESTAMPS):
        return False
    _check_followed(TIMESTAMPS, rules)
    return True


def _check_followed(name: str, rules: Rules) -> None:
    """Raise ApiError 400 for a field that needs to know which words are spoken, where nothing tells it."""
    try:
        check_word_times(rules.model)
    except ValueError as error:
        raise _bad(name, str(error)) from error


def read_settings(fields: Mapping[str, Any], rules: Rules, audio: str) -> Settings:
    """Return what the fields say beside the text; ``audio`` is the format where they name none.

    Raises:
        ApiError: 400, or 404 for a model that is not loaded.
    """
    check_model(fields.get("model"), rules.model)
    instructions, ignored = _instructions(fields, rules)
    seed = _value(fields, "seed")
    return Settings(
        voice=_voice(fields.get("voice")),
        language=_language(fields.get("language"), rules.model.languages),
        instructions=instructions,
        seed=secrets.randbelow(RANDOM_SEEDS) if seed is None else seed,
        audio=audio if fields.get("response_format") is None else _value(fields, "response_format"),
        generate=_options(fields, rules),
        speed=float(_value(fields, "speed")),
        ignored=(*ignored, *_removed(fields)),
        pronunciation=_pronunciation(fields.get("pronunciation")),
        shift=_shift(fields.get(VOICE_SHIFT)),
    )


def check_fields(body: object, known: tuple[str, ...], what: str = "the body") -> dict[str, Any]:
    """Return a JSON object's fields if all of them are known; ApiError 400 if not."""
    if not isinstance(body, dict):
        raise ApiError(400, f"{what} is not a JSON object: send one with the fields {', '.join(known)}")
    for name in body:
        if name not in known:
            raise _bad(
                name[:64], f"{what} has a field {name[:64]!r}, which this server does not know: leave it out"
            )
    return body


def read_text(fields: Mapping[str, Any], name: str, longest: int) -> str:
    """Return a text that can be spoken; ApiError 400 if it cannot."""
    if fields.get(name) is None:
        raise _bad(name, f"{name} is missing: send the text to speak")
    text = _text(fields, name, longest)
    read_silence(text, name)
    try:
        return check_spoken(text, name)
    except ValueError as error:
        raise _bad(name, str(error)) from error


def read_silence(text: str, name: str, before: float = 0.0) -> float:
    """Return the seconds of a text's pauses, with those ``before`` it; ApiError 400 for a wrong one or too much."""
    try:
        silence = before + sum(read_pauses(text).pauses_s)
    except ValueError as error:
        raise _bad(name, str(error)) from error
    if silence > MOST_PAUSES_S:
        raise _bad(
            name, f"{name} has {silence:g} s of pauses and {MOST_PAUSES_S:g} are allowed: make them shorter"
        )
    return silence


def _bad(param: str, message: str) -> ApiError:
    return ApiError(400, message, param)


def _text(fields: Mapping[str, Any], name: str, longest: int) -> str:
    text = fields.get(name)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise _bad(name, f"{name} is {type(text).__name__}, not text: send a string")
    if len(text) > longest:
        raise _bad(name, f"{name} has {len(text)} characters and {longest} are allowed: send it in parts")
    try:
        return check_encodable(join_halves(text), name)
    except ValueError as error:
        raise _bad(name, str(error)) from error


def _value(fields: Mapping[str, Any], name: str, unit: str = "") -> Any:
    """Return a field as its schema has it: its default, or None, if it was left out; ApiError 400 for another value."""
    schema, value = SCHEMAS[name], fields.get(name)
    if value is None:
        return schema.get("default")
    if wanted := _wanted(schema, value, unit):
        raise _bad(name, f"{name} is {value!r:.40}: {wanted}")
    return value


def _wanted(schema: Schema, value: Any, unit: str) -> str:
    """Return what a field should be instead of this value; "" if its schema has the value."""
    kind = schema["type"]
    if kind == "boolean":
        return "" if isinstance(value, bool) else "choose true or false"
    if choices := schema.get("enum"):
        return "" if isinstance(value, str) and value in choices else f"choose one of {', '.join(choices)}"
    low, high, kinds = schema["minimum"], schema["maximum"], int if kind == "integer" else (int, float)
    is_number = isinstance(value, kinds) and not isinstance(value, bool)
    if is_number and low <= value <= high:
        return ""
    if kind == "integer":
        return f"send a whole number from {low} to {high}"
    return f"choose {low:g} to {high:g} {unit}".rstrip() if is_number else "send a number"


def _language(name: object, known: Sequence[str]) -> str:
    language = name.strip().lower() if isinstance(name, str) else "auto" if name is None else ""
    if language not in known:
        raise _bad("language", f"language is {name!r:.40}: choose one of {', '.join(known)}")
    return language


def _instructions(fields: Mapping[str, Any], rules: Rules) -> tuple[str | None, tuple[str, ...]]:
    """Return how to speak, and the names of the fields that are ignored: clients send them to every server."""
    name = "instructions"
    words = _text(fields, name, LONGEST_INSTRUCTIONS)
    if not words or rules.model.follows_instructions:
        return words or None, ()
    if rules.strict:
        raise _bad(
            name,
            f"{rules.model.name} does not follow instructions (only 1.7B CustomVoice and VoiceDesign were trained "
            "to): leave them out, or start the server without --strict",
        )
    return None, (name,)


def _removed(fields: Mapping[str, Any]) -> tuple[str, ...]:
    return removed_in({name: _value(fields, name) for name in REMOVED})


def check_model(name: object, model: Model) -> None:
    """Raise ApiError, 404 or 400, unless a name stands for the model that is loaded; None does."""
    if name is None or name == model.name or (isinstance(name, str) and name.startswith(OPENAI_MODELS)):
        return
    if not isinstance(name, str):
        raise _bad("model", f"model is {type(name).__name__}, not text: send {model.name!r}")
    raise ApiError(
        404, f"model {name[:64]!r} is not loaded: send {model.name!r}, or tts-1", "model", "model_not_found"
    )


def _voice(voice: object) -> str | None:
    """Return the name in ``"name"`` or ``{"id": "name"}``."""
    if isinstance(voice, dict) and set(voice) == {"id"}:
        voice = voice["id"]
    if voice is None:
        return None
    if not isinstance(voice, str) or not voice.strip():
        raise _bad("voice", 'voice is not a name: send one that GET /v1/audio/voices lists, or {"id": name}')
    return voice


def _pronunciation(sent: object) -> tuple[PronunciationList, ...]:
    """Return the list of a request, at most one; ApiError 400 for another thing, or words that no list may have."""
    name = "pronunciation"
    if not sent:
        return ()
    if not isinstance(sent, dict) or not all(isinstance(one, str) for one in sent.values()):
        raise _bad(name, f'{name} is {sent!r:.40}: send an object such as {{"Nguyen": "win"}}')
    if len(sent) > MOST_PRONOUNCED:
        raise _bad(
            name, f"{name} has {len(sent)} words and {MOST_PRONOUNCED} are allowed: send those of the text"
        )
    try:
        return (
            PronunciationList(tuple((join_halves(word), join_halves(read)) for word, read in sent.items())),
        )
    except ValueError as error:
        raise _bad(name, f"{name} cannot be used, {error}") from error


def _shift(sent: object) -> VoiceShift | None:
    """Return where the voice is moved; ApiError 400 for what is no shift."""
    return None if sent is None else read_shift(check_fields(sent, tuple(SHIFT_SCHEMAS), VOICE_SHIFT))


def _options(fields: Mapping[str, Any], rules: Rules) -> GenerateOptions:
    sampling = _sampling(fields.get("sampling"), rules.model.sampling)
    if longest := rules.limits.audio_seconds:
        sampling = replace(sampling, max_seconds=min(sampling.max_seconds or longest, longest))
    if _value(fields, "wrong_words") != IGNORE:
        _check_followed("wrong_words", rules)
    return GenerateOptions(
        _value(fields, "seq_groups") or rules.seq_groups,
        sampling,
        split_chars=_value(fields, "split_chars"),
        tail=_value(fields, "tail"),
        retries=0,
        normalize=_value(fields, "normalize_text"),
        wrong_words=_value(fields, "wrong_words"),
        trim_ends=bool(_value(fields, "trim_silence")),
    )


def _sampling(sent: object, own: Sampling) -> Sampling:
    if sent is None:
        return own
    fields = check_fields(sent, SAMPLING_FIELDS, "sampling")
    given = {name: value for name, value in fields.items() if value is not None}
    talker, subtalker = (
        {name: given.pop(prefix + name) for name in TOKEN_SCHEMAS if prefix + name in given}
        for prefix in ("", SUBTALKER)
    )
    try:
        return replace(
            own, talker=replace(own.talker, **talker), subtalker=replace(own.subtalker, **subtalker), **given
        )
    except ValueError as error:
        raise _bad("sampling", str(error)) from error
