"""How many positions the rows of a running batch have from the beginning."""

import pytest
from qwen3_tts_morph.morph.frame.buffers import Buffers
from qwen3_tts_morph.morph.frame.weights import Weights
from qwen3_tts_morph.morph.graph.pool import MOST_POSITIONS, position_bytes, roomy_context


def test_a_position_takes_what_the_buffers_have_more_with_it(load):
    model = load("tiny", "custom_voice")
    weights, config = Weights.of(model), model.config.talker_config

    def size(context: int) -> int:
        slots = Buffers.allocate(config, weights.talker, weights.predictor, 2, context)
        return sum(one.nbytes for one in (slots.text, slots.cache.keys, slots.cache.values))

    assert size(257) - size(256) == 2 * position_bytes(model)


@pytest.mark.parametrize(("memory", "positions"), [(1, 2048), (1 / 2, 1024), (1 / 3, 512), (0, 512)])
def test_rows_have_room_as_far_as_memory_allows(load, memory, positions):
    model = load("tiny", "custom_voice")
    wanted = 3 * 8 * MOST_POSITIONS * position_bytes(model)
    assert roomy_context(model, 8, round(memory * wanted)) == positions
