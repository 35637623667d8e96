"""The nodes that save captions: Save Subtitles, and Word Captions with the times of words."""

from contextlib import suppress
from itertools import count
from pathlib import Path

from comfy_api.latest import io, ui

from ...morph.text.encoding import check_encodable
from ...morph.text.names import check_name, confine
from ...morph.text.scripts.cues import FORMATS, UNITS, read_cues, write_cues
from ...morph.words.captions import MOST_CHARS, CaptionOptions, write_captions
from .. import inputs
from ..folders import output_folder
from ..schema import WordsSocket, output, schema
from ..sound.values import SpokenWords, check_words
from .recordings import write_new

OF_SUBTITLES = ("srt", "vtt")
DEFAULTS = CaptionOptions()


class SaveSubtitles(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            "MorphTTSSaveSubtitles",
            inputs=[
                io.String.Input("srt", force_input=True),
                io.String.Input("name", default="dialogue"),
                inputs.choice("format", OF_SUBTITLES, OF_SUBTITLES[0], optional=True),
            ],
            outputs=[],
            is_output_node=True,
        )

    validate_inputs = inputs.judged(name=check_name)

    @classmethod
    def execute(cls, srt: str, name: str, format: str = OF_SUBTITLES[0]) -> io.NodeOutput:
        if not srt.strip():
            raise ValueError("srt is empty: connect the srt output of Render Script")
        inputs.check(format=(OF_SUBTITLES, format))
        text = to_vtt(srt) if format == "vtt" else srt
        return io.NodeOutput(ui=ui.PreviewText(f"saved {write_numbered(name, format, text).name}"))


def to_vtt(srt: str) -> str:
    """Return the text of a WebVTT file from that of an SRT file; ValueError for another text."""
    cues = read_cues(srt)
    if not cues:
        raise ValueError(
            f"srt has {srt[:40]!r}, which is no caption: connect the srt output of Render Script"
        )
    return write_cues(cues, "vtt")


class WordCaptions(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            "MorphTTSWordCaptions",
            inputs=[
                WordsSocket.Input("words"),
                io.String.Input("name", default="captions"),
                inputs.choice("format", FORMATS, DEFAULTS.format),
                inputs.choice("unit", UNITS, DEFAULTS.unit),
                inputs.number("characters", DEFAULTS.most_chars, (1, MOST_CHARS)),
            ],
            outputs=[output(io.String, "captions")],
            is_output_node=True,
        )

    validate_inputs = inputs.judged(name=check_name)

    @classmethod
    def execute(cls, words: SpokenWords, name: str, format: str, unit: str, characters: int) -> io.NodeOutput:
        options = CaptionOptions(format, unit, characters)
        text = write_captions(check_words(words).lines, options)
        path = write_numbered(name, format, text)
        return io.NodeOutput(text, ui=ui.PreviewText(f"saved {path.name}\n\n{text}"))


def write_numbered(name: str, format: str, text: str) -> Path:
    """Write a text to the first unused NAME_00001.FORMAT of the output folder; return its path.

    Raises:
        ValueError: the name is none, or the text cannot be encoded as UTF-8; no file is created.
    """
    folder, stem = output_folder(), check_name(name)
    data = check_encodable(text, "srt").encode()
    folder.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        path = confine(folder, f"{stem}_{number:05}.{format}")
        with suppress(FileExistsError):
            write_new(path, data)
            return path
    raise AssertionError  # count is infinite
