"""Save Subtitles."""

from __future__ import annotations

from itertools import count
from pathlib import Path

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
    """Write ``text`` to the first free ``<name>_<number>.srt`` in ``folder``, and give its path."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        path = confine(folder, f"{name}_{number:05}.srt")
        try:
            with path.open("x", encoding="utf-8", newline="\n") as file:
                file.write(text)
        except FileExistsError:
            continue
        return path
    raise AssertionError  # count never ends
