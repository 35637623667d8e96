"""Facts about a spoken line, enough to speak it again. They travel with AUDIO and inside saved files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ...morph.options import MOST_SEED, PREDICTED_GROUPS, GenerateOptions
from ...morph.speech.retries import take_seed
from ...morph.text.scripts.script import ScriptLine
from ...morph.voice.file import voice_digest
from ...postprocess.checks import is_whole
from ...serve.terminal.folders import pack_version

if TYPE_CHECKING:
    from ...morph.speech.lines import Line, Spoken

KEY = "morph_speech"  # of an AUDIO; other nodes ignore it, and drop it when they change the sound
FILE_KEY = "qwen3_tts_morph"  # of the JSON object in a file's comment
MOST_CHARACTERS = 10_000_000  # of a file's comment


@dataclass(frozen=True)
class Facts:
    """What one line was spoken from. Raises ValueError that names a wrong field."""

    text: str  # as it was given
    voice: str  # its name
    seed: int
    seq_groups: int
    name: str = ""  # the character, or ""
    # Everything else, as JSON can hold it: language, checkpoint, sampling, the pack's version.
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in ("text", "voice", "name"):
            if not isinstance(getattr(self, key), str):
                raise ValueError(f"{key} is not text")
        if not is_whole(self.seed, 0) or self.seed > MOST_SEED:
            raise ValueError(f"seed is not a whole number from 0 to {MOST_SEED}")
        if not is_whole(self.seq_groups, 1, PREDICTED_GROUPS):
            raise ValueError(f"seq_groups is not a whole number from 1 to {PREDICTED_GROUPS}")
        if not isinstance(self.settings, Mapping):
            raise ValueError("settings is not an object")


def facts_of_line(
    line: Line, spoken: Spoken, options: GenerateOptions, checkpoint: str, source: ScriptLine | None = None
) -> Facts:
    """Return the facts of a line that was spoken from a text (not from an iterator).

    ``source``: its line of a script, with what changed the sound afterwards.
    """
    given = asdict(options)
    for key in ("seq_groups", "chunk_frames"):
        del given[key]
    settings = {
        "language": line.language,
        "instruct": line.instruct,
        "voice_kind": line.voice.kind,
        "voice_id": voice_digest(line.voice)[:16],  # names may be the same
        **given,
        "checkpoint": checkpoint,
        "engine": spoken.engine,
        "pack": pack_version(),
    }
    if readings := {one.shown: one.read for one in spoken.report.readings}:
        settings["readings"] = readings
    if source is not None:
        settings |= {"gain_db": source.gain_db, "speed": source.speed, "pitch": source.pitch}
    seed = take_seed(line.seed, spoken.take)
    return Facts(str(line.text), line.voice.name, seed, options.seq_groups, line.name, settings)


def describe_seeds(facts: Sequence[Facts], numbers: Sequence[int] = ()) -> str:
    """Return the seed of each line's take as ``[seed N]`` uses it, one per line, after its number."""
    if len(facts) == 1:
        return f"Seed: {facts[0].seed}."
    rows = [
        f"{place}. {f'{one.name}: ' if one.name else ''}{one.seed}"
        for place, one in zip(numbers, facts, strict=True)
    ]
    return "\n".join(["Seeds:", *rows])


def facts_of(audio: Mapping[str, Any]) -> tuple[Facts, ...]:
    """Return an AUDIO's facts; none for sound that is not from the pack, or was changed since."""
    known = audio.get(KEY, ())
    return tuple(known) if all(isinstance(one, Facts) for one in known) else ()


def to_json(facts: Sequence[Facts]) -> str:
    return json.dumps({FILE_KEY: [asdict(one) for one in facts]}, ensure_ascii=False)


def from_json(comment: str) -> tuple[Facts, ...]:
    """Read a file's comment, () if it is not the pack's; ValueError says what is damaged."""
    if len(comment) > MOST_CHARACTERS:
        raise ValueError("it is too long")
    try:
        said = json.loads(comment)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(said, dict) or FILE_KEY not in said:
        return ()
    lines = said[FILE_KEY]
    if not isinstance(lines, list) or not lines:
        raise ValueError("it has no lines")
    return tuple(_read(one) for one in lines)


def _read(line: object) -> Facts:
    names = set(Facts.__dataclass_fields__)
    if not isinstance(line, dict) or set(line) != names:
        raise ValueError(f"a line does not have exactly {', '.join(sorted(names))}")
    return Facts(**line)
