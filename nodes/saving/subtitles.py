"""The Save Subtitles node."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from comfy_api.latest import io, ui

from ...morph.text.encoding import check_encodable
from ...morph.text.scripts.subtitles import srt_to_vtt
from .. import inputs
from ..folders import output_folder
from ..schema import schema
from .names import check_name, confine, write_whole

FORMATS = ("srt", "vtt")


class SaveSubtitles(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            "MorphTTSSaveSubtitles",
            "Save Subtitles",
            "Writes subtitles to ComfyUI's output folder as NAME_00001.srt or .vtt. Existing files are never "
            "overwritten.",
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
                inputs.choice(
                    "format",
                    FORMATS,
                    FORMATS[0],
                    "srt: SubRip, for video players and editors. vtt: WebVTT, for web pages. Default: srt.",
                    optional=True,
                ),
            ],
            outputs=[],
            is_output_node=True,
        )

    @classmethod
    def validate_inputs(cls, name: str | None = None) -> bool | str:
        return inputs.judge(name=(check_name, name))

    @classmethod
    def execute(cls, srt: str, name: str, format: str = FORMATS[0]) -> io.NodeOutput:
        if not srt.strip():
            raise ValueError("srt is empty: connect the srt output of Render Script")
        inputs.check(format=(FORMATS, format))
        text = srt_to_vtt(srt) if format == "vtt" else srt
        path = write_new(output_folder(), f"{check_name(name)}_{{:05}}.{format}", text)
        return io.NodeOutput(ui=ui.PreviewText(f"saved {path.name}"))


def write_new(folder: Path, name: str, text: str) -> Path:
    """Write ``text`` to the first unused file in ``folder`` and return its path; ``name`` has ``{:05}`` for a number.

    Raises:
        ValueError: the text cannot be encoded as UTF-8; no file is created.
    """
    data = check_encodable(text, "srt").encode()
    folder.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        path = confine(folder, name.format(number))
        try:
            file = path.open("xb")
        except FileExistsError:
            continue
        write_whole(file, path, data)
        return path
    raise AssertionError  # count is infinite
