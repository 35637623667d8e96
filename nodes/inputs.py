"""Inputs that several nodes share, each explained once. Schemas are built often: nothing heavy in here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from comfy_api.latest import io

from ..morph.options import (
    DECODINGS,
    DEFAULT_SEQ_GROUPS,
    MOST_RETRIES,
    NORMALIZE,
    PREDICTED_GROUPS,
    GenerateOptions,
    check_choice,
    check_decoding,
)
from ..morph.text.script import find_tag
from ..morph.text.split import check_text as check_speakable
from .sockets import ModelSocket, SamplingSocket, VoiceSocket

# The published checkpoints' languages; the engine lists a checkpoint's own when one is unknown to it.
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
    return ModelSocket.Input("model", tooltip="A checkpoint from Load Model. Required.")


def voice(tooltip: str) -> io.Input:
    return VoiceSocket.Input("voice", tooltip=tooltip)


def text(default: str) -> io.Input:
    return io.String.Input(
        "text",
        multiline=True,
        default=default,
        dynamic_prompts=False,
        tooltip="What is to be spoken, in plain words. Must not be empty. Default: a sample sentence.",
    )


def language() -> io.Input:
    return io.Combo.Input(
        "language",
        options=list(LANGUAGES),
        default="auto",
        tooltip="The language of the text; auto lets the model find it. Default: auto.",
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
            "How many of each frame's 15 predicted code groups run one after another; the rest come at "
            f"once from the crossbar. {PREDICTED_GROUPS} is exact, the original algorithm. Less is faster "
            "and approximate: the groups above it, which carry the finer detail of the sound, are guessed "
            "without seeing each other. Listen with Sweep before you go low. Unit: groups, 1 to 15. "
            f"Default: {DEFAULT_SEQ_GROUPS}."
        ),
    )


def seed(what: str) -> io.Input:
    return io.Int.Input(
        "seed",
        default=0,
        min=0,
        max=MAX_SEED,
        control_after_generate=True,
        tooltip=f"{what} Unit: a whole number, 0 to 2^64 - 1. Default: 0.",
    )


def sampling() -> io.Input:
    return SamplingSocket.Input(
        "sampling",
        optional=True,
        tooltip="From the Sampling node. Default, unconnected: the checkpoint's own generation_config.",
    )


def decoding() -> io.Input:
    return io.Combo.Input(
        "decoding",
        options=list(DECODINGS),
        default=GenerateOptions.decoding,
        optional=True,
        tooltip=(
            "What becomes of the groups above SEQ_GROUPS. crossbar: kept as the crossbar samples them, approximate. "
            "lossless: they are a draft that the exact predictor checks and corrects; probabilities are those of "
            f"SEQ_GROUPS {PREDICTED_GROUPS}, though a seed gives another take. It takes fewer passes than "
            f"{PREDICTED_GROUPS}, fewest with SEQ_GROUPS 1, but runs on the eager engine, without CUDA graphs: on a "
            f"GPU SEQ_GROUPS {PREDICTED_GROUPS} with crossbar may be faster; compare ms per frame in the report. "
            f"Default: {GenerateOptions.decoding}."
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
            "How often speech that went wrong (silent, ended too early, ran into its limit, repeated itself) is spoken "
            "again, each time with the next seed; the report says so. Unit: times, 0 to "
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
            "auto: figures, dates, prices and capitals are written out as English words for checkpoints that cannot "
            "read them (the demo voice; published ones read them); the report shows the text as it was spoken. off: "
            f"the text stays as it is. Default: {GenerateOptions.normalize}."
        ),
    )


def advanced(widget: io.Input) -> io.Input:
    """Mark an input as advanced: the page may fold it away. Built-in inputs take no such argument."""
    widget.extra_dict["advanced"] = True
    return widget


def refuse(check: Callable[[Any], object], value: Any) -> bool | str:
    """What ``validate_inputs`` gives: True when ``check`` takes the value or it is wired (None), else its sentence."""
    try:
        if value is not None:
            check(value)
    except ValueError as error:
        return str(error)
    return True


def spread(given: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Inputs that arrive as lists, as one set per run: the last value of a shorter list serves all further runs."""
    runs = max(map(len, given.values()))
    return [
        {name: values[min(run, len(values) - 1)] for name, values in given.items()} for run in range(runs)
    ]


def check_text(text: str, name: str = "text") -> None:
    """Raise ValueError for a text with nothing to speak, or with a tag that only scripts have."""
    check_speakable(text, name)
    if tag := find_tag(text):
        raise ValueError(
            f"{name} holds {tag[:40]}, a tag of scripts, which would be spoken: use Render Script, or take it out"
        )


def check_settings(language: str | None, decoding: str | None, normalize_text: str | None) -> None:
    """Raise ValueError for a choice that a list does not offer; None is wired, and checked when it runs."""
    if language is not None:
        check_choice("language", language, LANGUAGES)
    if decoding is not None:
        check_decoding(decoding)
    if normalize_text is not None:
        check_choice("normalize_text", normalize_text, NORMALIZE)
