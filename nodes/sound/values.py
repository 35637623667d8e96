"""The values of sockets: ComfyUI's AUDIO, the facts of the lines in it, and words with their times."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pydantic
import torch
from pydantic import Field, StrictInt, StrictStr

from ...morph.options import MOST_SEED, PREDICTED_GROUPS, GenerateOptions
from ...morph.speech.lines import take_seed
from ...morph.text.scripts.script import ScriptLine
from ...morph.voice.file import voice_digest
from ...morph.words.captions import LineWords
from ...serve.terminal.folders import pack_version

if TYPE_CHECKING:
    from ...morph.batch.speech import Speaks
    from ...morph.speech.lines import Line, Spoken

KEY = "morph_speech"  # of an AUDIO; other nodes ignore it, and drop it when they change the sound
FILE_KEY = "qwen3_tts_morph"  # of the JSON object in a file's comment
MOST_CHARACTERS = 10_000_000  # of a file's comment


@pydantic.dataclasses.dataclass(frozen=True, config=pydantic.ConfigDict(extra="forbid"))
class Facts:
    """How one line was generated, for a file's metadata. Raises ValueError that names a wrong field."""

    text: StrictStr  # as typed
    voice: StrictStr  # its name
    seed: Annotated[StrictInt, Field(ge=0, le=MOST_SEED)]
    seq_groups: Annotated[StrictInt, Field(ge=1, le=PREDICTED_GROUPS)]
    name: StrictStr = ""  # the character, or ""
    # Everything else, as JSON can hold it: language, checkpoint, sampling, the pack's version.
    settings: dict[str, Any] = field(default_factory=dict)


LINES = pydantic.TypeAdapter(Annotated[list[Facts], Field(min_length=1)])  # of a file


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
    names = [f"{one.name}: " if one.name else "" for one in facts]
    rows = (f"{place}. {name}{one.seed}" for place, name, one in zip(numbers, names, facts, strict=True))
    return "\n".join(["Seeds:", *rows])


def facts_of(audio: Mapping[str, Any]) -> tuple[Facts, ...]:
    """Return an AUDIO's facts; none for several recordings, and for sound of other packs or changed since."""
    known = audio.get(KEY, ()) if len(audio["waveform"]) == 1 else ()
    return tuple(known) if all(isinstance(one, Facts) for one in known) else ()


def to_json(facts: Sequence[Facts]) -> str:
    return json.dumps({FILE_KEY: [asdict(one) for one in facts]}, ensure_ascii=False)


def from_json(comment: str) -> tuple[Facts, ...]:
    """Read a file's comment, () if it is not the pack's; ValueError says what is damaged."""
    if len(comment) > MOST_CHARACTERS:
        raise ValueError("it is too long")
    try:
        content = json.loads(comment)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(content, dict) or FILE_KEY not in content:
        return ()
    try:
        return tuple(LINES.validate_python(content[FILE_KEY]))
    except pydantic.ValidationError as error:
        wrong = error.errors()[0]
        raise ValueError(": ".join([*map(str, wrong["loc"]), wrong["msg"]])) from None


def to_waveforms(audio: dict[str, Any]) -> list[np.ndarray]:
    """Return every recording of a batch as float32 ``[C, T]``; ValueError if there is none."""
    if not isinstance(audio, Mapping) or "waveform" not in audio or "sample_rate" not in audio:
        raise ValueError("audio is missing (a video without a sound track has none): connect a recording")
    shape = tuple(audio["waveform"].shape)
    if len(shape) != 3 or 0 in shape:
        raise ValueError(f"audio has shape {shape}, not [batch, channels, samples]: connect a recording")
    return [np.ascontiguousarray(one) for one in audio["waveform"].detach().cpu().float().numpy()]


def to_one_waveform(audio: dict[str, Any], name: str) -> np.ndarray:
    """Return the single recording of an AUDIO as float32 ``[C, T]``; ValueError for a batch of several."""
    waveforms = to_waveforms(audio)
    if (count := len(waveforms)) != 1:
        fix = "connect a single recording, such as one from Load Audio"
        raise ValueError(f"{name} is a batch of {count} recordings: {fix}")
    return waveforms[0]


def to_audio(waveform: np.ndarray, sample_rate: int, facts: Sequence[Facts] = ()) -> dict[str, Any]:
    """Return an AUDIO of one recording, ``[T]`` or ``[C, T]``; ``facts`` are of its lines."""
    channels = np.atleast_2d(np.ascontiguousarray(waveform, dtype=np.float32))
    audio: dict[str, Any] = {"waveform": torch.from_numpy(channels)[None], "sample_rate": sample_rate}
    if facts:
        audio[KEY] = tuple(facts)
    return audio


WITHOUT = (
    "a line has none if it could not be made, or if an earlier version of the pack cached it (Settings, Qwen3-TTS "
    "Morph, Cached lines, Remove)"
)


@dataclass(frozen=True)
class SpokenWords:
    """The value of the words socket."""

    lines: tuple[LineWords, ...]  # with times in one sound; failed lines have no words
    missing: str = ""  # why there is no word at all, and what to do; or ""

    def at(self, starts: Sequence[int], rate: int) -> SpokenWords:
        """Return the words in a track in which each line begins at its own sample of ``starts``."""
        lines = tuple(line.at(start / rate) for line, start in zip(self.lines, starts, strict=True))
        return SpokenWords(lines, self.missing)

    def describe(self) -> str:
        """Return the report's line about lines without words, and why; "" if all have words."""
        if self.missing:
            return f"No word times: {self.missing}."
        count = sum(not line.words for line in self.lines)
        return f"No word times for {count} of {len(self.lines)} lines: {WITHOUT}." if count else ""


def words_of(speaks: Speaks, spoken: Sequence[Spoken]) -> SpokenWords:
    """Return the words of lines at their final speed, each line's in its own sound."""
    missing = ""
    try:
        speaks.check_words()
    except ValueError as error:
        missing = str(error)
    lines = tuple(LineWords(() if missing else speaks.words(one), one.report.name) for one in spoken)
    if not any(line.words for line in lines):
        missing = missing or f"no line has word times: {WITHOUT}"
    return SpokenWords(lines, missing)


def check_words(value: object) -> SpokenWords:
    """Return the value of a words input; ValueError for anything else, and if it has no word."""
    if not isinstance(value, SpokenWords):
        nodes = "Generate Speech, Render Script, Dub Captions or Transcribe"
        raise ValueError(f"words is {repr(value)[:40]}: connect the words of {nodes}")
    if value.missing:
        raise ValueError(f"words is empty: {value.missing}")
    return value
