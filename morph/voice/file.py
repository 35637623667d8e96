"""Voice files: one safetensors file per voice; never pickle."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, deserialize

from ..checkpoint.files import read_metadata, unpack_parts, unpack_tensors, write_tensors
from ..runtime.atomic_file import TooLarge, read_limited
from ..text.split import check_encodable
from .voice import TENSORS, Voice, VoiceTooLong, check_fields
from .voice import TEXTS as VOICE_TEXTS

if TYPE_CHECKING:
    import torch

FORMAT = "qwen3-tts-voice"
VERSION = "1"
TEXTS = ("kind", *VOICE_TEXTS)
LATER = ("recipe",)  # texts that older files lack and older packs do not read
MOST_BYTES = 8 << 20  # of a file: 30 s of reference codes take 0.05 MB
LONGEST_DESCRIPTION = 300  # characters
# To torch's names.
DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64"}
# Errors of reading; safetensors raises RuntimeError for a file that becomes shorter meanwhile.
UNREADABLE = (SafetensorError, OSError, RuntimeError)


def save_voice(voice: Voice, path: Path, description: str = "") -> None:
    """Write a voice, replacing the file; loading it returns a bit-equal voice. A failed write leaves no file.

    ``description`` is for lists only (``check_description``).
    """
    words, tensors = _contents(voice)
    metadata = {"format": FORMAT, "version": VERSION, "voice": words, "sha256": digest(words, tensors)}
    if description:
        metadata["description"] = description
    write_tensors(path, tensors, metadata)


def check_description(text: str) -> str:
    """Return a description as one line; ValueError if it is too long or has control characters."""
    line = " ".join(check_encodable(text, "description").split())
    if len(line) > LONGEST_DESCRIPTION:
        raise ValueError(f"description has {len(line)} characters: write at most {LONGEST_DESCRIPTION}")
    if not line.isprintable():
        raise ValueError("description contains characters that cannot be shown: remove them")
    return line


def holds_voice(path: Path, voice: Voice) -> bool:
    """Whether a file contains this voice, under any name; False if it is missing or unreadable."""
    try:
        saved = load_voice(path)
    except ValueError:
        return False
    return voice_digest(saved) == voice_digest(voice)


def voice_digest(voice: Voice) -> str:
    """Return the SHA-256 of everything audible in a voice: all but its name and its recipe."""
    return digest(*_contents(replace(voice, name="", recipe=None)))


def is_voice_file(path: Path) -> bool:
    """Whether a file's header says that it is a voice; never raises for an odd file."""
    try:
        return path.is_file() and read_metadata(path).get("format") == FORMAT
    except UNREADABLE:
        return False


def _contents(voice: Voice) -> tuple[str, dict[str, torch.Tensor]]:
    tensors = {key: getattr(voice, key).contiguous().cpu() for key in TENSORS if getattr(voice, key) is not None}
    texts = {key: getattr(voice, key) for key in TEXTS}
    saved = {key: text for key, text in texts.items() if text is not None or key not in LATER}
    return json.dumps(saved, ensure_ascii=False), tensors


def digest(words: str, tensors: Mapping[str, torch.Tensor]) -> str:
    """Return the SHA-256 of a voice's texts and of its tensors' names, dtypes, shapes and bytes."""
    from safetensors.torch import save

    return _digest_of_parts(words, dict(deserialize(save(dict(tensors)))))


def _digest_of_parts(words: str, parts: Mapping[str, Mapping[str, Any]]) -> str:
    total = hashlib.sha256(words.encode())
    for name, part in sorted(parts.items()):
        dtype = DTYPES.get(part["dtype"], part["dtype"])
        total.update(f"{name} torch.{dtype} {tuple(part['shape'])}".encode())
        total.update(part["data"])
    return total.hexdigest()


def load_voice(path: Path, content: bytes | None = None) -> Voice:
    """Read a voice file; ValueError if it is missing, damaged, of another format or of a later version.

    Nothing is read if its ``content`` is given.
    """
    return _parse(path, content)[0]


def read_voice(path: Path, content: bytes | None = None) -> tuple[Voice, str]:
    """Return the voice in a file and its description, or ""; arguments and errors as ``load_voice``."""
    voice, description = _parse(path, content)
    with _readable(path.name):
        return voice, check_description(description)


def read_fields(path: Path) -> dict[str, Any]:
    """Return a voice's fields and "description" without torch, for lists; errors as ``load_voice``.

    Tensors are as ``unpack_parts`` returns them: their checksum is checked, their values are not.
    """
    fields = _fields_of(_content(path), path.name)
    with _readable(path.name):
        return fields | {"description": check_description(fields["description"])}


def _damaged(name: str, why: object) -> ValueError:
    return ValueError(f"voice file {name} is damaged ({why}): save the voice again")


def _parse(path: Path, content: bytes | None) -> tuple[Voice, str]:
    content = _content(path) if content is None else content
    fields = _fields_of(content, path.name)
    with _readable(path.name):
        tensors, _ = unpack_tensors(content)
        given: dict[str, Any] = {key: fields.get(key) for key in TEXTS}
        return Voice(**given | {key: tensors.get(key) for key in TENSORS}), fields["description"]


def _fields_of(content: bytes, name: str) -> dict[str, Any]:
    with _readable(name):
        parts, metadata = unpack_parts(content)
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{name} is not a voice file of this pack: save the voice with Save Voice")
    if metadata.get("version") != VERSION:
        raise ValueError(
            f"voice file {name} has format version {metadata.get('version')} and this pack reads {VERSION}: "
            "update the pack, or save the voice again"
        )
    with _readable(name):
        if metadata["sha256"] != _digest_of_parts(metadata["voice"], parts):
            raise ValueError("its checksum does not match")
        texts = json.loads(metadata["voice"])
        fields = {key: texts[key] for key in TEXTS if key in texts or key not in LATER}
        fields |= {key: parts.get(key) for key in TENSORS}
        check_fields(fields)
        return fields | {"description": metadata.get("description", "")}


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Raise ValueError, with the file's name, for invalid content."""
    try:
        yield
    except VoiceTooLong as error:
        raise ValueError(f"voice file {name} cannot be used: {error}") from error
    except RecursionError as error:
        raise _damaged(name, "its texts are nested too deeply") from error
    except (*UNREADABLE, KeyError, TypeError, ValueError) as error:
        raise _damaged(name, error) from error


def _content(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise FileNotFoundError
        return read_limited(path, MOST_BYTES)
    except FileNotFoundError as error:
        raise ValueError(f"voice file {path.name} is missing from {path.parent.name}: save the voice again") from error
    except OSError as error:
        raise _damaged(path.name, error.strerror) from error
    except TooLarge as error:
        raise ValueError(f"{error}: it is not a voice file of this pack") from error
