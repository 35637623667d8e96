"""The Sampling node."""

from typing import Any

from comfy_api.latest import io

from ...morph.options import REQUEST, Sampling, TokenSampling
from ...morph.setting import settings_of
from .. import inputs
from ..schema import SamplingSocket, schema

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
