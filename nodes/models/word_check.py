"""The Word Check node."""

from __future__ import annotations

from pathlib import Path

import folder_paths
from comfy_api.latest import io

from ...morph.hearing.whisper import SIZES, Whisper, check_installed, load_whisper
from .. import inputs
from ..page.progress import Progress, show_progress
from ..schema import output, schema
from ..sockets import WordCheckSocket

FOLDER = "faster-whisper"  # below models/
DEFAULT_SIZE = "base"


def load_recogniser(size: str, progress: Progress) -> Whisper:
    """Return a recogniser of ComfyUI's model folder; errors as ``load_whisper``."""
    progress.say(f"loading faster-whisper {size}")
    return load_whisper(size, Path(folder_paths.models_dir, FOLDER))


class WordCheckSettings(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            "MorphTTSWordCheck",
            "Word Check",
            "A speech recogniser hears every line of Generate Speech, Render Script or Dub Captions. A line with "
            "too many wrong words is made again with another seed. Needs the package faster-whisper.",
            inputs=[
                inputs.choice(
                    "recogniser",
                    SIZES,
                    DEFAULT_SIZE,
                    "The size of Whisper. Larger hears better and is slower; it runs on the CPU. Downloaded once "
                    f"to models/{FOLDER}, offline from then on. Default: {DEFAULT_SIZE}.",
                ),
                inputs.number(
                    "most_errors",
                    5.0,
                    (0.0, 100.0, 1.0),
                    "How many wrong words a line may have. Whisper itself mishears some, names above all. Unit: "
                    "percent of the line's words, 0 to 100. Default: 5: none in a line of less than 20 words.",
                ),
                inputs.number(
                    "retakes",
                    3,
                    (0, 10),
                    "How many other takes a line with more wrong words gets; the best one is kept. 0 only reports. "
                    "Unit: takes, 0 to 10. Default: 3.",
                ),
            ],
            outputs=[
                output(
                    WordCheckSocket,
                    "check",
                    "For Generate Speech, Render Script and Dub Captions.",
                    shown="word_check",
                )
            ],
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
