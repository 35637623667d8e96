"""Create voices: clone a recording, choose a preset, or describe a voice."""

import logging
from dataclasses import dataclass, replace

import numpy as np

from ..codec.stream import encode_waveform
from ..model.model import Model, limit_threads
from ..model.names import KIND_NAMES, known_speaker
from .reference import prepare_reference
from .voice import Voice, check_design, check_transcript, check_voice

log = logging.getLogger(__name__)

MODES = ("x_vector", "icl")
CUT_OFF = (
    "the recording ends within its speech, and lines may begin with the rest of its last word: cut it in a pause, with "
    "a transcript of what is left, or add silence after it (pad reference)"
)
PADDING_S = 0.5  # silence after the reference, so that its last phoneme does not bleed into the speech


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
    if options.pad_silence or not reference.is_cut_off:
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
