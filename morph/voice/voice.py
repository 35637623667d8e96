"""The voice of a line, the checks that a model can speak with it, and the checkpoints that it fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..model.names import KIND_NAMES, SIZE_NAMES, known_speaker
from ..options import FRAME_RATE, PREDICTED_GROUPS
from ..text.encoding import CONTROL
from ..text.pronunciation import PronunciationList
from ..text.split import check_encodable

if TYPE_CHECKING:
    import torch

    from ..model.model import Model

KINDS = ("x_vector", "icl", "preset", "design", "blend")
CODE_GROUPS = PREDICTED_GROUPS + 1
NEEDED = {
    "x_vector": ("speaker_embedding",),
    "icl": ("speaker_embedding", "ref_codes", "transcript"),
    "preset": ("speaker",),
    "design": ("instruct",),
    "blend": ("speaker_embedding", "speaker"),
}
AND = " + "  # between the presets of a blend
TENSORS = ("speaker_embedding", "ref_codes")
TEXTS = ("model_size", "name", "transcript", "speaker", "instruct", "recipe")
NEEDED_TYPE = {"x_vector": "base", "icl": "base", "design": "voice_design"}  # tts_model_type; others fit any
DEMO_SIZE = "0b02"  # of the checkpoint in the pack
OPTIONAL = ("model_size", "name", "instruct", "recipe")  # allowed for every kind
# Limits for voices of any origin: the model processes them before the first audio, while others wait.
MOST_CODE_FRAMES = 400  # 32 s: 30 s of a recording, and what cloning may add to them
LONGEST_TRANSCRIPT = 2000  # characters: 30 s of fast speech have fewer than 1,000
LONGEST_RECIPE = 1000  # characters
LONGEST = {"name": 1000, "transcript": LONGEST_TRANSCRIPT, "instruct": 4096, "recipe": LONGEST_RECIPE}


class VoiceTooLong(ValueError):
    """A voice is longer than a model should process for each of its lines."""


@dataclass(frozen=True, eq=False)
class Voice:
    """A voice as the model uses it. Raises ValueError that names a missing, wrong, too long or forbidden field."""

    # "x_vector" (speaker embedding only), "icl" (also reference codes and transcript), "preset" (a speaker of the
    # checkpoint), "design" (a description) or "blend" (mixed from presets).
    kind: str
    # Upstream's tts_model_size of the checkpoint that made it; "" for a preset of any checkpoint with the speaker.
    model_size: str
    name: str = ""
    speaker_embedding: torch.Tensor | None = None  # ``[H_talker]``, in the checkpoint's dtype
    ref_codes: torch.Tensor | None = None  # int64 ``[T, 16]``
    transcript: str | None = None
    speaker: str | None = None  # as the checkpoint's config spells it; of a blend joined with " + "
    instruct: str | None = None  # how to speak, or the description of a designed voice
    notes: tuple[str, ...] = ()  # remarks about its recording, for people; not saved
    pronunciation: tuple[PronunciationList, ...] = ()  # the list beside its file
    recipe: str | None = None  # what it was blended or shifted from, for people
    by: object | None = None  # the backend of its lines, if it has its own (``ByVoice``); not saved

    @property
    def speakers(self) -> tuple[str, ...]:
        """The presets that a checkpoint must have."""
        return speakers_of(self.kind, self.speaker)

    def __post_init__(self) -> None:
        check_fields(vars(self))
        if self.speaker_embedding is not None:
            _check_embedding(self.speaker_embedding)
        if self.ref_codes is not None:
            _check_codes(self.ref_codes)


def speakers_of(kind: str, speaker: str | None) -> tuple[str, ...]:
    if speaker is None:
        return ()
    return tuple(speaker.split(AND)) if kind == "blend" else (speaker,)


def check_fields(fields: Mapping[str, Any]) -> None:
    """Check a voice's texts, and which fields it has, but not the tensors' values. Errors as ``Voice``."""
    kind, name = fields["kind"], fields["name"]
    if kind not in KINDS:
        raise ValueError(f"voice kind is {kind!r}: it is one of {', '.join(KINDS)}")
    for key in TEXTS:
        if (value := fields.get(key)) is not None or key in ("model_size", "name"):
            check_text(key, value)
    if CONTROL.search(name):
        raise ValueError(f"a voice's name {name[:80]!a} has control characters: choose another")
    for key, most in LONGEST.items():
        if (length := len(fields.get(key) or "")) > most:
            raise VoiceTooLong(
                f"a voice's {_in_words(key)} has {length} characters and {most} are allowed: make the voice again with "
                "a shorter one"
            )
    needed = NEEDED[kind]
    for key in (*TENSORS, *TEXTS):
        value = fields.get(key)
        if key in needed and (value is None or (isinstance(value, str) and not value.strip())):
            raise ValueError(f"voice {name!r} ({kind}) has no {_in_words(key)}: make it again")
        if key not in (*needed, *OPTIONAL) and value is not None:
            raise ValueError(f"voice {name!r} is {kind}, which has no {_in_words(key)}: make it again")


def _in_words(key: str) -> str:
    return key.replace("ref_codes", "reference codes").replace("_", " ")


def check_text(key: str, text: object) -> None:
    """Raise ValueError, naming the field, for a value that is not text or not valid Unicode."""
    if not isinstance(text, str):
        raise ValueError(f"a voice's {_in_words(key)} is {type(text).__name__}, not text: make the voice again")
    check_encodable(text, f"a voice's {_in_words(key)}")


def check_transcript(transcript: str | None) -> None:
    if not (transcript or "").strip():
        raise ValueError(
            "transcript is empty: ICL needs the words of the reference; type them, let a recogniser write them "
            "(transcribe), or use x-vector mode"
        )
    check_text("transcript", transcript)
    if len(str(transcript).strip()) > LONGEST_TRANSCRIPT:
        raise ValueError(
            f"transcript has {len(str(transcript).strip())} characters and {LONGEST_TRANSCRIPT} are allowed, more than "
            "anybody says in 30 s: give only what the recording says"
        )


def check_design(description: str) -> str:
    """Return the description of a designed voice without space around it; ValueError for an empty one."""
    if not description.strip():
        raise ValueError("description is empty: say what the voice should be like")
    return description.strip()


def _check_embedding(embedding: torch.Tensor) -> None:
    import torch

    is_floats = isinstance(embedding, torch.Tensor) and embedding.is_floating_point()
    if not is_floats or embedding.ndim != 1 or embedding.numel() == 0:
        raise ValueError(f"speaker embedding is {_in_short(embedding)}, not floats [width]: make the voice again")
    # Larger numbers would be infinite in a model in fp16.
    if not torch.isfinite(embedding.to(torch.float16)).all():
        raise ValueError("speaker embedding contains NaN, infinite or huge numbers: make the voice again")


def _check_codes(codes: torch.Tensor) -> None:
    import torch

    is_integers = isinstance(codes, torch.Tensor) and codes.dtype == torch.int64
    if not is_integers or codes.ndim != 2 or codes.shape[1] != CODE_GROUPS or not len(codes):
        raise ValueError(
            f"reference codes are {_in_short(codes)}, not int64 [frames, {CODE_GROUPS}]: make the voice again"
        )
    if len(codes) > MOST_CODE_FRAMES:
        raise VoiceTooLong(
            f"reference codes have {len(codes)} frames and {MOST_CODE_FRAMES} are allowed, "
            f"{MOST_CODE_FRAMES / FRAME_RATE:.0f} s: make the voice again from at most 30 s of speech"
        )


def _in_short(value: Any) -> str:
    return f"{value.dtype} {list(value.shape)}" if hasattr(value, "shape") else type(value).__name__


def check_voice(model: Model, voice: Voice, instruct: str | None = None) -> None:
    any_size = voice.kind == "preset" and not voice.model_size
    if voice.model_size != model.size and not any_size:
        made_for, loaded = (SIZE_NAMES.get(size, size) for size in (voice.model_size, model.size))
        raise ValueError(
            f"voice {voice.name!r} was made for a {made_for} model and {model.name} is {loaded}: "
            "make the voice again with this model, or load the other model"
        )
    needed = NEEDED_TYPE.get(voice.kind)
    if needed and model.type != needed:
        kind = KIND_NAMES[needed]
        # VoiceDesign exists in one size only, and a description works with any size.
        wanted = f"{kind} checkpoint" if voice.kind == "design" else f"{kind} checkpoint of the same size"
        raise ValueError(
            f"voice {voice.name!r} ({voice.kind}) needs a {kind} checkpoint and {model.name} is "
            f"{KIND_NAMES.get(model.type, model.type)}: load a {wanted}"
        )
    for speaker in voice.speakers:
        spelled = known_speaker(speaker, model.speakers, model.name)
        if spelled != speaker:
            raise ValueError(
                f"voice {voice.name!r} names speaker {speaker!r}, who is {spelled!r} in {model.name}: "
                "make the voice again with Preset Voice"
            )
    check_tensors(model, voice)
    if (instruct or voice.instruct) and not model.follows_instructions:
        # Checkpoints that follow instructions cannot speak with a clone.
        other = "load such a checkpoint" if needed != "base" else "give the clone a mood with Shift Voice"
        raise ValueError(
            f"{model.name} does not follow instructions (only 1.7B CustomVoice and VoiceDesign were trained to): "
            f"clear the instruction, or {other}"
        )


def check_tensors(model: Model, voice: Voice) -> None:
    """Raise ValueError if the embedding's width or the codes' range does not fit the model."""
    embedding, codes = voice.speaker_embedding, voice.ref_codes
    if embedding is not None and len(embedding) != model.width:
        raise ValueError(
            f"voice {voice.name!r} has an embedding of {len(embedding)} numbers and {model.name} takes "
            f"{model.width}: clone the voice again with this model"
        )
    # Group 0's codebook has the same size
    codebook = int(model.config.talker_config.code_predictor_config.vocab_size)
    if codes is not None and not 0 <= int(codes.min()) <= int(codes.max()) < codebook:
        raise ValueError(
            f"voice {voice.name!r} has reference codes from {int(codes.min())} to {int(codes.max())} and "
            f"{model.name}'s go from 0 to {codebook - 1}: clone the voice again with this model"
        )


@dataclass(frozen=True)
class Needs:
    """The properties of a checkpoint that a voice needs."""

    size: str  # upstream's tts_model_size; "" for any
    type: str = ""  # upstream's tts_model_type; "" for any
    speakers: tuple[str, ...] = ()  # presets that the checkpoint must have

    @property
    def checkpoint(self) -> str:
        """The checkpoint's size and kind in words: "0.6B Base", "1.7B", "demo voice"."""
        if not self.size:
            return "any checkpoint"
        if self.size == DEMO_SIZE:
            return "demo voice"
        return " ".join([SIZE_NAMES.get(self.size, self.size), *filter(None, [KIND_NAMES.get(self.type)])])

    def __str__(self) -> str:
        names = " and ".join(self.speakers)
        return f"{self.checkpoint} with {names}" if names else self.checkpoint

    def are_met_by(self, config: Mapping[str, Any]) -> bool:
        known = {name.lower() for name in speakers_in(config)}
        return (
            self.size in ("", config.get("tts_model_size"))
            and self.type in ("", config.get("tts_model_type"))
            and {name.lower() for name in self.speakers} <= known
        )


def needs_of(fields: Mapping[str, Any]) -> Needs:
    """Return what a voice with these fields (``read_fields`` or ``vars(voice)``) needs."""
    kind = fields["kind"]
    return Needs(fields["model_size"], NEEDED_TYPE.get(kind, ""), speakers_of(kind, fields["speaker"]))


def speakers_in(config: Mapping[str, Any]) -> list[str]:
    """Return the preset speakers of a checkpoint with this ``config.json``."""
    talker = config.get("talker_config")
    speakers = talker.get("spk_id") if isinstance(talker, dict) else None
    return list(speakers) if isinstance(speakers, dict) else []


def list_presets(configs: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the speakers of checkpoints: name, what it fits in words, and the first checkpoint that has it.

    Args:
        configs: of the checkpoints, by their labels.
    """
    found: dict[tuple[str, str], dict[str, str]] = {}
    for label, config in configs.items():
        fits = Needs(str(config.get("tts_model_size")), str(config.get("tts_model_type"))).checkpoint
        for name in speakers_in(config):
            found.setdefault((fits, name.lower()), {"name": name, "fits": fits, "checkpoint": label})
    return list(found.values())
