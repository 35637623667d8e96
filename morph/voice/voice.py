"""Voice prompts: what a voice is to the model, made from a recording, a preset, a description, or other voices."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from ..codec.upstream import encode_waveform
from ..model.model import KIND_NAMES, SIZE_NAMES, Model
from ..model.threads import limit_threads
from ..options import PREDICTED_GROUPS
from ..text.split import check_encodable
from .reference import Reference, prepare_reference

log = logging.getLogger(__name__)

KINDS = ("x_vector", "icl", "preset", "design")
MODES = ("x_vector", "icl")
PADDING_S = 0.5  # silence behind the reference, against phoneme bleed
CODE_GROUPS = PREDICTED_GROUPS + 1
NEEDED = {
    "x_vector": ("speaker_embedding",),
    "icl": ("speaker_embedding", "ref_codes", "transcript"),
    "preset": ("speaker",),
    "design": ("instruct",),
}
TENSORS = ("speaker_embedding", "ref_codes")
TEXTS = ("model_size", "name", "transcript", "speaker", "instruct")
OPTIONAL = ("model_size", "name", "instruct")  # every kind may have these


@dataclass(frozen=True, eq=False)
class Voice:
    """What a voice is to the model.

    Args:
        kind: "x_vector" (speaker embedding alone), "icl" (and reference codes and transcript), "preset" (a speaker
            of the checkpoint) or "design" (a description).
        model_size: upstream's tts_model_size of the checkpoint that it belongs to.
        name: for people.
        speaker_embedding: ``[H_talker]``, in the checkpoint's dtype.
        ref_codes: ``[T, 16]`` int64.
        transcript: what the reference says.
        speaker: a preset's name, as the checkpoint's config spells it.
        instruct: how to speak, or the description of a designed voice.
        notes: what people should know about the recording that it was cloned from; not kept in a voice file.
    """

    kind: str
    model_size: str
    name: str = ""
    speaker_embedding: torch.Tensor | None = None
    ref_codes: torch.Tensor | None = None
    transcript: str | None = None
    speaker: str | None = None
    instruct: str | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"voice kind is {self.kind!r}: it is one of {', '.join(KINDS)}")
        for key in TEXTS:
            value = getattr(self, key)
            if value is not None or key in ("model_size", "name"):
                _check_text(key, value)
        needed = NEEDED[self.kind]
        for key in (*TENSORS, *TEXTS):
            value = getattr(self, key)
            if key in needed and (value is None or (isinstance(value, str) and not value.strip())):
                raise ValueError(f"voice {self.name!r} ({self.kind}) has no {_spoken(key)}: make it again")
            if key not in (*needed, *OPTIONAL) and value is not None:
                raise ValueError(
                    f"voice {self.name!r} is {self.kind}, which has no {_spoken(key)}: make it again"
                )
        if self.speaker_embedding is not None:
            _check_embedding(self.speaker_embedding)
        if self.ref_codes is not None:
            _check_codes(self.ref_codes)


def _spoken(key: str) -> str:
    return key.replace("ref_codes", "reference codes").replace("_", " ")


def _check_text(key: str, text: object) -> None:
    """Raise ValueError for what is no text, or not valid Unicode."""
    if not isinstance(text, str):
        raise ValueError(f"a voice's {_spoken(key)} is {type(text).__name__}, not text: make the voice again")
    check_encodable(text, f"a voice's {_spoken(key)}")


def _check_embedding(embedding: torch.Tensor) -> None:
    if not isinstance(embedding, torch.Tensor) or embedding.ndim != 1 or embedding.numel() == 0:
        raise ValueError(
            f"speaker embedding has shape {_shape(embedding)}, not [width]: make the voice again"
        )
    if not embedding.is_floating_point():
        raise ValueError(f"speaker embedding is {embedding.dtype}, not floating point: make the voice again")
    # A model in fp16 would take larger numbers for infinite ones.
    if not torch.isfinite(embedding.to(torch.float16)).all():
        raise ValueError("speaker embedding holds NaN, infinite or huge numbers: make the voice again")


def _check_codes(codes: torch.Tensor) -> None:
    if (
        not isinstance(codes, torch.Tensor)
        or codes.ndim != 2
        or codes.shape[1:] != (CODE_GROUPS,)
        or not len(codes)
    ):
        raise ValueError(
            f"reference codes have shape {_shape(codes)}, not [frames, {CODE_GROUPS}]: make the voice again"
        )
    if codes.dtype != torch.int64:
        raise ValueError(f"reference codes are {codes.dtype}, not int64: make the voice again")


def _shape(value: object) -> list[int] | str:
    return list(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__


def check_voice(model: Model, voice: Voice, instruct: str | None = None) -> None:
    """Raise ValueError when the model cannot speak with this voice (and this instruction)."""
    if voice.model_size != model.size:
        made_for, loaded = (SIZE_NAMES.get(size, size) for size in (voice.model_size, model.size))
        raise ValueError(
            f"voice {voice.name!r} was made for a {made_for} model and {model.name} is {loaded}: "
            "make the voice again with this model, or load the other model"
        )
    needed = {"x_vector": "base", "icl": "base", "design": "voice_design"}.get(voice.kind)
    if needed and model.type != needed:
        kind = KIND_NAMES[needed]
        # VoiceDesign comes in one size, and a description is bound to none.
        wanted = f"{kind} checkpoint" if voice.kind == "design" else f"{kind} checkpoint of the same size"
        raise ValueError(
            f"voice {voice.name!r} ({voice.kind}) needs a {kind} checkpoint and {model.name} is "
            f"{KIND_NAMES.get(model.type, model.type)}: load a {wanted}"
        )
    if voice.speaker is not None:
        spelled = check_speaker(model, voice.speaker)
        if spelled != voice.speaker:
            raise ValueError(
                f"voice {voice.name!r} names speaker {voice.speaker!r}, who is {spelled!r} in {model.name}: "
                "make the voice again with Preset Voice"
            )
    check_tensors(model, voice)
    if (instruct or voice.instruct) and not model.follows_instructions:
        raise ValueError(
            f"{model.name} does not follow instructions (only 1.7B CustomVoice and VoiceDesign were trained to): "
            "clear the instruction, or load such a checkpoint"
        )


def check_tensors(model: Model, voice: Voice) -> None:
    """Raise ValueError when a voice's tensors do not fit the model: the embedding's width, the codes' range."""
    embedding, codes = voice.speaker_embedding, voice.ref_codes
    if embedding is not None and len(embedding) != model.width:
        raise ValueError(
            f"voice {voice.name!r} has an embedding of {len(embedding)} numbers and {model.name} takes "
            f"{model.width}: clone the voice again with this model"
        )
    codebook = int(model.config.talker_config.code_predictor_config.vocab_size)  # group 0's is as large
    if codes is not None and not 0 <= int(codes.min()) <= int(codes.max()) < codebook:
        raise ValueError(
            f"voice {voice.name!r} has reference codes from {int(codes.min())} to {int(codes.max())} and "
            f"{model.name}'s go from 0 to {codebook - 1}: clone the voice again with this model"
        )


def check_speaker(model: Model, speaker: str) -> str:
    """Give a preset speaker as the config spells it; raise ValueError with the list when the checkpoint lacks it."""
    known = {name.lower(): name for name in model.speakers}
    if not known:
        raise ValueError(
            f"{model.name} has no preset speakers: load a CustomVoice checkpoint, or use Clone Voice with this one"
        )
    name = speaker.strip().lower()
    if name not in known:
        raise ValueError(
            f"speaker {speaker!r} is unknown to {model.name}: choose one of {', '.join(sorted(known))}"
        )
    return known[name]


def preset_voice(model: Model, speaker: str, instruct: str = "") -> Voice:
    """A speaker whom the checkpoint names, whatever its type, with an instruction where it follows one."""
    name = check_speaker(model, speaker)
    voice = Voice("preset", model.size, name=name, speaker=name, instruct=instruct.strip() or None)
    check_voice(model, voice)
    return voice


def design_voice(model: Model, description: str) -> Voice:
    """A voice from words; needs a VoiceDesign checkpoint."""
    if not description.strip():
        raise ValueError("description is empty: say what the voice should be like")
    voice = Voice("design", model.size, name="designed voice", instruct=description.strip())
    check_voice(model, voice)
    return voice


def clone_voice(
    model: Model,
    waveform: np.ndarray,
    sample_rate: int,
    mode: str = "x_vector",
    transcript: str | None = None,
    pad_silence: bool = False,
    name: str = "cloned voice",
) -> Voice:
    """Make a voice from a recording of 1 to 30 seconds; of a longer one an x-vector voice takes the first 30.

    Args:
        model: a Base checkpoint.
        waveform: float ``[T]`` or ``[C, T]``, any rate; see ``prepare_reference`` for what becomes of it.
        sample_rate: Hz.
        mode: "x_vector" (timbre alone) or "icl" (manner too; needs the transcript).
        transcript: what the recording says.
        pad_silence: append 0.5 s of silence in ICL mode, against the last phoneme bleeding into the speech.
        name: for people.

    Raises:
        ValueError: for a recording or a transcript that cannot serve (with ICL also a recording of more than 30 s),
            or a checkpoint without a speaker encoder.
    """
    if mode not in MODES:
        raise ValueError(f"mode is {mode!r}: choose one of {', '.join(MODES)}")
    if not model.can_clone:
        kind = KIND_NAMES.get(model.type, model.type)
        raise ValueError(
            f"{model.name} is a {kind} checkpoint and cannot clone voices: load a Base checkpoint"
        )
    if mode == "icl":
        check_transcript(transcript)
    reference = prepare_reference(waveform, sample_rate, model.sample_rate, whole=mode == "icl")
    for note in reference.notes:
        log.warning("%s: %s", name, note)
    with model.exclusive(), limit_threads(model):
        voice = _take_voice(model, reference, name)
        if mode == "x_vector":
            return voice
        sound = reference.waveform
        if pad_silence:
            sound = np.pad(sound, (0, round(PADDING_S * model.sample_rate)))
        codes = encode_waveform(model, sound)
    return replace(voice, kind="icl", ref_codes=codes, transcript=str(transcript).strip())


def _take_voice(model: Model, reference: Reference, name: str) -> Voice:
    """The x-vector voice of a reference."""
    embedding = model.upstream.extract_speaker_embedding(reference.waveform, model.sample_rate).clone().cpu()
    return Voice("x_vector", model.size, name, speaker_embedding=embedding, notes=reference.notes)


def check_transcript(transcript: str | None) -> None:
    """Raise ValueError for a transcript that ICL cannot use."""
    if not (transcript or "").strip():
        raise ValueError(
            "transcript is empty: ICL needs the words of the reference; type them, or use x-vector mode"
        )
    _check_text("transcript", transcript)


def blend_voices(voices: Sequence[Voice], weights: Sequence[float]) -> Voice:
    """Mix speaker embeddings: their weighted mean, as an x-vector voice.

    Args:
        voices: two or more cloned voices of one model size; of ICL voices only the embedding is used.
        weights: one a voice, at least one above 0, none below; they are divided by their sum.
    """
    if len(voices) < 2 or len(voices) != len(weights):
        raise ValueError(
            f"{len(voices)} voices and {len(weights)} weights: give two or more voices and a weight for each"
        )
    if any(not math.isfinite(weight) or weight < 0 for weight in weights) or not 0 < sum(weights) < math.inf:
        raise ValueError(f"weights are {list(weights)}: choose 0 or more, and at least one above 0")
    sizes = sorted({voice.model_size for voice in voices})
    if len(sizes) > 1:
        shown = ", ".join(SIZE_NAMES.get(size, size) for size in sizes)
        raise ValueError(
            f"voices of different model sizes ({shown}) cannot be blended: clone them with one model"
        )
    embeddings = []
    for voice in voices:
        if voice.speaker_embedding is None:
            raise ValueError(
                f"voice {voice.name!r} ({voice.kind}) has no speaker embedding: blend cloned voices"
            )
        embeddings.append(voice.speaker_embedding.float())
    widths = sorted({len(embedding) for embedding in embeddings})
    if len(widths) > 1:
        raise ValueError(
            f"voices whose embeddings have {' and '.join(map(str, widths))} numbers cannot be blended: "
            "clone them with one model"
        )
    shares = torch.tensor([weight / sum(weights) for weight in weights])
    mixed = (torch.stack(embeddings) * shares[:, None]).sum(0)
    name = " + ".join(
        f"{share:.0%} {voice.name}" for share, voice in zip(shares.tolist(), voices, strict=True)
    )
    dtype = voices[0].speaker_embedding.dtype  # type: ignore[union-attr]  # checked above
    return Voice("x_vector", sizes[0], name, speaker_embedding=mixed.to(dtype))
