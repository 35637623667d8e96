"""Inputs that several nodes share. ComfyUI builds schemas often, so this module does no heavy work."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from comfy_api.latest import io

from ..morph.hearing.whisper import CODES
from ..morph.options import AUTO_ROWS, MOST_LINES, MOST_SEED, PREDICTED_GROUPS, GenerateOptions
from ..morph.setting import settings_of
from ..morph.text.pauses import check_spoken
from ..morph.text.scripts.script import find_tag
from ..postprocess.checks import check_choice
from .sockets import (
    CastSocket,
    ModelSocket,
    PronunciationSocket,
    SamplingSocket,
    VoiceSocket,
    WordCheckSocket,
)

CHOSEN = "Default: not connected, a published one that is on this machine, or the demo voice; the report says which."
SETTINGS = settings_of(GenerateOptions)
# The languages of the published checkpoints. If a checkpoint does not know one, the engine's error lists its own.
LANGUAGES = ("auto", *CODES)


def number(name: str, default: float, span: Sequence[float], tooltip: str, **more: Any) -> io.Input:
    """Return a widget for a number, whole if ``default`` is; ``span``: the lowest, the highest, and a step if any."""
    kind: Any = io.Int if isinstance(default, int) else io.Float
    lowest, highest, *step = span
    limits = {"min": lowest, "max": highest, "step": step[0] if step else None}
    return kind.Input(name, default=default, tooltip=tooltip, **limits, **more)


def choice(name: str, options: Iterable[str], default: str, tooltip: str, **more: Any) -> io.Input:
    """Return a widget for one of several texts."""
    return io.Combo.Input(name, options=list(options), default=default, tooltip=tooltip, **more)


def switch(name: str, default: bool, tooltip: str, **more: Any) -> io.Input:
    """Return a widget that is on or off."""
    return io.Boolean.Input(name, default=default, tooltip=tooltip, **more)


def text_box(name: str, default: str, tooltip: str, **more: Any) -> io.Input:
    """Return a widget for a text of several lines, which is taken as it is."""
    return io.String.Input(
        name, default=default, tooltip=tooltip, multiline=True, dynamic_prompts=False, **more
    )


def model(optional: bool = False) -> io.Input:
    tooltip = f"A checkpoint from Load Qwen3-TTS Model. {CHOSEN if optional else 'Required.'}"
    return ModelSocket.Input("model", optional=optional, tooltip=tooltip)


def voice(tooltip: str, optional: bool = False) -> io.Input:
    return VoiceSocket.Input("voice", optional=optional, tooltip=tooltip)


def text(default: str) -> io.Input:
    return text_box(
        "text",
        default,
        "The text to speak. [pause 0.5] in it is half a second of silence, and a word may have its reading beside it "
        "(see the help page); there is no other markup. Must not be empty. Default: a sample sentence.",
    )


def language() -> io.Input:
    return choice(
        "language",
        LANGUAGES,
        "auto",
        "The language of the text. auto lets the model detect it. Default: auto.",
    )


def seq_groups() -> io.Input:
    return number(
        "seq_groups",
        GenerateOptions.seq_groups,
        (1, PREDICTED_GROUPS, 1),
        "How many of each frame's 15 predicted code groups are computed one after another; the crossbar "
        f"computes the rest at once. {PREDICTED_GROUPS} is exact: the original algorithm. Lower is faster and "
        "approximate: the groups above it, which carry the finer detail of the sound, are sampled "
        "independently of each other. Before going low, compare settings by ear with Speed/Quality Sweep. "
        f"Unit: groups, 1 to 15. Default: {GenerateOptions.seq_groups}.",
        display_name="SEQ_GROUPS",
        display_mode=io.NumberDisplay.slider,
    )


def cast() -> io.Input:
    return CastSocket.Input(
        "cast",
        optional=True,
        tooltip=(
            "The characters' voices, from Cast or Whole Cast. A name that it does not have is looked up "
            "among the saved voices, then among the checkpoint's speakers. Default: not connected."
        ),
    )


def seed(what: str) -> io.Input:
    return number(
        "seed",
        0,
        (0, MOST_SEED),
        f"{what} Unit: integer, 0 to 2^64 - 1. Default: 0.",
        control_after_generate=True,
    )


def sampling() -> io.Input:
    return SamplingSocket.Input(
        "sampling",
        optional=True,
        tooltip="Settings from the Sampling node. Default: not connected, the checkpoint's own generation_config.",
    )


def batch_size(what: str) -> io.Input:
    return number(
        "batch_size",
        GenerateOptions.batch_size,
        (AUTO_ROWS, MOST_LINES),
        f"How many {what} are decoded in parallel. More is faster but uses more memory. Unit: lines. Default: "
        f"{GenerateOptions.batch_size}, as many as there are and the memory allows.",
    )


def decoding() -> io.Input:
    return choice(
        "decoding",
        ("crossbar", "lossless"),
        "crossbar",
        "Does nothing any more: it keeps the values of the widgets below it in their places in saved workflows. "
        "Default: crossbar.",
        optional=True,
        display_name="fine detail (ignored)",
    )


def retries() -> io.Input:
    return number(
        "retries",
        GenerateOptions.retries,
        (0, SETTINGS["retries"].high),
        "How many times to retry speech that failed (it was silent, ended too early, hit its length limit, repeated "
        "itself, began with words of its reference or, with wrong_words, said other words), each time with the next "
        f"seed. The report says when this happens. Unit: retries, 0 to {SETTINGS['retries'].high}. Default: "
        f"{GenerateOptions.retries}.",
        optional=True,
    )


def normalize_text() -> io.Input:
    return choice(
        "normalize_text",
        SETTINGS["normalize"].choices,
        GenerateOptions.normalize,
        "auto: writes out numbers, dates, prices and all-caps words as English words for checkpoints that cannot "
        "read them (the demo voice). Published checkpoints read them, so their text is left unchanged. The report "
        f"shows the text as spoken. off: leaves the text unchanged. Default: {GenerateOptions.normalize}.",
        optional=True,
    )


def wrong_words() -> io.Input:
    return choice(
        "wrong_words",
        SETTINGS["wrong_words"].choices,
        GenerateOptions.wrong_words,
        "What to do when the model is seen to skip, repeat or invent words. ignore: you hear them. retry: the speech "
        "counts as failed and is retried. end: also stops it at the wrong word. Words that are only badly spoken need "
        "the Word Check node. Needs a checkpoint with a known alignment head. Default: "
        f"{GenerateOptions.wrong_words}.",
        optional=True,
        display_name="skipped words",
    )


def trim_silence() -> io.Input:
    return switch(
        "trim_silence",
        GenerateOptions.trim_ends,
        "Cut the silence at both ends of each line, but for 40 ms; lines of the demo voice begin a quarter of a "
        "second late. Pauses that the text asks for stay, and subtitles follow. Default: off.",
        optional=True,
    )


def reuse_lines() -> io.Input:
    return switch(
        "reuse_lines",
        True,
        "A line that was made before with the same model, voice, text, seed and settings is taken from the disk: the "
        "same sound, at once, also after a restart of ComfyUI. The report says how many were. off: makes every line "
        "and keeps none. Settings, Qwen3-TTS Morph, remove what is kept. Default: on.",
        optional=True,
        display_name="reuse unchanged lines",
    )


def word_check() -> io.Input:
    return WordCheckSocket.Input(
        "word_check",
        optional=True,
        tooltip="From the Word Check node: a speech recogniser hears the words. Default: not connected, no check.",
    )


def pronunciation() -> io.Input:
    return PronunciationSocket.Input(
        "pronunciation",
        optional=True,
        tooltip="From the Pronunciation node: how words are read. A voice may have its own list beside its file. "
        "Default: not connected.",
    )


Given: TypeAlias = tuple[Callable[[Any], object] | Collection[str], Any]
"""A check of an input, or what can be chosen, and the input's value."""


def check(**given: Given) -> None:
    """Raise ValueError for the first input whose check does not accept its value."""
    for name, (checks, value) in given.items():
        if callable(checks):
            checks(value)
        else:
            check_choice(name, value, tuple(checks))


def judge(**given: Given) -> bool | str:
    """Return True if each input's check accepts its value; otherwise an error that begins with the input's name.

    ComfyUI gives the sentence to every argument of ``validate_inputs``: have one where you can, and check choices when
    the node runs, which newer ComfyUIs do before. Of several, the page tells by the name whose it is
    (``web/js/refused.js``). None is an input that is wired, which is checked when the node runs, or missing; a list is
    a broken link, which ComfyUI reports.
    """
    for name, (checks, value) in given.items():
        if value is None or isinstance(value, list):
            continue
        try:
            check(**{name: (checks, value)})
        except ValueError as error:
            said = str(error)
            return said if said.casefold().startswith(name) else f"{name}: {said}"
    return True


def spread(given: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Turn inputs that arrive as lists into one dict per run; a shorter list repeats its last value.

    Raises:
        ValueError: for an empty list.
    """
    for name, values in given.items():
        check_filled(name, values)
    runs = max(map(len, given.values()))
    return [
        {name: values[min(run, len(values) - 1)] for name, values in given.items()} for run in range(runs)
    ]


def check_filled(name: str, values: Sequence[Any]) -> None:
    """Raise ValueError for an input that arrives as an empty list."""
    if not values:
        raise ValueError(f"{name} is an empty list: connect a node that gives something")


def check_text(text: str, name: str = "text") -> None:
    """Raise ValueError if a text has nothing to speak, or contains a tag that only scripts support."""
    if not isinstance(text, str):  # from a link
        raise ValueError(f"{name} is {text!r}: connect a text")
    check_spoken(text, name)
    if tag := find_tag(text):
        raise ValueError(
            f"{name} contains {tag[:40]}, a script tag that would be read aloud: use Render Script, or remove the tag"
        )


def check_word(name: str, value: object) -> None:
    """Raise ValueError if a value from a list, or from a link in its place, is no text."""
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r}: choose one from the list")
