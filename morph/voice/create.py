"""Create voices: clone a recording, choose a preset, describe a voice, or mix voices.

A mixture is a weighted sum of speaker embeddings. Weights sum to 1; some may be negative. A preset's embedding is its
row in the talker's group 0 table, where a clone's prompt has its x-vector. In a Base checkpoint with named speakers
(the demo voice, a fine-tuned one) both share one space: rows were x-vectors, or were trained beside them. A CustomVoice
checkpoint knows only its rows.

A shift adds a multiple of the difference of two voices: "the same speaker angry" minus "the same speaker calm" is a
direction in which any voice of that space can move. Other differences between the two (room, loudness) come with it.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from ...postprocess.checks import check_range
from ..codec.stream import encode_waveform
from ..model.model import Model, limit_threads
from ..model.names import KIND_NAMES, SIZE_NAMES, known_speaker
from ..options import SHIFT_STRENGTHS
from ..text.split import shorten
from .recording import is_cut_off, prepare_reference
from .voice import AND, LONGEST_RECIPE, Voice, check_design, check_transcript, check_voice

log = logging.getLogger(__name__)

MODES = ("x_vector", "icl")
CUT_OFF = (
    "the recording ends within its speech, and lines may begin with the rest of its last word: cut it in a pause, with "
    "a transcript of what is left, or add silence after it (pad reference)"
)
PADDING_S = 0.5  # silence after the reference, so that its last phoneme does not bleed into the speech
NAMED = ("preset", "blend")  # kinds that belong to a checkpoint's speakers
LEAST_SHARE, MOST_SHARE = -3.0, 4.0  # of a voice: the range of a shift by 3 (``shift_voice``)


@dataclass(frozen=True)
class CloneOptions:
    """How to clone a voice. Raises ValueError for an unknown mode, or "icl" without a usable transcript."""

    mode: str = "x_vector"  # "x_vector" (timbre only) or "icl" (timbre and manner; needs the transcript)
    transcript: str | None = None  # used by "icl" only
    pad_silence: bool = False  # "icl": append 0.5 s of silence, if the last phoneme bleeds into the speech
    name: str = "cloned voice"

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode is {self.mode!r}: choose one of {', '.join(MODES)}")
        if self.mode == "icl":
            check_transcript(self.transcript)


def clone_voice(model: Model, waveform: np.ndarray, sample_rate: int, options: CloneOptions | None = None) -> Voice:
    """Make a voice from a recording of 1 to 30 seconds; x-vector mode uses the first 30 s of a longer one.

    ``waveform`` is float ``[T]`` or ``[C, T]`` at any rate in Hz; ``prepare_reference`` cleans it up. Raises
    ValueError for an unusable recording (in ICL mode also one above 30 s), or a checkpoint without speaker encoder.
    """
    options = options or CloneOptions()
    encoder = model.network.speaker_encoder
    if encoder is None:
        kind = KIND_NAMES.get(model.type, model.type)
        raise ValueError(f"{model.name} is a {kind} checkpoint and cannot clone voices: load a Base checkpoint")
    icl = options.mode == "icl"
    reference = prepare_reference(waveform, sample_rate, model.sample_rate, refuse_long=icl)
    for note in reference.notes:
        log.warning("%s: %s", options.name, note)
    with model.exclusive(), limit_threads(model):
        embedding = encoder.embed(reference.waveform).clone().cpu()
        voice = Voice("x_vector", model.size, options.name, embedding, notes=reference.notes)
        if not icl:
            return voice
        sound = reference.waveform
        if options.pad_silence:
            sound = np.pad(sound, (0, round(PADDING_S * model.sample_rate)))
        codes = encode_waveform(model, sound)
    voice = replace(voice, kind="icl", ref_codes=codes, transcript=str(options.transcript).strip())
    if options.pad_silence or not is_cut_off(reference.waveform, model.sample_rate):
        return voice
    log.warning("%s: %s", options.name, CUT_OFF)
    return replace(voice, notes=(*voice.notes, CUT_OFF))


def preset_voice(model: Model, speaker: str, instruct: str = "") -> Voice:
    """Return a named speaker of a checkpoint of any type, with an instruction if the checkpoint follows them."""
    name = known_speaker(speaker, model.speakers, model.name)
    voice = Voice("preset", model.size, name=name, speaker=name, instruct=instruct.strip() or None)
    check_voice(model, voice)
    return voice


def design_voice(model: Model, description: str) -> Voice:
    """Return a voice made from a description; needs a VoiceDesign checkpoint."""
    voice = Voice("design", model.size, name="designed voice", instruct=check_design(description))
    check_voice(model, voice)
    return voice


def blend_voices(voices: Sequence[Voice], weights: Sequence[float], model: Model | None = None) -> Voice:
    """Return the weighted mean of the voices' embeddings as a voice; ValueError if they cannot be blended.

    Presets alone give a "blend", for checkpoints that have all of them; with a clone it is an x-vector voice.

    Args:
        voices: two or more clones or presets of one model size; of ICL voices only the embedding is used.
        weights: divided by their sum, which is above 0; then LEAST_SHARE to MOST_SHARE each. A negative one removes
            what distinguishes its voice.
        model: the checkpoint that has the presets; not needed for clones.
    """
    shares = _shares_of(voices, weights)
    presets = all(voice.kind in NAMED for voice in voices)
    if presets and len({voice.instruct for voice in voices}) > 1:
        raise ValueError("the presets have different instructions: give all the same, or none")
    return mix_voices(voices, shares, _recipe_of(voices, shares), model)


def mix_voices(voices: Sequence[Voice], shares: Sequence[float], recipe: str, model: Model | None = None) -> Voice:
    """Return the sum of the voices' embeddings, each times its share, as a voice; arguments as ``blend_voices``.

    The shares sum to 1. An instruction is the first voice's. ``recipe`` is also the new voice's first name. Raises
    ValueError for voices that do not share one space.
    """
    embedding = mixed_embedding(voices, shares, model)
    recipe = shorten(recipe, LONGEST_RECIPE)
    size = next((voice.model_size for voice in voices if voice.model_size), "" if model is None else model.size)
    if any(voice.kind not in NAMED for voice in voices):
        return Voice("x_vector", size, recipe, embedding, recipe=recipe)
    speakers = AND.join(dict.fromkeys(speaker for voice in voices for speaker in voice.speakers))
    instruct = voices[0].instruct
    return Voice("blend", size, recipe, embedding, speaker=speakers, instruct=instruct, recipe=recipe)


def mixed_embedding(voices: Sequence[Voice], shares: Sequence[float], model: Model | None = None) -> torch.Tensor:
    """Return the embeddings' sum, each times its share, ``[H]`` in the first one's dtype; errors as ``mix_voices``."""
    sizes = sorted({voice.model_size for voice in voices} - {""})
    if len(sizes) > 1:
        shown = ", ".join(SIZE_NAMES.get(size, size) for size in sizes)
        raise ValueError(f"voices of different model sizes ({shown}) cannot be blended: make them with one model")
    presets = [voice for voice in voices if voice.kind in NAMED]
    if presets and len(presets) < len(voices):
        _check_mixture(presets[0], model)
    embeddings = [embedding_of(voice, model) for voice in voices]
    widths = sorted({len(embedding) for embedding in embeddings})
    if len(widths) > 1:
        raise ValueError(
            f"voices whose embeddings have {' and '.join(map(str, widths))} numbers cannot be blended: "
            "make them with one model"
        )
    parts = torch.stack([one.float() for one in embeddings]) * torch.tensor(shares)[:, None]
    return parts.sum(0).to(embeddings[0].dtype)


def named(voice: Voice) -> str:
    """Return a voice's name for a recipe: in parentheses if it is a recipe itself."""
    name = voice.name or "a voice without a name"
    return f"({name})" if voice.recipe == name else name


def _recipe_of(voices: Sequence[Voice], shares: Sequence[float]) -> str:
    """Return shares in words: "150% Anna - 50% Ben"."""
    parts = [
        f" {'-' if share < 0 else '+'} {abs(share):.0%} {named(voice)}"
        for voice, share in zip(voices, shares, strict=True)
    ]
    return "".join(parts).removeprefix(" +").strip()


def _shares_of(voices: Sequence[Voice], weights: Sequence[float]) -> list[float]:
    """Return the weights divided by their sum; ValueError if that gives no shares in range."""
    if len(voices) < 2 or len(voices) != len(weights):
        raise ValueError(
            f"{len(voices)} voices and {len(weights)} weights: give two or more voices and a weight for each"
        )
    total = sum(weights)
    shares = [weight / total for weight in weights] if 0 < total < math.inf else []
    if not shares or not all(LEAST_SHARE <= share <= MOST_SHARE for share in shares):
        raise ValueError(
            f"weights are {list(weights)}: choose numbers with a sum above 0, each of them from {LEAST_SHARE:g} to "
            f"{MOST_SHARE:g} times that sum"
        )
    return shares


def _check_mixture(named: Voice, model: Model | None) -> None:
    """Raise ValueError if presets and clones do not share one space."""
    if model is None:
        raise _needs_model(named)
    if model.type != "base":
        raise ValueError(
            f"presets of {model.name} ({KIND_NAMES.get(model.type, model.type)}) cannot be blended with cloned voices, "
            "which it cannot speak with: blend presets only, or clones only"
        )
    check_voice(model, named)


def _needs_model(voice: Voice) -> ValueError:
    return ValueError(
        f"voice {voice.name!r} ({voice.kind}) needs its checkpoint: connect Load Qwen3-TTS Model to model of Blend "
        "Voices or Shift Voice"
    )


def embedding_of(voice: Voice, model: Model | None) -> torch.Tensor:
    """Return a voice's speaker embedding ``[H]``, a preset's from the checkpoint; ValueError if it has none."""
    if voice.speaker_embedding is not None:
        return voice.speaker_embedding
    if voice.kind != "preset":
        raise ValueError(
            f"voice {voice.name!r} ({voice.kind}) has no speaker embedding: save speech of it and clone that, then "
            "blend the clone"
        )
    if model is None:
        raise _needs_model(voice)
    check_voice(model, voice)
    row = model.config.talker_config.spk_id[voice.speaker]
    return model.talker.model.codec_embedding.weight[row].detach().clone().cpu()


@dataclass(frozen=True)
class Shift:
    """The direction of a shift: from the mean of ``away`` to the mean of ``toward``, best of the same speakers.

    ``strength`` multiplies the difference, within SHIFT_STRENGTHS; negative goes the other way. Raises ValueError for
    no voices, or another strength.
    """

    toward: Sequence[Voice]
    away: Sequence[Voice]
    strength: float = 1.0

    def __post_init__(self) -> None:
        if not self.toward or not self.away:
            raise ValueError("a shift needs voices to go toward and voices to go away from: give one of each")
        check_range("strength", self.strength, *SHIFT_STRENGTHS)


def shift_voice(voice: Voice, shift: Shift, model: Model | None = None) -> Voice:
    """Return the shifted voice: an x-vector voice or, of presets alone, a "blend"; ``model`` as ``blend_voices``.

    All voices must share one space; of an ICL voice only the embedding is used. Raises ValueError for
    voices that cannot be mixed, or do not differ.
    """
    sides = shift.toward, shift.away
    toward, away = ([1 / len(side)] * len(side) for side in sides)
    shares = [1.0, *(shift.strength * one for one in toward), *(-shift.strength * one for one in away)]
    names = list(map(_mean_of, sides))
    difference = f"{'-' if shift.strength < 0 else '+'} {abs(shift.strength):g} * ({' - '.join(names)})"
    made = mix_voices([voice, *shift.toward, *shift.away], shares, f"{named(voice)} {difference}", model)
    ends = [mixed_embedding(*side, model).float() for side in ((shift.toward, toward), (shift.away, away))]
    if torch.equal(*ends):
        raise ValueError(
            f"{' and '.join(names)} have the same speaker embedding, which an instruction does not change: give two "
            "different voices"
        )
    return replace(made, pronunciation=voice.pronunciation)


def _mean_of(voices: Sequence[Voice]) -> str:
    names = [named(voice) for voice in voices]
    return names[0] if len(names) == 1 else f"mean({', '.join(names)})"
