"""The Pronunciation node: how words are read, from a box on the node or a file in the input folder."""

from comfy_api.latest import io, ui

from ...morph.text.pronunciation import PronunciationList, parse_pronunciation, read_pronunciation
from .. import inputs
from ..folders import chosen_file, chosen_state, input_files
from ..models.memory import shown
from ..schema import PronunciationSocket, schema

KINDS = (".txt",)
NO_LIST = "none"
EXAMPLE = "# word = as it is read\nNguyen = win\nSQL = sequel\n"


class Pronunciation(io.ComfyNode):
    define_schema = schema(
        "MorphTTSPronunciation",
        inputs=lambda: [
            inputs.text_box("words", EXAMPLE),
            inputs.choice("file", [NO_LIST, *input_files(KINDS)], NO_LIST),
        ],
        outputs=[PronunciationSocket.Output("pronunciation")],
    )

    validate_inputs = inputs.judged(words=lambda words: read_words(words), file=lambda name: read_file(name))

    fingerprint_inputs = inputs.changing("file", lambda name: chosen_state(name, KINDS, NO_LIST))

    @classmethod
    def execute(cls, words: str, file: str) -> io.NodeOutput:
        lists = [one for one in (read_words(words), read_file(file)) if one.words]
        count = sum(len(one.words) for one in lists)
        text = f"{count} word{'' if count == 1 else 's'}"
        return io.NodeOutput(tuple(lists), ui=ui.PreviewText(text))


def read_words(words: str) -> PronunciationList:
    return parse_pronunciation(words, "words")


def read_file(name: str) -> PronunciationList:
    """Return the list in a chosen file; ValueError if there is no such file, or it has faulty lines."""
    if name == NO_LIST:
        return PronunciationList()
    return read_pronunciation(chosen_file(name, KINDS))


def lists_of(value: object) -> tuple[PronunciationList, ...]:
    lists = () if value is None else value
    if not isinstance(lists, tuple) or not all(isinstance(one, PronunciationList) for one in lists):
        raise ValueError(f"pronunciation is {shown(value)}: connect Pronunciation, or disconnect it")
    return lists
