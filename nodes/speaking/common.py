"""What the nodes that speak lines have in common: inputs that say how, and what they give back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...morph.options import DECODINGS, NORMALIZE, GenerateOptions
from ...morph.text.scripts.script import ScriptError
from .. import inputs
from ..models.linked import check_model, check_word_check
from ..sound.audio_io import Audio, to_audio
from ..sound.facts import Facts

if TYPE_CHECKING:
    from ...morph.speech.lines import Spoken

# The inputs that are fields of ``GenerateOptions``, by their names.
OPTIONS = {
    **{
        name: name
        for name in ("seq_groups", "sampling", "batch_size", "split_chars", "guard", "decoding", "retries")
    },
    "normalize_text": "normalize",
    "trim_silence": "trim_ends",
}


def judge_speaking(
    language: str | None, decoding: str | None, normalize_text: str | None, **more: inputs.Given
) -> bool | str:
    """Judge inputs that these nodes have, and ``more``; see ``inputs.judge``."""
    return inputs.judge(
        language=(inputs.LANGUAGES, language),
        decoding=(DECODINGS, decoding),
        normalize_text=(NORMALIZE, normalize_text),
        **more,
    )


def check_speaking(given: Mapping[str, Any]) -> None:
    """Raise ValueError for inputs, by name, that links may have given and nothing can be spoken with."""
    check_model(given["model"])
    check_word_check(given.get("word_check"))
    inputs.check_word("language", given["language"])
    inputs.check(normalize_text=(NORMALIZE, given.get("normalize_text", GenerateOptions.normalize)))


def options_of(given: Mapping[str, Any]) -> GenerateOptions:
    """Return how lines are spoken, from inputs by name; those that are missing have their defaults."""
    return GenerateOptions(**{field: given[name] for name, field in OPTIONS.items() if name in given})


def to_audios(spoken: Sequence[Spoken], facts: Sequence[Facts]) -> list[Audio]:
    """Return each line as an AUDIO with its facts."""
    return [
        to_audio(one.waveform, one.sample_rate, [known]) for one, known in zip(spoken, facts, strict=True)
    ]


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn ScriptError into ValueError: the page shows the type with its module path, which users should not see."""
    try:
        yield
    except ScriptError as error:
        raise ValueError(str(error)) from None
