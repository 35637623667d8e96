"""Read a checkpoint's own settings: an optional ``morph.json`` beside its config.json, which upstream ignores."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..text.profile import TextProfile
from ..words.head import PUBLISHED_HEADS, AlignmentHead, TalkerShape
from .files import read_object

FILE = "morph.json"
ALIGNMENT = "alignment"


def read_profile(path: Path) -> TextProfile:
    """Return a checkpoint's text profile, or the defaults; ValueError, naming the field, for a damaged FILE."""
    with _reading(path) as given:
        given.pop(ALIGNMENT, None)
        unknown = sorted(given.keys() - {field.name for field in fields(TextProfile)})
        if unknown:
            raise ValueError(f"{unknown[0]!r} is unknown")
        if given.get("normalize", "") is None:
            given["normalize"] = ""
        return TextProfile(**given)


def read_alignment(path: Path, shape: TalkerShape) -> AlignmentHead | None:
    """Return the alignment head, which follows the text: from FILE, else the published one of this talker shape.

    In FILE it is ``"alignment": {"layer": 1, "head": 0, "lead_ms": 0}``, or null for none; ``lead_ms`` may be left out.
    Errors as ``read_profile``.
    """
    with _reading(path) as given:
        if ALIGNMENT not in given:
            return PUBLISHED_HEADS.get(shape)
        return None if given[ALIGNMENT] is None else _head(given[ALIGNMENT], shape)


def _head(given: Any, shape: TalkerShape) -> AlignmentHead:
    if not isinstance(given, Mapping) or not {"layer", "head"} <= given.keys() <= {"layer", "head", "lead_ms"}:
        raise ValueError(f"{ALIGNMENT} is {given!r}: write its layer, its head and, if it has one, its lead_ms")
    lead_ms = given.get("lead_ms", 0)
    if type(lead_ms) not in (int, float):
        raise ValueError(f"{ALIGNMENT}: lead_ms is {lead_ms!r}: write a number")
    try:
        head = AlignmentHead(given["layer"], given["head"], lead_ms / 1000)
    except ValueError as error:
        raise ValueError(f"{ALIGNMENT}: {error}") from error
    if head.layer >= shape.layers or head.head >= shape.heads:
        raise ValueError(
            f"{ALIGNMENT} is layer {head.layer} head {head.head}, and the talker has {shape.layers} layers of "
            f"{shape.heads} heads"
        )
    return head


@contextmanager
def _reading(path: Path) -> Iterator[dict[str, Any]]:
    """Yield FILE's object, {} without one; ValueError names the checkpoint for any fault in it."""
    file = path / FILE
    try:
        yield read_object(file) if file.exists() else {}
    except (OSError, ValueError) as error:
        fix = "correct it, or delete it for the defaults"
        raise ValueError(f"checkpoint {path.name} has a damaged {FILE} ({error}): {fix}") from error
