"""Recordings that become files: names, metadata, and how the files of one run are written."""

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from ...morph.audio.formats import TAGGED, read_content
from ...morph.runtime.atomic_file import name_beside
from ...morph.text.names import confine, file_names
from ...morph.text.pronunciation import shown_text
from ..page.clips import KEY as CLIPS
from ..page.clips import Clip, file_name, list_clip
from ..sound.values import Facts, facts_of, to_json, to_waveforms

RUN = re.compile(r"(\d{5,})_")  # the number of a run, at the start of its files' names
LONGEST_TITLE = 200
MOST_SHOWN = 10  # names of files in a text
SPEECH_TAGS = ("title", "artist", "comment")  # see ``RecordedFile.tags``


def replace_all(files: Mapping[Path, bytes]) -> None:
    """Replace files; all are written beside the old ones first, so that an error changes none."""
    ready = {path: name_beside(path) for path in files}
    try:
        for path, beside in ready.items():
            write_new(beside, files[path])
        for path, beside in ready.items():
            beside.replace(path)
    finally:
        for beside in ready.values():
            beside.unlink(missing_ok=True)


def write_new(path: Path, data: bytes) -> None:
    """Write a new file; FileExistsError if it is there, and no file if writing fails."""
    file = path.open("xb")
    try:
        with file:
            file.write(data)
    except OSError:
        path.unlink(missing_ok=True)
        raise


@dataclass(frozen=True, eq=False)
class RecordedFile:
    waveform: np.ndarray  # float ``[C, T]``
    sample_rate: int
    facts: tuple[Facts, ...]  # of the lines that it holds
    number: int  # in its run, from 1; 0: the track

    @property
    def name(self) -> str:
        """The character, if the recording is one line."""
        return self.facts[0].name if len(self.facts) == 1 else ""

    @property
    def text(self) -> str:
        """The words, if the recording is one line."""
        return shown_text(self.facts[0].text) if len(self.facts) == 1 else ""

    def file_name(self, kind: str) -> str:
        """Return the file's name without the run's number."""
        if not self.number:
            return f"track.{kind}"
        return file_name(self.number, self.name, self.text, f".{kind}")

    def tags(self) -> dict[str, str]:
        """Return the file's metadata: what players show, and all facts as the comment."""
        if not self.facts:
            return {}
        title = " ".join(shown_text(one.text) for one in self.facts)[:LONGEST_TITLE]
        artist = ", ".join(dict.fromkeys(one.name or one.voice for one in self.facts))
        return {"title": title, "artist": artist, "comment": to_json(self.facts)}


@dataclass(frozen=True)
class Run:
    paths: tuple[Path, ...]
    unchanged: int | None = None  # files that were there already; None if every run has new files
    older: tuple[str, ...] = ()  # names of files with the number of one of them, and other words

    @property
    def summary(self) -> str:
        count, place = len(self.paths), f"output/{self.paths[0].parent.name}"
        files = f"{count} file{'' if count == 1 else 's'} in {place}"
        if self.unchanged is None:
            return f"saved {files}"
        kept = f", {self.unchanged} unchanged" if self.unchanged else ""
        older = f", {len(self.older)} with earlier words left" if self.older else ""
        text = f"wrote {count - self.unchanged} of {files}{kept}{older}"
        if not self.older:
            return text
        more = len(self.older) - MOST_SHOWN
        shown = ", ".join(self.older[:MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")
        return f"{text}\nleft from an earlier run, with the same number but other words: {shown}"


def recordings_of(audio: Sequence[dict[str, Any]], is_track: bool = False) -> list[RecordedFile]:
    """Return every recording of AUDIOs in order."""
    found: list[RecordedFile] = []
    for one in audio:
        for waveform in to_waveforms(one):
            number = 0 if is_track else len(found) + 1
            found.append(RecordedFile(waveform, one["sample_rate"], facts_of(one), number))
    if is_track and len(found) > 1:
        raise ValueError(f"track is {len(found)} recordings: connect the audio output of Render Script")
    return found


def write_run(folder: Path, files: Mapping[str, bytes]) -> Run:
    """Write the files of a run with the next free number before their names; on failure leave none."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = [int(found[1]) for path in folder.iterdir() if (found := RUN.match(path.name))]
    run = max(numbers, default=0) + 1
    paths = {confine(folder, f"{run:05}_{name}"): data for name, data in files.items()}
    with ExitStack() as undo:
        for path, data in paths.items():
            write_new(path, data)
            undo.callback(path.unlink)
        undo.pop_all()
    return Run(tuple(paths))


def replace_run(folder: Path, files: Mapping[str, bytes]) -> Run:
    """Write the files of a run under their own names, over older ones; a file with the same content stays.

    Nothing is deleted. If one cannot be written, none is changed. Raises ValueError if a name is a folder's, or a
    link that leads elsewhere.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = {confine(folder, name): data for name, data in files.items()}
    for path in paths:
        if path.is_dir():
            raise ValueError(f"{path.name} is a folder in {folder.name}: rename it, or choose another name")
    changed = {path: data for path, data in paths.items() if not is_same(path, data)}
    replace_all(changed)
    return Run(tuple(paths), len(paths) - len(changed), older_files(folder, list(files)))


def older_files(folder: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of sound files that have a number of ``names`` but other words."""
    own = {Path(name).stem for name in names}
    numbers = {number for stem in own if (number := stem.split("_")[0]).isdigit()}
    others = [Path(name) for name in file_names(folder) if Path(name).suffix[1:] in TAGGED]
    return tuple(one.name for one in others if one.stem not in own and one.stem.split("_")[0] in numbers)


def listed(recordings: Sequence[RecordedFile], run: Run) -> dict[str, Any]:
    """Return the ui of the node: the files as ComfyUI's nodes name them, and as a list that the page plays."""
    folder = run.paths[0].parent.name
    files = [{"filename": path.name, "subfolder": folder, "type": "output"} for path in run.paths]
    rows = []
    for one, path, file in zip(recordings, run.paths, files, strict=True):
        clip = Clip(one.waveform, one.sample_rate, one.name if one.number else "track", one.text)
        # A file that was replaced has the same address: browsers would play the old one from their cache.
        version = str(path.stat().st_mtime_ns)
        rows.append({**list_clip(clip, file), "track": not one.number, "version": version})
    return {"text": (run.summary,), "audio": files, CLIPS: rows}


def is_same(path: Path, data: bytes) -> bool:
    """Return whether a file has the sound and the facts of the new file ``data`` of the same kind.

    Files of the same speech may differ: the workflow in them changes with other lines of a script, and opus files begin
    with a random number.
    """
    import av

    if not path.is_file():
        return False
    old = path.read_bytes()
    if old == data:
        return True
    try:
        before = _compared(old, path.suffix)
    except (av.FFmpegError, IndexError):  # damaged, or without sound
        return False
    return before == _compared(data, path.suffix)


def _compared(data: bytes, suffix: str) -> tuple[object, dict[str, str]]:
    """Return the content without the values of other tags: it matters whether there is a workflow, not which."""
    sound, tags = read_content(BytesIO(data), suffix)
    return sound, {key: text if key in SPEECH_TAGS else "" for key, text in tags.items() if key != "encoder"}
