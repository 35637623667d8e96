"""All strategies by name. A new one is an entry here, such as

    Strategy("mine", "what it is, in a sentence", by_predictor(lambda model, seq_groups: MyPredictor(model)))

where ``MyPredictor`` has ``decode_frame`` as ``morph.predictor.Predictor`` has it.
"""

from __future__ import annotations

from ..ablation.strategies import ABLATION
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
        "the product: SEQ_GROUPS groups one after another, the rest by one einsum over the stock heads",
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
        "lossless, drafted by the checkpoint's trained tail for as many exact groups, by stock heads where it has none",
        by_predictor(lossless_trained),
        heads="trained",
        counts_passes=True,
    ),
    Strategy(
        "adaptive",
        "each frame takes the passes that its crossbar seems to need, SEQ_GROUPS in the mean of exact lines",
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
        "SEQ_GROUPS=5 with the last ten groups set to code 0 in every frame that the talker goes on from",
        by_predictor(lambda model, _: SpoiledTail(model, random=False)),
        groups=(TAIL_FROM,),
    ),
    Strategy(
        "loop-random",
        "SEQ_GROUPS=5 with the last ten groups random in every frame that the talker goes on from",
        by_predictor(lambda model, _: SpoiledTail(model, random=True)),
        groups=(TAIL_FROM,),
    ),
)
WAYS = tuple(
    Strategy(
        name,
        about,
        by_predictor(lambda model, _, make=make: make(model.talker.code_predictor)),
        counts_passes=name == "lossless",
    )
    for name, (about, make) in TAILS.items()
)
CONTROLS = ("tail-zeroed", "tail-random")
EXACT = "crossbar:15"
STRATEGIES = {strategy.name: strategy for strategy in (*OURS, *WAYS, *ABLATION)}
DEFAULT = ("crossbar", "loop-zeroed", "loop-random")
