"""The nodes that change how lines are spoken: Sampling, Word Check and Pronunciation."""

from typing import Any

from comfy_api.latest import io, ui

from ...morph.hearing.whisper import check_installed
from ...morph.options import MOST_RETAKES, RECOGNISER, RECOGNISERS, REQUEST, Sampling, TokenSampling
from ...morph.setting import settings_of
from ...morph.text.pronunciation import PronunciationList, parse_pronunciation, read_pronunciation
from .. import inputs
from ..folders import chosen_file, chosen_state, input_files
from ..inputs import PronunciationSocket, SamplingSocket, WordCheckSocket, schema
from ..models.load import load_recogniser
from ..models.values import shown
from ..page.progress import show_progress

SUBTALKER = "subtalker_"
TOKEN = [name for name in settings_of(TokenSampling, REQUEST) if name != "do_sample"]
# Saved workflows keep values by position: the first ones stay where they were, others follow.
FIRST = ("temperature", "top_k", "top_p")
LATER = [prefix + name for name in TOKEN if name not in FIRST for prefix in ("", SUBTALKER)]


class SamplingSettings(io.ComfyNode):
    define_schema = schema(
        "MorphTTSSampling",
        advanced=" ".join(["greedy", *(SUBTALKER + name for name in ("greedy", *TOKEN))]),
        inputs=lambda: [
            *(token_input(name) for name in FIRST),
            inputs.setting("repetition_penalty", Sampling),
            *(token_input(SUBTALKER + name) for name in FIRST),
            io.Boolean.Input("greedy", default=False),
            io.Boolean.Input("subtalker_greedy", default=False),
            inputs.setting("max_seconds", Sampling),
            *(token_input(name, optional=True) for name in LATER),
        ],
        outputs=[SamplingSocket.Output("sampling")],
    )

    @classmethod
    def execute(
        cls, repetition_penalty: float, max_seconds: float, greedy: bool, subtalker_greedy: bool, **token: Any
    ) -> io.NodeOutput:
        talker, subtalker = (
            {name: token[prefix + name] for name in TOKEN if prefix + name in token} for prefix in ("", SUBTALKER)
        )
        return io.NodeOutput(
            Sampling(
                TokenSampling(not greedy, **talker),
                TokenSampling(not subtalker_greedy, **subtalker),
                repetition_penalty,
                max_seconds or None,
            )
        )


def token_input(name: str, **more: Any) -> io.Input:
    """Return the input of a setting of the talker, or, with its prefix, of the sub-talker."""
    return inputs.setting(name.removeprefix(SUBTALKER), TokenSampling, called=name, **more)


class WordCheckSettings(io.ComfyNode):
    define_schema = schema(
        "MorphTTSWordCheck",
        inputs=lambda: [
            inputs.choice("recogniser", RECOGNISERS, RECOGNISER),
            inputs.number("most_errors", 5.0, (0.0, 100.0, 1.0)),
            inputs.number("retakes", 3, (0, MOST_RETAKES)),
        ],
        outputs=[WordCheckSocket.Output("check")],
        hidden=[io.Hidden.unique_id],
    )

    validate_inputs = inputs.judged(recogniser=lambda _: check_installed())

    @classmethod
    def execute(cls, recogniser: str, most_errors: float, retakes: int) -> io.NodeOutput:
        from ...morph.kept.render import WordCheck

        with show_progress(cls.hidden.unique_id) as progress:
            whisper = load_recogniser(recogniser, progress)
        return io.NodeOutput(WordCheck(whisper, most_errors / 100, retakes))


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

    validate_inputs = inputs.judged(
        words=lambda words: parse_pronunciation(words, "words"), file=lambda name: read_file(name)
    )

    fingerprint_inputs = inputs.changing("file", lambda name: chosen_state(name, KINDS, NO_LIST))

    @classmethod
    def execute(cls, words: str, file: str) -> io.NodeOutput:
        lists = [one for one in (parse_pronunciation(words, "words"), read_file(file)) if one.words]
        count = sum(len(one.words) for one in lists)
        text = f"{count} word{'' if count == 1 else 's'}"
        return io.NodeOutput(tuple(lists), ui=ui.PreviewText(text))


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
