"""Which engine makes a model's codes: what was chosen at loading, and what the machine and the checkpoint can do."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from .eager import Decoded, decode_lines
from .graph import GraphEngines
from .guard import Guard
from .layers import check_config
from .model import Model
from .options import PREDICTED_GROUPS, Sampling, check_decoding, check_engine
from .prompt import Prompt
from .sampling import line_streams
from .speculative import SpeculativePredictor

log = logging.getLogger(__name__)


class Engine:
    """Decodes the lines of one model, and holds what an engine keeps between two decodings: caches and graphs.

    Args:
        choice: one of ``options.ENGINES``. "auto" is the graph engine on CUDA and the eager one elsewhere; "graph"
            on another device runs the graph engine's functions op by op.

    Holds nothing of the model. Whoever moves the model away from its device calls ``free`` first.
    """

    def __init__(self, choice: str = "auto"):
        self.choice = check_engine(choice)
        self._graphs = GraphEngines()

    def pick(self, model: Model, decoding: str = "crossbar") -> tuple[str, str]:
        """The engine that runs for this model now, "eager" or "graph", and why.

        Raises:
            ValueError: for lossless decoding where the graph engine was chosen: it has a fixed number of passes.
        """
        if check_decoding(decoding) == "lossless":
            if self.choice == "graph":
                raise ValueError(
                    "decoding is lossless and the model's engine is graph, which cannot do it: choose engine auto "
                    "or eager in Load Model, or decoding crossbar"
                )
            return "eager", "as chosen" if self.choice == "eager" else "decoding is lossless"
        if self.choice != "auto":
            return self.choice, "as chosen"
        if model.device.type != "cuda":
            return "eager", "no CUDA"
        try:
            check_config(model.config.talker_config)
            check_config(model.config.talker_config.code_predictor_config)
        except ValueError as error:
            return "eager", str(error)
        return "graph", "CUDA"

    def describe(self, model: Model, decoding: str = "crossbar") -> str:
        """One line for reports: which engine runs, how, and why."""
        name, why = self.pick(model, decoding)
        if name == "eager":
            return f"engine: eager ({why})"
        plain = "no CUDA" if model.device.type != "cuda" else self._graphs.why_plain
        how = "CUDA graphs" if plain is None else f"op by op, without CUDA graphs: {plain}"
        return f"engine: graph ({why}; {how})"

    def decode_lines(
        self,
        model: Model,
        prompts: Sequence[Prompt],
        guards: Sequence[Guard],
        seq_groups: int,
        sampling: Sampling,
        seeds: Sequence[int],
        batch_size: int = 1,
        on_frame: Callable[[int], None] | None = None,
        decoding: str = "crossbar",
        tail: str = "auto",
    ) -> list[Decoded]:
        """Decode any number of lines to their ends, at most ``batch_size`` at a time, in the order given.

        A seed names a line's draws; the two engines draw with different generators, so it gives other codes in the
        other, and with lossless ``decoding`` (one of ``options.DECODINGS``) yet others. What ``on_frame`` raises ends
        the decoding and passes through; see ``eager.decode_lines`` for the rest.
        """
        name, _ = self.pick(model, decoding)
        if name == "graph":
            return self._graphs.decode_lines(
                model, prompts, guards, seq_groups, sampling, seeds, batch_size, on_frame, tail
            )
        decoded: list[Decoded] = []
        lossless = None
        if decoding == "lossless":
            lossless = SpeculativePredictor(model.talker.code_predictor, tails=model.tails(tail))
        for start in range(0, len(prompts), batch_size):
            part = slice(start, start + batch_size)
            streams = line_streams(seeds[part], model.device)
            decoded += decode_lines(
                model,
                prompts[part],
                guards[part],
                seq_groups,
                sampling,
                streams,
                on_frame,
                predictor=lossless,
                tail=tail,
            )
        if lossless is not None:
            log.info("lossless: %s, %d without drafts", lossless.tally.describe(), PREDICTED_GROUPS)
        return decoded

    def free(self) -> None:
        """Let go of caches and graphs; the next decoding makes them anew."""
        self._graphs.free()
