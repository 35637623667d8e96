"""The voice library: voices and recordings in a folder. Names are looked up in its listing; none becomes a path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..model.names import SIZE_NAMES
from ..options import FRAME_RATE
from ..runtime.atomic_file import FileState, file_state, write_atomic
from ..text.names import OF_VOICES, check_name, confine, file_names
from ..text.pronunciation import read_pronunciation, write_pronunciation
from .file import check_description, holds_voice, is_voice_file, load_voice, read_fields, read_voice, save_voice
from .recording import SUFFIXES as RECORDED
from .recording import Recording, read_recording
from .voice import Needs, Voice, needs_of

if TYPE_CHECKING:
    from ..model.model import Model

SUFFIX = ".safetensors"
LIST_SUFFIX = ".pronunciation.txt"  # of the list of a voice's words, beside its file
MOST_NAMED = 30  # voices in an error
Configs = Mapping[str, Mapping[str, Any]]  # of checkpoints, by their labels
Clone = Callable[[Recording], Voice]


@dataclass(frozen=True)
class VoiceLibrary:
    """Voices by name. Of equal names, the first folder's counts."""

    folder: Path  # voices are saved here; it may not exist yet
    others: Sequence[Path] = ()  # more folders with voices

    def files(self) -> dict[str, Path]:
        """Return all safetensors files by name, sorted, also those that are no voices."""
        return self._files((SUFFIX,))

    def _files(self, suffixes: tuple[str, ...]) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for folder in dict.fromkeys([self.folder, *self.others]):
            for name in file_names(folder):
                if name.lower().endswith(suffixes):
                    found.setdefault(Path(name).stem, folder / name)
        return dict(sorted(found.items()))

    def voices(self) -> dict[str, Path]:
        """Return the files that are voices by name, sorted."""
        return {name: path for name, path in self.files().items() if is_voice_file(path)}

    def sources(self) -> dict[str, Path]:
        """Return the files of all voices, and of recordings that have no voice's name, by name, sorted."""
        return dict(sorted({**self._files(RECORDED), **self.voices()}.items()))

    def find(self, name: str) -> Path:
        """Return a voice's file; ValueError, naming the voices there are, if it is not in the library."""
        path = self.files().get(name) if isinstance(name, str) else None
        if path is None:
            fix = choose_one(list(self.sources())) or "it has none, save one first"
            raise ValueError(f"voice {str(name)[:80]!r} is not in the library: {fix}")
        return path

    def source(self, name: str) -> Path:
        """Return the file of a voice or a recording; ValueError as ``find``."""
        return self.sources().get(name) or self.find(name)

    def path(self, name: str) -> Path:
        """Return the path under which a voice is saved; ValueError for a name that is no file name."""
        return confine(self.folder, typed_name(name) + SUFFIX)

    def load(self, name: str, clone: Clone | None = None) -> Voice:
        """Return a voice; ValueError if it is not in the library, and as ``load_source``."""
        return load_source(self.source(name), clone)

    def listing(self, configs: Configs) -> list[dict[str, Any]]:
        """Return a description of each voice and recording, by name.

        "checkpoint" is the first label of ``configs`` that it fits, or None, and "changed" its time; one that cannot
        be read has an "error". One that was deleted meanwhile is left out.
        """
        listed = (_listed(name, path, configs) for name, path in self.sources().items())
        return [one for one in listed if one is not None]

    def rename(self, name: str, new: str) -> str:
        """Rename a voice, in its file too; return the name.

        ValueError for an unknown or damaged voice, a name that is taken or no file name, and a file that cannot be
        changed.
        """
        path, new = self.find(name), typed_name(new)
        voice, description = read_voice(path)
        target = confine(path.parent, new + SUFFIX)
        # On a system that ignores case, "Anna" is the file of "anna".
        if any(one.exists() and not one.samefile(path) for one in (target, self.files().get(new, target))):
            raise _taken(new)
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

    def delete(self, name: str) -> str:
        """Delete a voice's file; return its name. ValueError for an unknown one, and if it cannot be deleted."""
        path = self.find(name)
        with _explained(path):
            path.unlink()
        return name

    def describe(self, name: str, text: str) -> str:
        """Write a description to a voice's file, "" for none; return it as one line. ValueError if it cannot."""
        path, line = self.find(name), check_description(text)
        voice = load_voice(path)
        with _explained(path):
            save_voice(voice, path, line)
        return line

    def export(self, name: str) -> bytes:
        """Return a voice file's content; ValueError for an unknown or damaged one, and OSError."""
        load_voice(path := self.find(name))
        return path.read_bytes()

    def take_in(self, source: Path, name: str, overwrite: bool = False, content: bytes | None = None) -> str:
        """Import a voice file under a name; return the name. Only its voice and description reach the library.

        ``content``: of a file that was sent; then nothing is read from ``source``. ValueError for a damaged or other
        file, and for a name that is no file name or taken by another voice (without ``overwrite``).
        """
        path, (voice, description) = self.path(name), read_voice(source, content)
        named = replace(voice, name=typed_name(name))
        if path.exists() and not overwrite:
            if holds_voice(path, named):
                return named.name
            raise _taken(named.name)
        with _explained(path):
            save_voice(named, path, description)
        return named.name


def choose_one(names: Sequence[str]) -> str:
    """Return "choose one of" these names, the first 30, for an error; "" for none."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"choose one of {', '.join(names[:MOST_NAMED])}{more}" if names else ""


def list_of(path: Path) -> Path:
    """Return the path of the list of words of a voice or recording: ``anna.pronunciation.txt``."""
    return path.with_name(path.stem + LIST_SUFFIX)


def source_states(path: Path) -> tuple[FileState, ...]:
    """Return the states of the file of a voice or a recording, and of the files beside it."""
    transcript = [path.with_suffix(".txt")] if is_recording(path) else []
    return tuple(map(file_state, [path, *transcript, list_of(path)]))


def is_recording(path: Path) -> bool:
    return path.suffix.lower() in RECORDED


def load_source(path: Path, clone: Clone | None = None) -> Voice:
    """Return the voice of a file, with the list of words beside it; a recording's is made by ``clone``.

    ValueError if it or the list is damaged, or it is a recording and ``clone`` is None.
    """
    if not is_recording(path):
        voice = load_voice(path)
    elif clone is None:
        raise ValueError(f"voice {path.stem!r} is a recording ({path.name}): give the model that is to clone it")
    else:
        voice = clone(read_recording(path))
    beside = list_of(path)
    return replace(voice, pronunciation=(read_pronunciation(beside),)) if beside.is_file() else voice


def clone_recording(model: Model, recording: Recording) -> Voice:
    """Return a recording's voice: ICL with its transcript, x-vector without; errors as ``clone_voice``."""
    from .create import CloneOptions, clone_voice  # torch

    mode = "icl" if recording.transcript else "x_vector"
    options = CloneOptions(mode, recording.transcript, name=recording.name)
    return clone_voice(model, recording.waveform, recording.sample_rate, options)


def save_source(voice: Voice, path: Path) -> Voice:
    """Write a voice under the name of its file, and its list of words beside it; return it. OSError if it cannot."""
    named, replaces = replace(voice, name=path.stem), path.exists()
    save_voice(named, path)
    save_list(voice, path, overwrite=replaces)
    return named


def save_list(voice: Voice, path: Path, overwrite: bool = False) -> None:
    """Write a voice's list of words, if any, beside its file; an existing one stays unless ``overwrite``."""
    beside = list_of(path)
    if voice.pronunciation and (overwrite or not beside.exists()):
        write_atomic(beside, write_pronunciation(voice.pronunciation).encode())


def typed_name(name: str) -> str:
    """Return a typed name of a voice, without the file suffix; ValueError if it is not a valid file name."""
    typed = name.strip()
    return check_name(typed[: -len(SUFFIX)] if typed.lower().endswith(SUFFIX) else typed, OF_VOICES)


def describe_file(name: str, path: Path) -> dict[str, Any]:
    """Return the public description of a voice or a recording; ValueError if it is damaged."""
    return _about(name, path)[0]


def _about(name: str, path: Path) -> tuple[dict[str, Any], Needs]:
    if is_recording(path):
        return {"name": name, "kind": "recording", "fits": "a checkpoint that clones"}, Needs("", "base")
    fields = read_fields(path)
    codes, needs = fields["ref_codes"], needs_of(fields)
    shown = ("description", "speaker", "instruct", "transcript", "recipe")
    about = {
        "name": name,
        "kind": fields["kind"],
        "model": SIZE_NAMES.get(fields["model_size"], fields["model_size"]),
        "fits": str(needs),
        **{key: fields.get(key) for key in shown},
        "reference_seconds": None if codes is None else round((codes["shape"] or [0])[0] / FRAME_RATE, 2),
    }
    return about, needs


def _listed(name: str, path: Path, configs: Configs) -> dict[str, Any] | None:
    """Return a row of the list of voices; None for a file that was deleted since the folder was read."""
    try:
        about, needs = _about(name, path)
        changed = str(path.stat().st_mtime_ns)
    except (ValueError, FileNotFoundError) as error:
        return {"name": name, "error": str(error)} if path.exists() else None
    fitting = (label for label, config in configs.items() if needs.are_met_by(config))
    return about | {"checkpoint": next(fitting, None), "changed": changed}


def _taken(name: str) -> ValueError:
    return ValueError(f"a voice named {name!r} already exists: choose another name")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Raise ValueError for an error of the system, without the folder's path."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{path.name} cannot be changed ({error.strerror}): check its folder") from error
