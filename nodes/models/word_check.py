"""The Word Check node."""

from pathlib import Path

import folder_paths
from comfy_api.latest import io

from ...morph.hearing.whisper import Whisper, check_installed, load_whisper
from ...morph.options import MOST_RETAKES, RECOGNISERS
from ...serve.terminal.folders import RECOGNISER_FOLDER
from .. import inputs
from ..page.progress import Progress, show_progress
from ..schema import WordCheckSocket, output, schema

DEFAULT_SIZE = "base"


def load_recogniser(size: str, progress: Progress) -> Whisper:
    """Return a recogniser of ComfyUI's model folder; errors as ``load_whisper``."""
    progress.say(f"loading faster-whisper {size}")
    return load_whisper(size, Path(folder_paths.models_dir, RECOGNISER_FOLDER))


class WordCheckSettings(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            "MorphTTSWordCheck",
            inputs=[
                inputs.choice("recogniser", RECOGNISERS, DEFAULT_SIZE),
                inputs.number("most_errors", 5.0, (0.0, 100.0, 1.0)),
                inputs.number("retakes", 3, (0, MOST_RETAKES)),
            ],
            outputs=[output(WordCheckSocket, "check")],
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def validate_inputs(cls, recogniser: str | None = None) -> bool | str:
        return inputs.judge(recogniser=(lambda _: check_installed(), recogniser))

    @classmethod
    def execute(cls, recogniser: str, most_errors: float, retakes: int) -> io.NodeOutput:
        from ...morph.kept.word_check import WordCheck

        with show_progress(cls.hidden.unique_id) as progress:
            whisper = load_recogniser(recogniser, progress)
        return io.NodeOutput(WordCheck(whisper, most_errors / 100, retakes))
