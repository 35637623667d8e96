"""Inputs that several nodes share. ComfyUI builds schemas often, so this module does no heavy work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from comfy_api.latest import io

from ..morph.options import (
    AUTO_ROWS,
    DECODINGS,
    DEFAULT_SEQ_GROUPS,
    MOST_LINES,
    MOST_RETRIES,
    NORMALIZE,
    PREDICTED_GROUPS,
    GenerateOptions,
    check_choice,
)
from ..morph.text.pauses import check_spoken
from ..morph.text.scripts.script import find_tag
from .sockets import ModelSocket, SamplingSocket, VoiceSocket, WordCheckSocket

# The languages of the published checkpoints. If a checkpoint does not know one, the engine's error lists its own.
LANGUAGES = (
    "auto",
    "chinese",
    "english",
    "japanese",
    "korean",
    "german",
    "french",
    "russian",
    "portuguese",
    "spanish",
    "italian",
)
MAX_SEED = 2**64 - 1


def model() -> io.Input:
    return ModelSocket.Input("model", tooltip="A checkpoint from Load Qwen3-TTS Model. Required.")


def voice(tooltip: str) -> io.Input:
    return VoiceSocket.Input("voice", tooltip=tooltip)


def text(default: str) -> io.Input:
    return io.String.Input(
        "text",
        multiline=True,
        default=default,
        dynamic_prompts=False,
        tooltip=(
            "The text to speak. [pause 0.5] in it is half a second of silence; there is no other markup. Must not be "
            "empty. Default: a sample sentence."
        ),
    )


def language() -> io.Input:
    return io.Combo.Input(
        "language",
        options=list(LANGUAGES),
        default="auto",
        tooltip="The language of the text. auto lets the model detect it. Default: auto.",
    )


def seq_groups() -> io.Input:
    return io.Int.Input(
        "seq_groups",
        display_name="SEQ_GROUPS",
        default=DEFAULT_SEQ_GROUPS,
        min=1,
        max=PREDICTED_GROUPS,
        step=1,
        display_mode=io.NumberDisplay.slider,
        tooltip=(
            "How many of each frame's 15 predicted code groups are computed one after another; the crossbar "
            f"computes the rest at once. {PREDICTED_GROUPS} is exact: the original algorithm. Lower is faster and "
            "approximate: the groups above it, which carry the finer detail of the sound, are sampled "
            "independently of each other. Before going low, compare settings by ear with Speed/Quality Sweep. "
            f"Unit: groups, 1 to 15. Default: {DEFAULT_SEQ_GROUPS}."
        ),
    )


def seed(what: str) -> io.Input:
    return io.Int.Input(
        "seed",
        default=0,
        min=0,
        max=MAX_SEED,
        control_after_generate=True,
        tooltip=f"{what} Unit: integer, 0 to 2^64 - 1. Default: 0.",
    )


def sampling() -> io.Input:
    return SamplingSocket.Input(
        "sampling",
        optional=True,
        tooltip="Settings from the Sampling node. Default: not connected, the checkpoint's own generation_config.",
    )


def batch_size(what: str) -> io.Input:
    return io.Int.Input(
        "batch_size",
        default=GenerateOptions.batch_size,
        min=AUTO_ROWS,
        max=MOST_LINES,
        tooltip=(
            f"How many {what} are decoded in parallel. More is faster but uses more memory. Unit: lines. Default: "
            f"{GenerateOptions.batch_size}, as many as there are and the memory allows."
        ),
    )


def decoding() -> io.Input:
    return io.Combo.Input(
        "decoding",
        options=list(DECODINGS),
        default=GenerateOptions.decoding,
        optional=True,
        tooltip=(
            "How the groups above SEQ_GROUPS are decoded. crossbar: the crossbar samples them; approximate. lossless: "
            f"runs as SEQ_GROUPS {PREDICTED_GROUPS}, which had the same probabilities in the same time; it is here for "
            f"workflows that name it. Default: {GenerateOptions.decoding}."
        ),
    )


def retries() -> io.Input:
    return io.Int.Input(
        "retries",
        default=GenerateOptions.retries,
        min=0,
        max=MOST_RETRIES,
        optional=True,
        tooltip=(
            "How many times to retry speech that failed (it was silent, ended too early, hit its length limit or "
            "repeated itself), each time with the next seed. The report says when this happens. Unit: retries, 0 to "
            f"{MOST_RETRIES}. Default: {GenerateOptions.retries}."
        ),
    )


def normalize_text() -> io.Input:
    return io.Combo.Input(
        "normalize_text",
        options=list(NORMALIZE),
        default=GenerateOptions.normalize,
        optional=True,
        tooltip=(
            "auto: writes out numbers, dates, prices and all-caps words as English words for checkpoints that cannot "
            "read them (the demo voice). Published checkpoints read them, so their text is left unchanged. The report "
            f"shows the text as spoken. off: leaves the text unchanged. Default: {GenerateOptions.normalize}."
        ),
    )


def trim_silence() -> io.Input:
    return io.Boolean.Input(
        "trim_silence",
        default=GenerateOptions.trim_ends,
        optional=True,
        tooltip=(
            "Cut the silence at both ends of each line, but for 40 ms; lines of the demo voice begin a quarter of a "
            "second late. Pauses that the text asks for stay, and subtitles follow. Default: off."
        ),
    )


def reuse_lines() -> io.Input:
    return io.Boolean.Input(
        "reuse_lines",
        default=True,
        optional=True,
        tooltip=(
            "A line that was made before with the same model, voice, text, seed and settings is taken from the disk, "
            "also after a restart of ComfyUI. The report says how many were. off: makes every line and keeps none. "
            "Settings, Qwen3-TTS Morph, remove what is kept. Default: on."
        ),
    )


def word_check() -> io.Input:
    return WordCheckSocket.Input(
        "word_check",
        optional=True,
        tooltip="From the Word Check node: a speech recogniser hears the words. Default: not connected, no check.",
    )


def advanced(widget: io.Input) -> io.Input:
    """Mark an input as advanced, so that the page may hide it. The built-in input classes have no argument for this."""
    widget.extra_dict["advanced"] = True
    return widget


def judge(**given: tuple[Callable[[Any], object], Any]) -> bool | str:
    """Return True if each input's check accepts its value; otherwise an error that begins with the input's name.

    ComfyUI gives the sentence to every argument of ``validate_inputs``: by the name the page tells whose it is
    (``web/js/refused.js``). None is an input that is wired, which is checked when the node runs, or missing; a list is
    a broken link, which ComfyUI reports.
    """
    for name, (check, value) in given.items():
        if value is None or isinstance(value, list):
            continue
        try:
            check(value)
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
    check_spoken(text, name)
    if tag := find_tag(text):
        raise ValueError(
            f"{name} contains {tag[:40]}, a script tag that would be read aloud: use Render Script, or remove the tag"
        )


def check_language(language: str) -> None:
    """Raise ValueError for a language that is not in the list."""
    check_choice("language", language, LANGUAGES)


def check_word(name: str, value: object) -> None:
    """Raise ValueError if a value from a list, or from a link in its place, is no text."""
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r}: choose one from the list")


def check_normalize(normalize_text: str) -> None:
    """Raise ValueError for a value of ``normalize_text`` that is not in its list."""
    check_choice("normalize_text", normalize_text, NORMALIZE)
