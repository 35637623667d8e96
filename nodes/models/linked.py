"""Check values of links: a caller of ComfyUI's API may send any value where a link belongs."""

from collections.abc import Mapping

from ...morph.voice.voice import Voice
from .memory import ManagedModel
from .remote import ServedModel


def check_model(value: object) -> None:
    if not isinstance(value, ManagedModel | ServedModel):
        raise ValueError(f"model is {shown(value)}: connect Load Qwen3-TTS Model")


def check_voice(value: object, name: str = "voice") -> None:
    if not isinstance(value, Voice):
        raise ValueError(f"{name} is {shown(value)}: connect a voice, such as that of Preset Voice")


def check_cast(value: object) -> None:
    if not isinstance(value, Mapping) or not all(isinstance(one, Voice) for one in value.values()):
        raise ValueError(f"cast is {shown(value)}: connect Cast or Whole Cast")


def check_word_check(value: object) -> None:
    from ...morph.kept.word_check import WordCheck

    if value is not None and not isinstance(value, WordCheck):
        raise ValueError(f"word_check is {shown(value)}: connect Word Check, or disconnect it")


def shown(value: object) -> str:
    return repr(value)[:40]
