"""Recordings that become files: their names, their metadata, and how the files of one run are written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..morph.text.pauses import without_pauses
from .audio_io import to_waveforms
from .clips import KEY as CLIPS
from .clips import Clip, file_name, list_clip
from .facts import Facts, facts_of, to_json
from .names import confine, write_whole

RUN = re.compile(r"(\d{5,})_")  # the number of a run, at the start of its files' names
LONGEST_TITLE = 200


@dataclass(frozen=True, eq=False)
class Recording:
    """What becomes one file.

    Args:
        waveform: float ``[C, T]``.
        sample_rate: in Hz.
        facts: of the lines that it holds.
        number: in its run, from 1; 0: the track.
    """

    waveform: np.ndarray
    sample_rate: int
    facts: tuple[Facts, ...]
    number: int

    @property
    def name(self) -> str:
        """The character, if the recording is one line."""
        return self.facts[0].name if len(self.facts) == 1 else ""

    @property
    def text(self) -> str:
        """The words, if the recording is one line."""
        return without_pauses(self.facts[0].text) if len(self.facts) == 1 else ""

    def file_name(self, kind: str) -> str:
        """Return the name of its file, without the run's number."""
        if not self.number:
            return f"track.{kind}"
        return file_name(self.number, self.name, self.text, f".{kind}")

    def tags(self) -> dict[str, str]:
        """Return the metadata of its file: what players show, and all facts as the comment."""
        if not self.facts:
            return {}
        title = " ".join(without_pauses(one.text) for one in self.facts)[:LONGEST_TITLE]
        artist = ", ".join(dict.fromkeys(one.name or one.voice for one in self.facts))
        return {"title": title, "artist": artist, "comment": to_json(self.facts)}


def recordings_of(audio: Sequence[dict[str, Any]], is_track: bool = False) -> list[Recording]:
    """Return every recording of AUDIOs in order; facts belong to AUDIOs of one recording."""
    found: list[Recording] = []
    for one in audio:
        waveforms = to_waveforms(one)
        facts = facts_of(one) if len(waveforms) == 1 else ()
        for waveform in waveforms:
            number = 0 if is_track else len(found) + 1
            found.append(Recording(waveform, one["sample_rate"], facts, number))
    if is_track and len(found) > 1:
        raise ValueError(f"track is {len(found)} recordings: connect the audio output of Render Script")
    return found


def write_run(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write the files of a run with the next free number before their names; if one cannot be written, leave none."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = [int(found[1]) for path in folder.iterdir() if (found := RUN.match(path.name))]
    run = max(numbers, default=0) + 1
    written: list[Path] = []
    try:
        for name, data in files.items():
            path = confine(folder, f"{run:05}_{name}")
            write_whole(path.open("xb"), path, data)
            written.append(path)
    except OSError:
        for path in written:
            path.unlink(missing_ok=True)
        raise
    return written


def listed(recordings: Sequence[Recording], paths: Sequence[Path]) -> dict[str, Any]:
    """Return the ui of the node: the files as ComfyUI's own nodes name them, and as a list that the page plays."""
    folder = paths[0].parent.name
    files = [{"filename": path.name, "subfolder": folder, "type": "output"} for path in paths]
    clips = [
        Clip(one.waveform, one.sample_rate, one.name if one.number else "track", one.text)
        for one in recordings
    ]
    count = f"{len(files)} file{'' if len(files) == 1 else 's'}"
    return {
        "text": (f"saved {count} in output/{folder}",),
        "audio": files,
        CLIPS: [list_clip(clip, file) for clip, file in zip(clips, files, strict=True)],
    }
