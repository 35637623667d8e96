"""The pack's nodes, in ComfyUI's V3 API."""

from comfy_api.latest import ComfyExtension, io

from .models.load import LoadLora, LoadModel, WordCheckSettings
from .models.remote import RemoteModel
from .saving.captions import SaveSubtitles, WordCaptions
from .saving.save import SaveSpeech, SpeechFromFile
from .sound.audio import JoinAudio, SmoothNormalize, SpeedPitch
from .speaking.cast import Cast, WholeCast
from .speaking.dub import DubCaptions
from .speaking.generate import GenerateSpeech
from .speaking.pronunciation import Pronunciation
from .speaking.sampling import SamplingSettings
from .speaking.script import RenderScript, ScriptFromFile
from .speaking.sweep import Sweep
from .voices.library import LoadVoice, SaveVoice
from .voices.trim import TrimRecording
from .voices.voices import BlendVoices, CloneVoice, DesignVoice, PresetVoice, ShiftVoice

NODES: tuple[type[io.ComfyNode], ...] = (
    LoadModel,
    RemoteModel,
    CloneVoice,
    PresetVoice,
    DesignVoice,
    BlendVoices,
    ShiftVoice,
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
    WordCaptions,
    TrimRecording,
    Pronunciation,
    LoadLora,
)


class MorphTTSExtension(ComfyExtension):
    async def get_node_list(self) -> list[type[io.ComfyNode]]:
        return list(NODES)
