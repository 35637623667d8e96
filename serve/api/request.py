"""Requests for the engine, checked against the checkpoint and the server's limits."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from ...morph.model.model import Model
from ...morph.options import IGNORE, LAYOUTS, REQUEST, GenerateOptions, Sampling, TokenSampling, removed_in
from ...morph.setting import settings_of
from ...morph.speech.takes import check_word_times
from ...morph.text.encoding import join_halves
from ...morph.text.pauses import check_spoken, read_pauses
from ...morph.text.pronunciation import PronunciationList
from .errors import ApiError, refusing
from .fields import COMPLETE_FORMATS, SUBTALKER, SettingsFields, SpeechFields, VoiceId, VoiceShift, too_long
from .options import Limits

RANDOM_SEEDS = 2**32
MOST_PAUSES_S = 60.0  # of one request: silence takes memory and no time
# OpenAI's names, which clients send: they stand for the loaded checkpoint.
OPENAI_MODELS = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
TIMESTAMPS = "return_timestamps"
# A player needs the first frame at once; for rare events larger codec steps are cheaper.
SELDOM_CHUNKS = (12,)


@dataclass(frozen=True)
class SpeechRequest:
    """One request for speech, by HTTP or a WebSocket."""

    voice: str | None  # None: the server's first
    language: str
    instructions: str | None
    seed: int
    audio: str  # the audio format
    generate: GenerateOptions
    speed: float  # of the delivered audio, 0.25..4
    ignored: tuple[str, ...]  # fields that were removed, or that the checkpoint does not support
    timestamps: bool  # of words
    pronunciation: tuple[PronunciationList, ...]
    shift: VoiceShift | None
    text: str | Iterable[str]  # an iterable gives it in parts
    layout: str = LAYOUTS[0]  # how parts are spoken
    complete: bool = False  # offline, not streamed
    way: str = "audio"  # one of STREAM_FORMATS
    interval_s: float = 0.0  # the shortest time between two events, or reports of progress (0: no reports)
    caller: str = ""  # the client's address


@dataclass(frozen=True)
class Rules:
    """The checkpoint and the limits of requests."""

    model: Model
    seq_groups: int
    limits: Limits
    strict: bool = False  # refuse instructions that the checkpoint cannot follow; else ignore them


def read_request(fields: SpeechFields, rules: Rules, caller: str = "") -> SpeechRequest:
    """Return the request of a ``caller``; ApiError 400, or 404 for a model that is not loaded."""
    text, way = fields.input, fields.stream_format
    if len(text) > rules.limits.characters:
        raise too_long("input", text, rules.limits.characters)
    read_silence(text, "input")
    with refusing("input"):
        check_spoken(text, "input")
    _check_stream(fields)
    complete = fields.stream is False or way in COMPLETE_FORMATS
    more: Any = {"way": way, "interval_s": fields.event_interval, "complete": complete, "caller": caller}
    asked = read_settings(fields, rules, text, **more)
    changes: dict[str, Any] = {"chunk_frames": SELDOM_CHUNKS} if fields.event_interval else {}
    if complete and way != "multipart":  # clients of the latter retry themselves
        changes["retries"] = 1
    return replace(asked, generate=replace(asked.generate, **changes)) if changes else asked


def _check_stream(fields: SpeechFields) -> None:
    way = fields.stream_format
    if way == "sse" and fields.stream is False:
        why = "stream is false and stream_format is sse: events are a stream, leave one out"
        raise ApiError(400, why, "stream")
    if way in COMPLETE_FORMATS and fields.stream is True:
        why = f"stream is true and stream_format is {way}, which is complete: leave one out"
        raise ApiError(400, why, "stream")
    if fields.event_interval and way in ("audio", "json"):
        why = "event_interval is for events: leave it out, or set stream_format to sse"
        raise ApiError(400, why, "event_interval")
    if fields.return_timestamps and way == "audio":
        raise ApiError(
            400,
            "return_timestamps is true and stream_format is audio, which has sound only: set stream_format to json, "
            "sse or multipart",
            TIMESTAMPS,
        )


def read_settings(fields: SettingsFields, rules: Rules, text: str | Iterable[str], **more: Any) -> SpeechRequest:
    """Return a request for speech with ``more`` fields of ``SpeechRequest``. Errors as ``read_request``."""
    check_model(fields.model, rules.model)
    language = fields.language.strip().lower()
    if language not in rules.model.languages:
        known = ", ".join(rules.model.languages)
        raise ApiError(400, f"language is {fields.language!r:.40}: choose one of {known}", "language")
    instructions, ignored = _instructions(fields.instructions, rules)
    given = _given(fields)
    generate = _options(given, rules)
    checked = {TIMESTAMPS: fields.return_timestamps, "wrong_words": generate.wrong_words != IGNORE}
    for name in filter(checked.get, checked):
        with refusing(name):
            check_word_times(rules.model)
    return SpeechRequest(
        voice=fields.voice.id if isinstance(fields.voice, VoiceId) else fields.voice,
        language=language,
        instructions=instructions,
        seed=given["seed"] if "seed" in given else secrets.randbelow(RANDOM_SEEDS),
        audio=fields.response_format,
        generate=generate,
        speed=fields.speed,
        ignored=(*ignored, *removed_in(given)),
        timestamps=fields.return_timestamps,
        pronunciation=_pronunciation(fields.pronunciation),
        shift=fields.voice_shift,
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


def _instructions(words: str, rules: Rules) -> tuple[str | None, tuple[str, ...]]:
    """Return the instructions, and the names of ignored fields: clients send them to every server."""
    name = "instructions"
    if not words or rules.model.follows_instructions:
        return words or None, ()
    if rules.strict:
        raise ApiError(
            400,
            f"{rules.model.name} does not follow instructions (only 1.7B CustomVoice and VoiceDesign were trained "
            "to): leave them out, or start the server without --strict",
            name,
        )
    return None, (name,)


def _pronunciation(sent: dict[str, str] | None) -> tuple[PronunciationList, ...]:
    if not sent:
        return ()
    words = tuple((join_halves(word), join_halves(read)) for word, read in sent.items())
    with refusing("pronunciation", "pronunciation cannot be used, "):
        return (PronunciationList(words),)


def _given(fields: BaseModel) -> dict[str, Any]:
    return {name: getattr(fields, name) for name in fields.model_fields_set}  # a third of the time of a dump


def _options(given: Mapping[str, Any], rules: Rules) -> GenerateOptions:
    sampling = rules.model.sampling
    if "sampling" in given:
        sampling = _sampling(_given(given["sampling"]), sampling)
    public = {name: one.public for name, one in settings_of(GenerateOptions, REQUEST).items()}
    options = {name: given[field] for name, field in public.items() if field in given}
    return GenerateOptions(**{"seq_groups": rules.seq_groups, **options}, sampling=sampling, retries=0)


def _sampling(given: dict[str, Any], own: Sampling) -> Sampling:
    talker, subtalker = (
        {name: given.pop(prefix + name) for name in settings_of(TokenSampling) if prefix + name in given}
        for prefix in ("", SUBTALKER)
    )
    changed = {"talker": talker, "subtalker": subtalker}
    with refusing("sampling"):
        tokens = {name: replace(getattr(own, name), **one) for name, one in changed.items() if one}
        return replace(own, **tokens, **given) if tokens or given else own
