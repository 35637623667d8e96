"""The nodes Render Script and Script From File."""

from pathlib import Path
from typing import Any

from comfy_api.latest import io, ui

from ...morph.runtime.whole_file import FileState, file_state
from ...morph.text.files import read_text_file
from ...morph.text.scripts.script import check_script
from ...morph.voice.voice import Voice
from .. import inputs
from ..folders import NO_FILE, chosen_file, input_files
from ..models.memory import check_cast
from ..page.clips import show
from ..schema import output, schema
from ..sound.values import to_audio
from .characters import find_characters, saved_states
from .common import SpeakingNode, speaking_schema
from .pronunciation import lists_of

EXAMPLE = """\
# The narrator speaks lines without a name. 'NAME: text' is for a name of Cast, the saved voices or the speakers.
Good morning! Did you sleep at all?
Not a minute. [pause 0.5]
[seed 7] Then let us walk. The rain has stopped.
"""
KINDS = (".txt", ".md", ".srt", ".vtt")
EXAMPLE_FILE = "example script (in the pack)"  # so that the node runs before a user has a file
EXAMPLE_PATH = Path(__file__).resolve().parents[2] / "workflows" / "example script.txt"


class RenderScript(SpeakingNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return speaking_schema(
            "MorphTTSRenderScript",
            advanced="batch_size decoding retries normalize_text trim_silence reuse_lines sentence_subtitles "
            "wrong_words",
            inputs=[
                inputs.model(optional=True),
                inputs.cast(),
                inputs.text_box("script", EXAMPLE),
                inputs.seq_groups(),
                inputs.seed(),
                inputs.setting("batch_size"),
                inputs.language(),
                inputs.number("gap", 0.3, (0.0, 60.0, 0.05)),
                inputs.sampling(),
                inputs.decoding(),
                inputs.setting("retries", optional=True),
                inputs.setting("normalize", optional=True),
                inputs.setting("trim_ends", optional=True),
                inputs.reuse_lines(),
                inputs.word_check(),
                inputs.switch("sentence_subtitles", False, optional=True),
                inputs.setting("wrong_words", optional=True),
                inputs.pronunciation(),
            ],
            outputs=[
                output(io.Audio, "lines", many=True),
                output(io.Audio, "audio"),
                output(io.String, "srt"),
                output(io.String, "report"),
            ],
        )

    @classmethod
    def validate_inputs(cls, script: str | None = None) -> bool | str:
        return inputs.judge(script=(check_script, script))

    @classmethod
    def fingerprint_inputs(
        cls, script: str | None = None, **_: Any
    ) -> list[tuple[str, tuple[FileState, ...]]]:
        return saved_states(script)

    @classmethod
    def execute(
        cls,
        script: str,
        seed: int,
        gap: float,
        cast: dict[str, Voice] | None = None,
        sentence_subtitles: bool = False,
        **given: Any,
    ) -> io.NodeOutput:
        from ...morph.script.dialogue import ScriptRequest, assemble, read_script

        check_cast(cast := cast or {})
        with cls.stage(given, cast) as stage:
            characters, lists = find_characters(stage.model, cast), lists_of(given.get("pronunciation"))
            request = ScriptRequest(
                script, characters, given["language"], seed, gap, sentence_subtitles, lists
            )
            read, lines = read_script(stage.speaks, request, stage.options)
            made = assemble(read, lines, stage.speak(lines, read, gap), request)
            told = stage.end(lines, made.lines, read.lines, characters.describe_found())
        joined = to_audio(made.joined, made.sample_rate, told.facts)
        shown = show(told.outcome, told.clips(), report=told.report)
        heard = told.words.at(made.starts, made.sample_rate)
        return io.NodeOutput(told.audios(), joined, made.srt, told.report, heard, ui=shown)


class ScriptFromFile(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            "MorphTTSScriptFromFile",
            inputs=[
                io.Combo.Input(
                    "file", options=[name for name in input_files(KINDS) if name != NO_FILE] + [EXAMPLE_FILE]
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
    return EXAMPLE_PATH if name == EXAMPLE_FILE else chosen_file(name, KINDS)


def read_file(name: str) -> str:
    text = read_text_file(file_path(name))
    if not text.strip():
        raise ValueError(f"{name} is empty: write a text into it, and save it")
    return text
