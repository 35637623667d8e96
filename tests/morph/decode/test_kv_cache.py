import torch
from qwen3_tts_morph.morph.decode.kv_cache import KeyValueCache
from transformers import DynamicCache


def test_it_grows_like_transformers_cache_layer_by_layer():
    ours, theirs = KeyValueCache(2), DynamicCache()
    torch.manual_seed(0)
    for length in (3, 1, 2):
        for layer in (0, 1):
            keys, values = torch.randn(2, 2, 4, length, 8)
            mine, wanted = ours.update(keys, values, layer), theirs.update(keys, values, layer)
            assert torch.equal(mine[0], wanted[0])
            assert torch.equal(mine[1], wanted[1])
            assert mine[0].stride() == wanted[0].stride()
    assert [keys.shape[2] for keys in ours.keys] == [6, 6]


def test_a_new_cache_is_empty():
    KeyValueCache(1).update(torch.ones(1, 1, 1, 2), torch.ones(1, 1, 1, 2), 0)
    keys, values = KeyValueCache(1).update(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2), 0)
    assert keys.shape[2] == 1 and not keys.any() and not values.any()
