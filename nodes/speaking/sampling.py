"""The Sampling node."""

from __future__ import annotations

from comfy_api.latest import io

from ...morph.options import Sampling, TokenSampling
from .. import inputs
from ..schema import output, schema
from ..sockets import SamplingSocket

DEFAULTS = Sampling()
TALKER = "Group 0 (words, rhythm, melody)"
SUBTALKER = "Groups 1-15 (timbre, detail)"


def temperature(name: str, what: str, default: float) -> io.Input:
    return inputs.number(
        name,
        default,
        (0.01, 2.0, 0.01),
        f"{what}: above 1 is more varied, below 1 steadier. No unit, 0.01 to 2. Default: {default:g}.",
    )


def top_k(name: str, what: str, default: int) -> io.Input:
    return inputs.number(
        name,
        default,
        (0, 3072),
        f"{what}: sample only from the k most likely codes. 0 is off. Unit: codes. Default: {default}.",
    )


def top_p(name: str, what: str, default: float) -> io.Input:
    return inputs.number(
        name,
        default,
        (0.01, 1.0, 0.01),
        f"{what}: sample only from the most likely codes that together reach this probability. 1 is off. "
        f"No unit. Default: {default:g}.",
    )


def greedy(name: str, what: str) -> io.Input:
    return inputs.switch(
        name,
        False,
        f"{what}: always take the most likely code instead of sampling. Sounds flat and tends to loop. "
        "Default: off.",
    )


class SamplingSettings(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        talker, subtalker = DEFAULTS.talker, DEFAULTS.subtalker
        return schema(
            "MorphTTSSampling",
            "Sampling",
            "How codes are sampled. Without this node, the checkpoint's own settings apply. The defaults "
            "here are those of the published checkpoints.",
            advanced="subtalker_temperature subtalker_top_k subtalker_top_p greedy subtalker_greedy",
            inputs=[
                temperature("temperature", TALKER, talker.temperature),
                top_k("top_k", TALKER, talker.top_k),
                top_p("top_p", TALKER, talker.top_p),
                inputs.number(
                    "repetition_penalty",
                    DEFAULTS.repetition_penalty,
                    (0.5, 2.0, 0.01),
                    "Above 1, group 0 codes that a line has already used become less likely. 1 is off. No unit. "
                    f"Default: {DEFAULTS.repetition_penalty:g}.",
                ),
                temperature("subtalker_temperature", SUBTALKER, subtalker.temperature),
                top_k("subtalker_top_k", SUBTALKER, subtalker.top_k),
                top_p("subtalker_top_p", SUBTALKER, subtalker.top_p),
                greedy("greedy", TALKER),
                greedy("subtalker_greedy", SUBTALKER),
                inputs.number(
                    "max_seconds",
                    0.0,
                    (0.0, 3600.0, 1.0),
                    "Maximum length of a line. 0: the guard derives it from the text. Unit: seconds of audio. "
                    "Default: 0.",
                ),
            ],
            outputs=[output(SamplingSocket, "sampling", "For Generate Speech, Render Script and Sweep.")],
        )

    @classmethod
    def execute(
        cls,
        temperature: float,
        top_k: int,
        top_p: float,
        repetition_penalty: float,
        subtalker_temperature: float,
        subtalker_top_k: int,
        subtalker_top_p: float,
        greedy: bool,
        subtalker_greedy: bool,
        max_seconds: float,
    ) -> io.NodeOutput:
        return io.NodeOutput(
            Sampling(
                talker=TokenSampling(not greedy, temperature, top_k, top_p),
                subtalker=TokenSampling(
                    not subtalker_greedy, subtalker_temperature, subtalker_top_k, subtalker_top_p
                ),
                repetition_penalty=repetition_penalty,
                max_seconds=max_seconds or None,
            )
        )
