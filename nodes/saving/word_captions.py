"""The Word Captions node."""

from __future__ import annotations

from comfy_api.latest import io, ui

from ...morph.words.captions import FORMATS, MOST_CHARS, UNITS, CaptionOptions, write_captions
from .. import inputs
from ..folders import output_folder
from ..schema import output, schema
from ..sockets import WordsSocket
from ..sound.words import SpokenWords, check_words
from .names import check_name
from .subtitles import write_new

DEFAULTS = CaptionOptions()


class WordCaptions(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            "MorphTTSWordCaptions",
            "Word Captions",
            "Writes captions at the times at which words are heard, to ComfyUI's output folder as NAME_00001.srt, "
            ".vtt, .json or .ass. In .vtt and .ass the words light up one by one. Existing files are never "
            "overwritten.",
            inputs=[
                WordsSocket.Input(
                    "words",
                    tooltip=(
                        "The words of Generate Speech, Render Script or Dub Captions; must not be empty. Required."
                    ),
                ),
                io.String.Input(
                    "name",
                    default="captions",
                    tooltip=(
                        "The file name, without the number: only letters, digits, spaces and - _ . , at most 80 "
                        "characters. Default: captions."
                    ),
                ),
                inputs.choice(
                    "format",
                    FORMATS,
                    DEFAULTS.format,
                    "srt: SubRip, for video players and editors. vtt: WebVTT, for web pages, with the time of each "
                    "word. json: words and captions with their times. ass: karaoke for video players and FFmpeg: "
                    f"words are grey until they are heard. Default: {DEFAULTS.format}.",
                ),
                inputs.choice(
                    "unit",
                    UNITS,
                    DEFAULTS.unit,
                    "What a caption has: one word, a phrase of at most that many characters, or a sentence. None "
                    f"stays over a silence of a second. Default: {DEFAULTS.unit}.",
                ),
                inputs.number(
                    "characters",
                    DEFAULTS.most_chars,
                    (1, MOST_CHARS),
                    "The longest phrase; phrases end at punctuation where they can. Sentences may be longer. Unit: "
                    f"characters, 1 to {MOST_CHARS}. Default: {DEFAULTS.most_chars}.",
                ),
            ],
            outputs=[output(io.String, "captions", "The text of the file.")],
            is_output_node=True,
        )

    @classmethod
    def validate_inputs(cls, name: str | None = None) -> bool | str:
        return inputs.judge(name=(check_name, name))

    @classmethod
    def execute(cls, words: SpokenWords, name: str, format: str, unit: str, characters: int) -> io.NodeOutput:
        inputs.check(format=(FORMATS, format), unit=(UNITS, unit))
        options = CaptionOptions(format, unit, characters)
        text = write_captions(check_words(words).lines, options)
        path = write_new(output_folder(), f"{check_name(name)}_{{:05}}.{format}", text)
        return io.NodeOutput(text, ui=ui.PreviewText(f"saved {path.name}\n\n{text}"))
