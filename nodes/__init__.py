"""The pack's nodes, in ComfyUI's V3 API."""

from __future__ import annotations

from comfy_api.latest import ComfyExtension, io

from .audio import JoinAudio, SmoothNormalize
from .cast import Cast, WholeCast
from .dub import DubCaptions
from .generate import GenerateSpeech
from .library import LoadVoice, SaveVoice
from .load import LoadModel
from .remote import RemoteModel
from .sampling import SamplingSettings
from .save import SaveSpeech, SpeechFromFile
from .script import RenderScript
from .script_file import ScriptFromFile
from .speed_pitch import SpeedPitch
from .subtitles import SaveSubtitles
from .sweep import Sweep
from .voices import BlendVoices, CloneVoice, DesignVoice, PresetVoice
from .word_check import WordCheckSettings

NODES: tuple[type[io.ComfyNode], ...] = (
    LoadModel,
    RemoteModel,
    CloneVoice,
    PresetVoice,
    DesignVoice,
    BlendVoices,
    SaveVoice,
    LoadVoice,
    SamplingSettings,
    GenerateSpeech,
    Cast,
    WholeCast,
    RenderScript,
    SmoothNormalize,
    JoinAudio,
    Sweep,
    SaveSubtitles,
    SaveSpeech,
    SpeechFromFile,
    ScriptFromFile,
    WordCheckSettings,
    SpeedPitch,
    DubCaptions,
)


class MorphTTSExtension(ComfyExtension):
    """The entry point through which ComfyUI gets the pack's nodes."""

    async def get_node_list(self) -> list[type[io.ComfyNode]]:
        return list(NODES)
