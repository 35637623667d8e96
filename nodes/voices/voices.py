"""The nodes that create, save and load voices, and Trim Recording."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import folder_paths
import numpy as np
from comfy_api.latest import io, ui

from ...morph.hearing.whisper import check_installed
from ...morph.model.model import Model
from ...morph.options import RECOGNISERS, SHIFT_STRENGTHS
from ...morph.runtime.atomic_file import FileState
from ...morph.voice import measure
from ...morph.voice.create import CloneOptions, Shift, blend_voices, clone_voice, shift_voice
from ...morph.voice.file import holds_voice
from ...morph.voice.library import is_recording, load_source, save_list, save_source, source_states
from ...morph.voice.recording import read_recording, transcribe_recording
from ...morph.voice.voice import Needs, Voice, check_design, check_transcript, known_speaker
from ...postprocess.checks import check_choice
from ...serve.terminal.folders import VOICE_FOLDER
from .. import inputs
from ..folders import NO_VOICE, local_checkpoints, voice_library
from ..inputs import ModelSocket, VoiceSocket, listed, schema
from ..models.load import load_recogniser
from ..models.values import AnyModel, ManagedModel, check_model, check_voice
from ..page.clips import Clip, write_clips
from ..page.progress import show_progress
from ..sound.values import to_audio, to_one_waveform
from .saved_voices import saved_voices

MODELS = ("MorphTTSLoadModel", "MorphTTSRemoteModel")  # the nodes that give a model
# Mode names shown in ComfyUI -> the engine's names.
MODES = {"x-vector": "x_vector", "ICL": "icl"}
NO_RECOGNISER = "off"
REQUIRED, OPTIONAL = "ab", "cd"  # letters of a blend's voices
NOT_CONNECTED = "not connected"  # what no link gives
# Its source and licence are beside it
PACKED = Path(__file__).resolve().parents[2] / "recordings" / "austen.flac"
# If a checkpoint does not know a speaker, the engine's error lists the ones it has.
DEMO_SPEAKERS = ("heart", "emma", "michael", "george")
PUBLISHED_SPEAKERS = ("vivian", "serena", "uncle_fu", "dylan", "eric", "ryan", "aiden", "ono_anna", "sohee")
SIDES = ("toward", "away")
MORE = (2, 3)  # pairs beside the first


class CloneVoice(io.ComfyNode):
    define_schema = schema(
        "MorphTTSCloneVoice",
        advanced="pad_reference transcribe",
        inputs=lambda: [
            ModelSocket.Input("model"),
            io.Audio.Input("audio", optional=True),
            inputs.choice("mode", MODES, "x-vector"),
            inputs.text_box("transcript", "", optional=True),
            io.Boolean.Input("pad_reference", default=False, optional=True),
            inputs.choice("transcribe", [NO_RECOGNISER, *RECOGNISERS], NO_RECOGNISER, optional=True),
        ],
        outputs=[VoiceSocket.Output("made_voice")],
        hidden=[io.Hidden.unique_id],
    )

    @classmethod
    def validate_inputs(
        cls,
        mode: str | None = None,
        transcript: str | None = "",
        transcribe: str | None = NO_RECOGNISER,
        audio: object = NOT_CONNECTED,
    ) -> bool | str:
        if mode != "ICL" or audio == NOT_CONNECTED:  # the pack's own recording has its words
            return inputs.judge(mode=(MODES, mode))
        if not isinstance(transcript, str) or transcript.strip() or transcribe == NO_RECOGNISER:
            return inputs.judge(transcript=(check_transcript, transcript))
        return inputs.judge(transcribe=(lambda _: check_installed(), transcribe))

    @classmethod
    def execute(cls, model: ManagedModel, mode: str, audio: Any = None, **given: Any) -> io.NodeOutput:
        transcript, transcribe = given.get("transcript", ""), given.get("transcribe", NO_RECOGNISER)
        check_model(model)
        check_choice("mode", mode, tuple(MODES))
        notes: list[str] = []
        if audio is None:
            packed = read_recording(PACKED)
            audio, transcript = to_audio(packed.waveform, packed.sample_rate), packed.transcript or ""
            notes = [f"audio is not connected: cloned the pack's own recording, {PACKED.name}"]
        waveform = to_one_waveform(audio, "audio")
        if part := measure.better_part(measure.measure(waveform, audio["sample_rate"]), mode == "ICL"):
            notes += [f"{part} of the recording make a better voice: Trim Recording takes them out"]
        if mode == "ICL" and transcribe != NO_RECOGNISER and not transcript.strip():
            with show_progress(cls.hidden.unique_id) as progress:
                recogniser = load_recogniser(transcribe, progress)
                progress.say("transcribing the recording")
                transcript = transcribe_recording(recogniser, waveform, audio["sample_rate"])
            notes += [f"{recogniser.name} heard: {transcript}"]
        options = CloneOptions(MODES[mode], transcript, given.get("pad_reference", False))
        with model.use() as ready:
            voice = clone_voice(ready.model, waveform, audio["sample_rate"], options)
        shown = "\n".join([f"{mode} voice cloned", *notes, *voice.notes])
        return io.NodeOutput(voice, ui=ui.PreviewText(shown))


class PresetVoice(io.ComfyNode):
    define_schema = schema(
        "MorphTTSPresetVoice",
        advanced="instruct custom_speaker",
        inputs=lambda: [
            ModelSocket.Input("model", optional=True),
            inputs.choice("speaker", [*DEMO_SPEAKERS, *PUBLISHED_SPEAKERS], DEMO_SPEAKERS[0]),
            inputs.text_box("instruct", "", optional=True),
            io.String.Input("custom_speaker", default="", optional=True),
        ],
        outputs=[VoiceSocket.Output("made_voice")],
        hidden=[io.Hidden.prompt],
    )

    @classmethod
    def execute(
        cls, speaker: str, instruct: str = "", custom_speaker: str = "", model: AnyModel | None = None
    ) -> io.NodeOutput:
        inputs.check_word("speaker", speaker)
        name = custom_speaker.strip() or speaker
        if model is None:
            check_speaker_of(name, cls.hidden.prompt or {})
            return io.NodeOutput(Voice("preset", "", name, speaker=name, instruct=instruct.strip() or None))
        check_model(model)
        return io.NodeOutput(model.preset_voice(name, instruct))


def check_speaker_of(speaker: str, prompt: Mapping[str, Any]) -> None:
    """Raise ValueError for a speaker that no checkpoint of a prompt has, if all of them are on this machine."""
    loaded = {str(one["inputs"].get("checkpoint")) for one in prompt.values() if one["class_type"] in MODELS}
    configs = local_checkpoints() if loaded else {}
    if configs and loaded <= configs.keys():
        names = [name for label in loaded for name in configs[label]["talker_config"].get("spk_id") or ()]
        known_speaker(speaker, names, " and ".join(sorted(loaded)))


class DesignVoice(io.ComfyNode):
    define_schema = schema(
        "MorphTTSDesignVoice",
        inputs=lambda: [
            ModelSocket.Input("model"),
            inputs.text_box("description", "A warm, calm woman of about forty with a low voice, speaking slowly."),
        ],
        outputs=[VoiceSocket.Output("made_voice")],
    )

    validate_inputs = inputs.judged(description=check_design)

    @classmethod
    def execute(cls, model: ManagedModel, description: str) -> io.NodeOutput:
        check_model(model)
        return io.NodeOutput(model.design_voice(description))


def blend_inputs(letters: str, optional: bool) -> list[io.Input]:
    voices = [VoiceSocket.Input(f"voice_{one}", optional=optional) for one in letters]
    span = (-100.0, 100.0, 0.05)
    return voices + [inputs.number(f"weight_{one}", 1.0, span, optional=optional) for one in letters]


class BlendVoices(io.ComfyNode):
    define_schema = schema(
        "MorphTTSBlendVoices",
        inputs=lambda: [
            *blend_inputs(REQUIRED, False),
            *blend_inputs(OPTIONAL, True),
            ModelSocket.Input("model", optional=True),
        ],
        outputs=[VoiceSocket.Output("made_voice")],
    )

    @classmethod
    def execute(cls, model: ManagedModel | None = None, **given: Any) -> io.NodeOutput:
        """Blend the voices that are connected: ``voice_a`` with the share ``weight_a``, and so on."""
        voices = connected(given, [f"voice_{one}" for one in REQUIRED], [f"voice_{one}" for one in OPTIONAL])
        weights = [given.get(name.replace("voice", "weight"), 1.0) for name in voices]
        return mixed(model, lambda ready: blend_voices([*voices.values()], weights, ready))


def mixed(model: ManagedModel | None, mix: Callable[[Model | None], Voice]) -> io.NodeOutput:
    """Return the voice of ``mix``, with the connected checkpoint, and show its recipe."""
    if model is None:
        voice = mix(None)
    else:
        check_model(model)
        with model.use() as ready:
            voice = mix(ready.model)
    return io.NodeOutput(voice, ui=ui.PreviewText(voice.recipe or ""))


class ShiftVoice(io.ComfyNode):
    define_schema = schema(
        "MorphTTSShiftVoice",
        inputs=lambda: [
            VoiceSocket.Input("voice"),
            VoiceSocket.Input("toward"),
            VoiceSocket.Input("away"),
            inputs.number("strength", 1.0, (*SHIFT_STRENGTHS, 0.05)),
            *(VoiceSocket.Input(f"{side}_{number}", optional=True) for number in MORE for side in SIDES),
            ModelSocket.Input("model", optional=True),
        ],
        outputs=[VoiceSocket.Output("made_voice")],
    )

    @classmethod
    def execute(
        cls, voice: Voice, strength: float, model: ManagedModel | None = None, **given: Voice | None
    ) -> io.NodeOutput:
        check_voice(voice)
        sides = (connected(given, [side], [f"{side}_{one}" for one in MORE]) for side in SIDES)
        toward, away = ([*voices.values()] for voices in sides)
        shift = Shift(toward, away, strength)
        return mixed(model, lambda ready: shift_voice(voice, shift, ready))


def connected(given: Mapping[str, Any], required: Sequence[str], optional: Sequence[str]) -> dict[str, Voice]:
    """Return the connected voices by input; ValueError if a required one is missing, or a value is no voice."""
    names = [*required, *(name for name in optional if given.get(name) is not None)]
    for name in names:
        check_voice(given.get(name), name)
    return {name: given[name] for name in names}


KEY = "morph_trim"  # in the ui of the node's output, read by web/js/trim.js
POINTS_PER_S = 10  # of the waveform that the page draws
LEAST_POINTS, MOST_POINTS = 600, 6000
FULL_SCALE = 1000  # of a point
MOST_MARKS = 200  # of clipping
LATEST_S = 36_000.0  # that can be typed


class TrimRecording(io.ComfyNode):
    define_schema = schema(
        "MorphTTSTrimRecording",
        inputs=lambda: [
            io.Audio.Input("audio"),
            inputs.number("start", 0.0, (0.0, LATEST_S, 0.01)),
            inputs.number("end", 0.0, (0.0, LATEST_S, 0.01)),
        ],
        outputs=[io.Audio.Output("trimmed"), io.String.Output("report")],
        is_output_node=True,
    )

    @classmethod
    def validate_inputs(cls, start: float | None = None, end: float | None = None) -> bool | str:
        if not isinstance(start, (int, float)) or not isinstance(end, (int, float)):  # wired
            return True
        return inputs.judge(start=(lambda _: measure.check_bounds(start, end), start))

    @classmethod
    def execute(cls, audio: dict[str, Any], start: float, end: float) -> io.NodeOutput:
        waveform, rate = to_one_waveform(audio, "audio"), audio["sample_rate"]
        measured = measure.measure(waveform, rate)
        best = measure.propose(measured)
        part = measure.choose(measured.seconds, start, end) if start or end else best
        report = "\n".join(measure.tell(part, measured, waveform, rate))
        shown = {**draw(waveform, rate, measured), "best": bounds(best), "part": bounds(part)}
        trimmed = to_audio(part.cut(waveform, rate), rate)
        return io.NodeOutput(trimmed, report, ui={"text": (report,), KEY: [shown]})


def draw(waveform: np.ndarray, rate: int, measured: measure.Measurement) -> dict[str, Any]:
    """Return what the page needs to show a recording, ``[C, T]``, and to play it."""
    mono = waveform.mean(axis=0)
    points = round(min(max(POINTS_PER_S * measured.seconds, LEAST_POINTS), MOST_POINTS))
    [file] = write_clips([Clip(mono, rate, "", "recording")], Path(folder_paths.get_temp_directory()))
    return {
        **{name: file[name] for name in ("filename", "subfolder", "type")},
        "seconds": round(measured.seconds, 3),
        "shape": [(round(FULL_SCALE * low), round(FULL_SCALE * high)) for low, high in measure.shape_of(mono, points)],
        "clipped": measured.clipped_at(MOST_MARKS),
        "faults": list(measured.faults),
        "figures": {
            "level": round(measured.level_db),
            "peak": round(measured.peak_db, 1),
            "clipped": round(100 * measured.clipped, 2),
            "noise": None if measured.noise_db is None else round(measured.noise_db),
            "snr": None if measured.noise_db is None else round(measured.snr_db),
        },
    }


def bounds(part: measure.Excerpt) -> tuple[float, float]:
    return round(part.start_s, 2), round(part.end_s, 2)


NO_LIST = "cannot list the voice library"


class SaveVoice(io.ComfyNode):
    define_schema = schema(
        "MorphTTSSaveVoice",
        inputs=lambda: [
            VoiceSocket.Input("voice"),
            io.String.Input("name", default="my voice"),
            io.Boolean.Input("overwrite", default=False),
        ],
        outputs=[VoiceSocket.Output("saved_voice")],
        is_output_node=True,
    )

    validate_inputs = inputs.judged(name=lambda name: voice_library().path(name))

    # ComfyUI saves the voice again when its file is deleted or replaced. The node's own save is no change: all nodes
    # after it would run again.
    fingerprint_inputs = inputs.changing("name", lambda name: saved_voices().fingerprint(voice_library().path(name)))

    @classmethod
    def execute(cls, voice: Voice, name: str, overwrite: bool) -> io.NodeOutput:
        check_voice(voice)
        path = voice_library().path(name)
        named = replace(voice, name=path.stem)
        if holds_voice(path, named):  # leave the file alone: it would count as changed
            save_list(named, path)
            return io.NodeOutput(named, ui=ui.PreviewText(f"{VOICE_FOLDER}/{path.name} already contains this voice"))
        if path.exists() and (path.is_dir() or not overwrite):
            raise ValueError(f"a voice named {path.stem!r} already exists: choose another name, or turn on overwrite")
        with saved_voices().saving(path):
            save_source(named, path)
        shown, name, preset = f"saved {VOICE_FOLDER}/{path.name}", path.stem, Needs("", speakers=(path.stem,))
        if any(preset.are_met_by(config) for config in local_checkpoints().values()):
            shown += f"\n{name} is also a preset speaker: a script that names {name} now gets the saved voice"
        return io.NodeOutput(named, ui=ui.PreviewText(shown))


class LoadVoice(io.ComfyNode):
    define_schema = schema(
        "MorphTTSLoadVoice",
        inputs=lambda: [
            inputs.choice("name", listed(NO_LIST, lambda: voice_library().sources(), NO_VOICE)),
            ModelSocket.Input("model", optional=True),
        ],
        outputs=[VoiceSocket.Output("loaded_voice")],
    )

    validate_inputs = inputs.judged(name=lambda name: is_recording(path := find_source(name)) or load_source(path))

    @classmethod
    def fingerprint_inputs(cls, name: str | None = None, **_: Any) -> tuple[FileState, ...]:
        """Change when the file, or what is written beside it, is replaced, so that ComfyUI loads it again."""
        try:
            return source_states(voice_library().source(name or ""))
        except ValueError:
            return ()

    @classmethod
    def execute(cls, name: str, model: AnyModel | None = None) -> io.NodeOutput:
        path = find_source(name)
        if model is not None:
            check_model(model)
        elif is_recording(path):
            raise ValueError(f"voice {name!r} is a recording: connect model, the checkpoint that is to clone it")
        voice = load_source(path, None if model is None else model.clone_recording)
        shown = [*voice.notes, *filter(None, [voice.recipe])]
        return io.NodeOutput(voice, ui=ui.PreviewText("\n".join(shown))) if shown else io.NodeOutput(voice)


def find_source(name: str) -> Path:
    """Return the file of a voice or a recording; ValueError, naming the voices there are, if it does not exist."""
    inputs.check_word("name", name)
    if name == NO_VOICE:
        raise ValueError(f"name is {name!r}: save one with Save Voice, then press R and choose it")
    return voice_library().source(name)
