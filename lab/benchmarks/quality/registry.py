"""All strategies by name. To add one, add an entry here, e.g.

    Strategy("mine", "what it is, in one sentence", by_predictor(lambda model, seq_groups: MyPredictor(model)))

where ``MyPredictor`` has the same ``decode_frame`` as the product's ``Predictor``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from qwen3_tts_morph.morph.decode.predictor import Predictor
from qwen3_tts_morph.morph.model.model import Model

from .paper_strategies import ABLATION
from .strategies import (
    TAIL_FROM,
    SpoiledTail,
    Strategy,
    by_predictor,
    crossbar_distributions,
    lossless_trained,
    no_decoding,
    not_calibrated,
    own_predictor,
    random_tail,
    trained_distributions,
    trained_predictor,
    zero_tail,
)
from .tails import TAILS

OURS = (
    Strategy(
        "crossbar",
        "the product: SEQ_GROUPS groups sequentially, the rest by one einsum over the stock heads",
        by_predictor(own_predictor),
        distributions=crossbar_distributions,
        product=True,
    ),
    Strategy(
        "trained",
        "the product with the checkpoint's trained tail instead of the stock heads",
        by_predictor(trained_predictor),
        heads="trained",
        distributions=trained_distributions,
        product=True,
    ),
    Strategy(
        "lossless-trained",
        "lossless, drafted by the checkpoint's trained tail for the line's exact groups, else by the stock heads",
        by_predictor(lossless_trained),
        heads="trained",
        counts_passes=True,
    ),
    Strategy(
        "adaptive",
        "each frame takes the passes that its crossbar seems to need, SEQ_GROUPS on average over exact lines",
        not_calibrated,
        counts_passes=True,
        calibrated=True,
    ),
    Strategy(
        "tail-zeroed",
        "control: the exact line with the last ten groups set to code 0 before the codec",
        no_decoding,
        groups=(TAIL_FROM,),
        spoil=zero_tail,
    ),
    Strategy(
        "tail-random",
        "control: the exact line with the last ten groups replaced by random codes before the codec",
        no_decoding,
        groups=(TAIL_FROM,),
        spoil=random_tail,
    ),
    Strategy(
        "loop-zeroed",
        "SEQ_GROUPS=5 with the last ten groups set to code 0 in every frame, also in the talker's next input",
        by_predictor(lambda model, _: SpoiledTail(model, random=False)),
        groups=(TAIL_FROM,),
    ),
    Strategy(
        "loop-random",
        "SEQ_GROUPS=5 with the last ten groups random in every frame, also in the talker's next input",
        by_predictor(lambda model, _: SpoiledTail(model, random=True)),
        groups=(TAIL_FROM,),
    ),
)


def predict_tail(make: Callable[[Any], Predictor], model: Model, seq_groups: int) -> Predictor:
    """Return a tail's predictor for a model; ``make`` is an entry of ``TAILS``."""
    return make(model.talker.code_predictor)


TAIL_STRATEGIES = tuple(
    Strategy(
        name,
        about,
        by_predictor(partial(predict_tail, make)),
        counts_passes=name == "lossless",
    )
    for name, (about, make) in TAILS.items()
)
CONTROLS = ("tail-zeroed", "tail-random")
EXACT = "crossbar:15"
STRATEGIES = {strategy.name: strategy for strategy in (*OURS, *TAIL_STRATEGIES, *ABLATION)}
DEFAULT = ("crossbar", "loop-zeroed", "loop-random")
