"""What the nodes that speak lines have in common: inputs that say how, and what they give back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from comfy_api.latest import io

from ...morph.options import GenerateOptions, removed_in
from ...morph.setting import settings_of
from ...morph.text.scripts.script import ScriptError
from .. import inputs
from ..models.linked import check_model, check_word_check
from ..page.clips import Clip, to_clip
from ..schema import output
from ..sockets import WordsSocket
from ..sound.audio_io import Audio, to_audio
from ..sound.facts import Facts
from ..sound.words import SpokenWords
from .pronunciation import lists_of

if TYPE_CHECKING:
    from ...morph.speech.lines import Spoken


def check_speaking(given: Mapping[str, Any]) -> None:
    """Raise ValueError for inputs, by name, that links may have given and nothing can be spoken with."""
    if given.get("model") is not None:
        check_model(given["model"])
    check_word_check(given.get("word_check"))
    lists_of(given.get("pronunciation"))
    inputs.check_word("language", given["language"])


def options_of(given: Mapping[str, Any]) -> GenerateOptions:
    """Return how lines are spoken, from inputs by name; those that are missing have their defaults."""
    known = settings_of(GenerateOptions).values()
    options = {one.name: given[one.public] for one in known if one.public in given}
    return GenerateOptions(sampling=given.get("sampling"), **options)


def ignored(hidden: io.HiddenHolder) -> list[str]:
    """Return what the report says of a node's inputs that ask for what was removed: a sentence for each."""
    # ComfyUI gives nodes no input that they do not have.
    sent = (hidden.prompt or {}).get(hidden.unique_id, {}).get("inputs", {})
    return [f"{name} is ignored: it was removed ({sent[name]})." for name in removed_in(sent)]


def to_audios(spoken: Sequence[Spoken], facts: Sequence[Facts]) -> list[Audio]:
    """Return each line as an AUDIO with its facts."""
    return [
        to_audio(one.waveform, one.sample_rate, [known]) for one, known in zip(spoken, facts, strict=True)
    ]


def to_clips(spoken: Sequence[Spoken], words: SpokenWords) -> list[Clip]:
    """Return each line as a clip with its words, which are at their times in its own sound."""
    return [to_clip(one, words=line.words) for one, line in zip(spoken, words.lines, strict=True)]


def words_output(sound: str, many: bool = False) -> io.Output:
    """Return the last output of a node that speaks; ``sound``: what the words' times are of."""
    return output(
        WordsSocket,
        "words",
        f"The words with the times at which they are heard in {sound}. Connect to Word Captions.",
        many=many,
    )


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn ScriptError into ValueError: the page shows the type with its module path, which users should not see."""
    try:
        yield
    except ScriptError as error:
        raise ValueError(str(error)) from None
