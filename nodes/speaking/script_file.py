"""The Script From File node."""

from __future__ import annotations

from pathlib import Path

from comfy_api.latest import io, ui

from ...morph.runtime.whole_file import FileState, file_state
from ...morph.text.files import read_text_file
from .. import inputs
from ..folders import NO_FILE, chosen_file, input_files
from ..schema import output, schema

KINDS = (".txt", ".md", ".srt", ".vtt")
EXAMPLE = "example script (in the pack)"  # so that the node runs before a user has a file
EXAMPLE_PATH = Path(__file__).resolve().parents[2] / "workflows" / "example script.txt"


class ScriptFromFile(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            "MorphTTSScriptFromFile",
            inputs=[
                io.Combo.Input(
                    "file", options=[name for name in input_files(KINDS) if name != NO_FILE] + [EXAMPLE]
                )
            ],
            outputs=[output(io.String, "file_text")],
        )

    @classmethod
    def validate_inputs(cls, file: str | None = None) -> bool | str:
        return inputs.judge(file=(read_file, file))

    @classmethod
    def fingerprint_inputs(cls, file: str | None = None) -> FileState:
        return None if file is None else file_state(file_path(file))

    @classmethod
    def execute(cls, file: str) -> io.NodeOutput:
        text = read_file(file)
        lines = f"{len(text.splitlines())} lines, {len(text)} characters"
        return io.NodeOutput(text, ui=ui.PreviewText(f"{file}: {lines}"))


def file_path(name: str) -> Path:
    return EXAMPLE_PATH if name == EXAMPLE else chosen_file(name, KINDS)


def read_file(name: str) -> str:
    text = read_text_file(file_path(name))
    if not text.strip():
        raise ValueError(f"{name} is empty: write a text into it, and save it")
    return text
