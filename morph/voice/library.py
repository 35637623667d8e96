"""The voice library: voices in the files of a folder. A name is looked up in its listing; it never becomes a path.

Recordings in the folder are voices too (see ``recording.py``): whoever loads one says how it is cloned.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..model.names import SIZE_NAMES
from ..options import FRAME_RATE
from ..runtime.whole_file import write_whole
from ..text.names import OF_VOICES, check_name, confine, file_names
from ..text.pronunciation import read_pronunciation, write_pronunciation
from .file import (
    check_description,
    holds_voice,
    is_voice_file,
    load_voice,
    read_fields,
    read_voice,
    save_voice,
)
from .fits import needs_of
from .recording import SUFFIXES as RECORDED
from .recording import Recording, read_recording
from .voice import Voice

SUFFIX = ".safetensors"
LIST_SUFFIX = ".pronunciation.txt"  # of the list of a voice's words, beside its file
MOST_NAMED = 30  # voices in an error


@dataclass(frozen=True)
class VoiceLibrary:
    """Voices by name.

    Args:
        folder: that voices are saved to; it may not exist yet.
        others: more folders with voices. Of equal names, the first folder's counts.
    """

    folder: Path
    others: Sequence[Path] = ()

    def files(self) -> dict[str, Path]:
        """Return all safetensors files by name, sorted, also those that are no voices."""
        found: dict[str, Path] = {}
        for folder in dict.fromkeys([self.folder, *self.others]):
            for name in file_names(folder):
                if name.endswith(SUFFIX):
                    found.setdefault(name.removesuffix(SUFFIX), folder / name)
        return dict(sorted(found.items()))

    def voices(self) -> dict[str, Path]:
        """Return the files that are voices by name, sorted."""
        return {name: path for name, path in self.files().items() if is_voice_file(path)}

    def recordings(self) -> dict[str, Path]:
        """Return the recordings by name, sorted, but for those whose name a voice has."""
        return self._recordings(self.voices())

    def _recordings(self, voices: Collection[str]) -> dict[str, Path]:
        """Return ``recordings``; ``voices``: those of the library, each of which is a file to be opened."""
        found: dict[str, Path] = {}
        for folder in dict.fromkeys([self.folder, *self.others]):
            for name in file_names(folder):
                if name.lower().endswith(RECORDED) and (stem := Path(name).stem) not in voices:
                    found.setdefault(stem, folder / name)
        return dict(sorted(found.items()))

    def sources(self) -> dict[str, Path]:
        """Return the files of all voices and recordings by name, sorted."""
        voices = self.voices()
        return dict(sorted({**voices, **self._recordings(voices)}.items()))

    def names(self) -> list[str]:
        """Return the names of all voices and recordings, sorted."""
        return list(self.sources())

    def find(self, name: str) -> Path:
        """Return a voice's file; ValueError, naming the voices there are, if it is not in the library."""
        path = self.files().get(name) if isinstance(name, str) else None
        if path is None:
            raise ValueError(f"voice {str(name)[:80]!r} is not in the library: {self._others()}")
        return path

    def source(self, name: str) -> Path:
        """Return the file of a voice or a recording; ValueError as ``find``."""
        voices = self.voices()
        recordings = {} if name in voices else self._recordings(voices)
        return recordings[name] if name in recordings else self.find(name)

    def _others(self) -> str:
        names = self.names()
        if not names:
            return "it has none, save one first"
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        return f"choose one of {', '.join(names[:MOST_NAMED])}{more}"

    def path(self, name: str) -> Path:
        """Return the path under which a voice is saved; ValueError for a name that is no file name."""
        return confine(self.folder, typed_name(name) + SUFFIX)

    def load(self, name: str, clone: Callable[[Recording], Voice] | None = None) -> Voice:
        """Return a voice.

        Args:
            name: of a voice or a recording.
            clone: makes a recording's voice; None where there is no model to do that.

        Raises:
            ValueError: it is not in the library, damaged, or a recording and ``clone`` is None.
        """
        path = self.source(name)
        if path.suffix == SUFFIX:
            return load_voice_and_list(path)
        if clone is None:
            raise ValueError(
                f"voice {name!r} is a recording ({path.name}): give the model that is to clone it"
            )
        return with_list(clone(read_recording(path)), path)

    def about(self, name: str) -> dict[str, Any]:
        """Return what people and programs are told of a voice; under "error" why it cannot be read."""
        try:
            return describe_file(name, self.find(name))
        except ValueError as error:
            return {"name": name, "error": str(error)}

    def rename(self, name: str, new: str) -> str:
        """Give a voice another name, in its file too; return it.

        Raises:
            ValueError: for an unknown or damaged voice, for a name that is taken or is no file name, and where the
                file cannot be changed.
        """
        path, new = self.find(name), typed_name(new)
        voice, description = read_voice(path)
        target = confine(path.parent, new + SUFFIX)
        # Where names have no case, "anna" is there already when it becomes "Anna".
        if any(one.exists() and not one.samefile(path) for one in (target, self.files().get(new, target))):
            raise ValueError(f"a voice named {new!r} already exists: choose another name")
        with _explained(path):
            path.rename(target)
            try:
                save_voice(replace(voice, name=new), target, description)
            except BaseException:
                target.rename(path)  # what it holds has its old name still
                raise
            if list_of(path).is_file() and not list_of(target).exists():
                list_of(path).rename(list_of(target))
        return new

    def delete(self, name: str) -> None:
        """Delete a voice's file; ValueError for an unknown one, and where it cannot be deleted."""
        path = self.find(name)
        with _explained(path):
            path.unlink()

    def describe(self, name: str, text: str) -> str:
        """Keep a description in a voice's file, "" for none; return it as one line.

        Raises:
            ValueError: for an unknown or damaged voice, for a text that is too long, and where the file cannot be
                written.
        """
        path, line = self.find(name), check_description(text)
        voice = load_voice(path)
        with _explained(path):
            save_voice(voice, path, line)
        return line

    def take_in(self, source: Path, name: str, overwrite: bool = False) -> str:
        """Import a voice file under a name; return the name.

        The file is read as a voice and written again, so that nothing else in it reaches the library.

        Raises:
            ValueError: for a file that is no voice of this pack or damaged, a name that is no file name or is taken by
                another voice (without ``overwrite``), and where the library cannot be written.
        """
        path, (voice, description) = self.path(name), read_voice(source)
        named = replace(voice, name=typed_name(name))
        if path.exists() and not overwrite:
            if holds_voice(path, named):
                return named.name
            raise ValueError(f"a voice named {named.name!r} already exists: choose another name")
        with _explained(path):
            save_voice(named, path, description)
        return named.name


def list_of(path: Path) -> Path:
    """Return where the list of words of a voice, or of a recording, is: ``anna.pronunciation.txt``."""
    return path.with_name(path.stem + LIST_SUFFIX)


def with_list(voice: Voice, path: Path) -> Voice:
    """Return a voice with the list of words beside its file, if there is one; ValueError for a list with faults."""
    beside = list_of(path)
    return replace(voice, pronunciation=(read_pronunciation(beside),)) if beside.is_file() else voice


def save_list(voice: Voice, path: Path, overwrite: bool = False) -> None:
    """Write a voice's list of words beside its file, if it has one; one that is there stays, unless ``overwrite``.

    Raises:
        OSError: it cannot be written.
    """
    beside = list_of(path)
    if voice.pronunciation and (overwrite or not beside.exists()):
        write_whole(beside, write_pronunciation(voice.pronunciation).encode())


def load_voice_and_list(path: Path) -> Voice:
    """Return the voice in a file, with the list of words beside it; ValueError as ``load_voice`` and ``with_list``."""
    return with_list(load_voice(path), path)


def typed_name(name: str) -> str:
    """Return a typed name of a voice, without the file suffix; ValueError if it is not a valid file name."""
    typed = name.strip()
    return check_name(typed[: -len(SUFFIX)] if typed.lower().endswith(SUFFIX) else typed, OF_VOICES)


def describe_file(name: str, path: Path) -> dict[str, Any]:
    """Return what people and programs are told of a voice file; ValueError if it is damaged."""
    return describe_fields(name, read_fields(path))


def describe_fields(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what people and programs are told of a voice with these fields (``read_fields``)."""
    told = ("description", "speaker", "instruct", "transcript", "recipe")
    codes = fields["ref_codes"]
    return {
        "name": name,
        "kind": fields["kind"],
        "model": SIZE_NAMES.get(fields["model_size"], fields["model_size"]),
        "fits": str(needs_of(fields)),
        **{key: fields.get(key) for key in told},
        "reference_seconds": None if codes is None else round((codes["shape"] or [0])[0] / FRAME_RATE, 2),
    }


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Raise ValueError for an error of the system, without the folder's path."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{path.name} cannot be changed ({error.strerror}): check its folder") from error
