"""The voices that a request may name: the checkpoint's speakers, a folder of saved voices, uploaded ones."""

import logging
import threading
import unicodedata
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from ...morph.model.model import Model
from ...morph.runtime.atomic_file import FileState
from ...morph.runtime.lru_cache import LruCache
from ...morph.text.names import OF_VOICES, check_name, name_key
from ...morph.voice.create import Shift, design_voice, embedding_of, preset_voice, shift_voice
from ...morph.voice.file import load_voice, voice_digest
from ...morph.voice.library import VoiceLibrary, choose_one, clone_recording, is_recording, load_source, source_states
from ...morph.voice.voice import Voice, check_voice
from ..api.errors import ApiError, refusing
from ..api.request import VoiceShift

log = logging.getLogger(__name__)

# Clients send these names of OpenAI's voices. Each stands for one of the server's own voices, always the same: an
# uploaded voice must not speak for others.
OPENAI_VOICES = (
    *("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable"),
    *("marin", "nova", "onyx", "sage", "shimmer", "verse"),
)
MOST_SHIFTS = 64  # shifted voices in the cache
MOST_UPLOADED = 64  # above, the least recently used voice is removed
ALPHABETS = ("LATIN", "CYRILLIC", "GREEK")  # have letters that look alike


class VoiceBook:
    """The server's voices by name. A name is looked up in lists, never part of a path; safe for threads.

    Each request sees changes of the folder with saved voices (``*.safetensors``). Its recordings are cloned once,
    now: later the model is busy with speech.
    """

    def __init__(self, model: Model, folder: Path | None = None):
        self._model, self._library = model, None if folder is None else VoiceLibrary(folder)
        self._lock = threading.Lock()
        # By name: file, states of its files, and the voice or an error. The codec's state after an ICL voice's
        # reference belongs to this object.
        self._saved: dict[str, tuple[Path, tuple[FileState, ...], Voice | str]] = {}
        self._presets = {name: preset_voice(model, name) for name in model.speakers}
        # Read now: later the model's table is not to be read beside its speech.
        self._embeddings = {name: embedding_of(voice, model) for name, voice in self._presets.items()}
        self._shifted: LruCache[tuple[object, ...], tuple[list[Voice], Voice]] = LruCache(MOST_SHIFTS)
        sources = self._library.sources() if self._library and model.can_clone else {}
        self._recorded = {name: self._read(path) for name, path in sources.items() if is_recording(path)}
        self._uploaded: dict[str, Voice] = {}  # in memory only, the least recently used first

    @property
    def designs(self) -> bool:
        return self._model.type == "voice_design"

    def entries(self) -> list[dict[str, str]]:
        """Return name, kind and recipe of all voices that this checkpoint can speak with, presets first."""
        own = self._own(self._read_folder())
        with self._lock:
            every = own | {name: voice for name, voice in self._uploaded.items() if name not in own}
        kinds = dict.fromkeys(own, "saved") | dict.fromkeys(self._presets, "preset")
        return [
            {"id": name, "name": name, "kind": kinds.get(name, "uploaded")}
            | ({"recipe": voice.recipe} if voice.recipe else {})
            for name, voice in every.items()
        ]

    def _own(self, folder: Mapping[str, Voice | str]) -> dict[str, Voice]:
        usable = {name: voice for name, voice in sorted(folder.items()) if isinstance(voice, Voice)}
        return {**self._presets, **usable, **self._presets}

    def free_name(self, name: str, replaces: bool = False) -> str:
        """Return a name for an uploaded voice; ApiError 400 if it cannot be one, 409 if another voice has it."""
        with refusing("name"):
            name = check_name(name, OF_VOICES)
            check_alphabet(name)
        if look_of(name) in map(look_of, (*self._own(self._read_folder()), *OPENAI_VOICES)):
            raise ApiError(409, f"voice {name!r} is one of this server's own: choose another name", "name")
        with self._lock:
            other = next((one for one in self._uploaded if look_of(one) == look_of(name)), None)
        if other is not None and not replaces:
            raise _uploaded_before(other)
        return name

    def add(self, name: str, voice: Voice | bytes, replaces: bool = False) -> str:
        """Add a voice, or the content of its file, until it is removed or the server ends; return its name.

        ``replaces``: remove an uploaded voice whose name is, or looks like, this one. ApiError 400 for an unusable
        name or file, 409 for the name of another voice.
        """
        name = self.free_name(name, replaces=True)
        with refusing():
            voice = replace(load_voice(Path("upload"), voice) if isinstance(voice, bytes) else voice, name=name)
            check_voice(self._model, voice)
        with self._lock:
            for other in [one for one in self._uploaded if look_of(one) == look_of(name)]:
                before = self._uploaded[other]
                if other == name and voice_digest(before) == voice_digest(voice):
                    voice = before  # the codec's state after its reference belongs to this object
                elif not replaces:
                    raise _uploaded_before(other)
                del self._uploaded[other]
            self._uploaded[name] = voice
            for oldest in list(self._uploaded)[:-MOST_UPLOADED]:
                del self._uploaded[oldest]
        return name

    def remove(self, name: str) -> None:
        """Remove an uploaded voice; ApiError 404 if it is none."""
        with self._lock:
            if self._uploaded.pop(name, None) is None:
                raise ApiError(404, f"voice {name[:64]!r} was not uploaded: only uploaded voices are deleted", "name")

    def known(self, name: str | None) -> Voice | None:
        """Return ``find``'s voice without reading the folder: a preset, or an unchanged file; None for others."""
        if self.designs:
            return None
        if name in self._presets:
            return self._presets[name]
        path, states, voice = self._saved.get(name or "", (None, None, None))
        return voice if isinstance(voice, Voice) and path and source_states(path) == states else None

    def find(self, name: str | None, description: str | None = None) -> Voice:
        """Return a voice by its speaker (in any case), its name or one of OpenAI's; None: the first own voice.

        A VoiceDesign checkpoint uses only the description. ApiError 404 lists the names, 400 is for an unusable file.
        """
        if self.designs and description:
            return design_voice(self._model, description)
        folder = self._read_folder()
        own = self._own(folder)
        if name is None and own:
            return next(iter(own.values()))
        wanted = (name or "").strip()
        by_case = {preset.lower(): voice for preset, voice in self._presets.items()}
        known = own.get(wanted) or self._take_uploaded(wanted) or by_case.get(wanted.lower())
        if known is not None:
            return known
        if isinstance(unusable := folder.get(wanted), str):
            raise ApiError(400, unusable, "voice")
        if own and wanted.lower() in OPENAI_VOICES:
            return list(own.values())[OPENAI_VOICES.index(wanted.lower()) % len(own)]
        raise self._unknown(wanted)

    def shifted(self, voice: Voice, asked: VoiceShift) -> Voice:
        """Return a voice, moved: the same object as long as it is cached. ApiError 404 for a name, 400 for voices."""
        sides = ([names] if isinstance(names, str) else names for names in (asked.toward, asked.away))
        toward, away = ([self.find(name) for name in names] for names in sides)
        voices = [voice, *toward, *away]
        key = (*map(id, voices), len(toward), asked.strength)
        with self._lock:
            kept = self._shifted.get(key)  # which keeps its voices, so that no other has their ids
        if kept is not None:
            return kept[1]
        with refusing(VoiceShift.PART_OF):
            base, *others = (self._with_row(one) for one in voices)
            shift = Shift(others[: len(toward)], others[len(toward) :], asked.strength)
            made = shift_voice(base, shift, self._model)
            check_voice(self._model, made)
        with self._lock:
            self._shifted.put(key, (voices, made))
        return made

    def _with_row(self, voice: Voice) -> Voice:
        if voice.kind != "preset":
            return voice
        row = self._embeddings[str(voice.speaker)]
        return replace(voice, kind="blend", model_size=self._model.size, speaker_embedding=row)

    def _unknown(self, name: str) -> ApiError:
        fix = "this checkpoint has no speakers: save voices for it, and start the server with --voices FOLDER"
        fix = choose_one([entry["name"] for entry in self.entries()]) or fix
        if self.designs:
            fix = "describe the voice in instructions"
        return ApiError(404, f"voice {name[:64]!r} is unknown: {fix}", "voice", "voice_not_found")

    def _take_uploaded(self, name: str) -> Voice | None:
        """Return an uploaded voice and mark it as the last used; None for another name."""
        with self._lock:
            voice = self._uploaded.pop(name, None)
            if voice is not None:
                self._uploaded[name] = voice
            return voice

    def _read_folder(self) -> dict[str, Voice | str]:
        """Return the voices of the folder by name, or their errors; only changed files are read."""
        with self._lock:
            found = {}
            for name, path in (self._library.files() if self._library else {}).items():
                if (states := source_states(path))[0] is not None:
                    kept = self._saved.get(name)
                    is_same = kept and kept[:2] == (path, states)
                    found[name] = kept if kept and is_same else (path, states, self._read(path))
            self._saved = found
            return self._recorded | {name: voice for name, (_, _, voice) in found.items()}

    def _read(self, path: Path) -> Voice | str:
        try:
            voice = load_source(path, partial(clone_recording, self._model))
            check_voice(self._model, voice)
        except ValueError as error:
            log.warning("%s is not offered: %s", path.name, error)
            return str(error)
        return voice


def look_of(name: str) -> str:
    """Return a key that is equal for names that look alike, also with wide, small or raised letters."""
    return name_key(unicodedata.normalize("NFKC", name))


def check_alphabet(name: str) -> None:
    """Raise ValueError for a name that mixes alphabets with look-alike letters, such as a Cyrillic e."""
    letters = [char for char in unicodedata.normalize("NFKC", name) if char.isalpha()]
    scripts = {unicodedata.name(char, "").partition(" ")[0] for char in letters}
    found = [one for one in ALPHABETS if one in scripts]
    if len(found) > 1:
        mixed = " and ".join(one.capitalize() for one in found)
        raise ValueError(f"name {name!r} mixes {mixed} letters, which look alike: use letters of one alphabet")


def _uploaded_before(name: str) -> ApiError:
    fix = "choose another name, or send replace=true"
    return ApiError(409, f"voice {name!r} was uploaded before: {fix}", "name")
