"""Save Subtitles."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import BinaryIO

from comfy_api.latest import io, ui

from . import inputs
from .folders import output_folder
from .names import check_name, confine
from .sockets import CATEGORY


class SaveSubtitles(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="MorphTTSSaveSubtitles",
            display_name="Save Subtitles (SRT)",
            category=CATEGORY,
            description=(
                "Writes subtitles as NAME_00001.srt to ComfyUI's output folder; never overwrites a file."
            ),
            inputs=[
                io.String.Input(
                    "srt", force_input=True, tooltip="Subtitles from Render Script. Required, not empty."
                ),
                io.String.Input(
                    "name",
                    default="dialogue",
                    tooltip=(
                        "The file's name without its number: letters, digits, spaces and - _ . only, at "
                        "most 80 characters. Default: dialogue."
                    ),
                ),
            ],
            outputs=[],
            is_output_node=True,
        )

    @classmethod
    def validate_inputs(cls, name: str | None) -> bool | str:
        return inputs.refuse(check_name, name)

    @classmethod
    def execute(cls, srt: str, name: str) -> io.NodeOutput:
        if not srt.strip():
            raise ValueError("srt is empty: connect the srt of Render Script")
        path = write_new(output_folder(), check_name(name), srt)
        return io.NodeOutput(ui=ui.PreviewText(f"saved {path.name}"))


def write_new(folder: Path, name: str, text: str) -> Path:
    """Write ``text`` whole to the first free ``<name>_<number>.srt`` in ``folder``, and give its path.

    Raises:
        ValueError: the text cannot be written as UTF-8; no file is left.
    """
    data = encode(text)
    folder.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        path = confine(folder, f"{name}_{number:05}.srt")
        try:
            file = path.open("xb")
        except FileExistsError:
            continue
        write_whole(file, path, data)
        return path
    raise AssertionError  # count never ends


def encode(text: str) -> bytes:
    """The text as UTF-8; ValueError for half a character, which UTF-8 has no bytes for."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        half = text[error.start]
        raise ValueError(
            f"srt holds half a character ({half!a}) after {text[: error.start][-20:]!r}: type it again in the script"
        ) from None


def write_whole(file: BinaryIO, path: Path, data: bytes) -> None:
    """Write and close a new file; where that fails, no part of it stays."""
    try:
        with file:
            file.write(data)
    except OSError:
        path.unlink(missing_ok=True)
        raise
