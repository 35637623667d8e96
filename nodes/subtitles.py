"""The Save Subtitles node."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from comfy_api.latest import io, ui

from ..morph.text.encoding import check_encodable
from . import inputs
from .folders import output_folder
from .names import check_name, confine, write_whole
from .sockets import CATEGORY


class SaveSubtitles(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="MorphTTSSaveSubtitles",
            display_name="Save Subtitles (SRT)",
            category=CATEGORY,
            description=(
                "Writes subtitles to ComfyUI's output folder as NAME_00001.srt. Existing files are never overwritten."
            ),
            inputs=[
                io.String.Input(
                    "srt",
                    force_input=True,
                    tooltip="Subtitles from Render Script. Required; must not be empty.",
                ),
                io.String.Input(
                    "name",
                    default="dialogue",
                    tooltip=(
                        "The file name, without the number: only letters, digits, spaces and - _ . , at most 80 "
                        "characters. Default: dialogue."
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
            raise ValueError("srt is empty: connect the srt output of Render Script")
        path = write_new(output_folder(), check_name(name), srt)
        return io.NodeOutput(ui=ui.PreviewText(f"saved {path.name}"))


def write_new(folder: Path, name: str, text: str) -> Path:
    """Write ``text`` to the first unused ``<name>_<number>.srt`` in ``folder`` and return its path.

    Raises:
        ValueError: the text cannot be encoded as UTF-8; no file is created.
    """
    data = check_encodable(text, "srt").encode()
    folder.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        path = confine(folder, f"{name}_{number:05}.srt")
        try:
            file = path.open("xb")
        except FileExistsError:
            continue
        write_whole(file, path, data)
        return path
    raise AssertionError  # count is infinite
