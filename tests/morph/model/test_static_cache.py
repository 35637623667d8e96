import pytest
import torch
from qwen3_tts_morph.morph.model.static_cache import FillView, SpanView, StaticCache, StepView


def cache_of(length: int = 6) -> StaticCache:
    return StaticCache.allocate((2, 3, 2, length, 4), torch.zeros(1))


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_a_span_is_written_in_place_and_returned_up_to_its_end():
    cache = cache_of()
    first, second = noise(3, 2, 3, 4), noise(3, 2, 1, 4)
    SpanView(cache, 0, 3).update(1, first, -first)
    keys, values = SpanView(cache, 3, 4).update(1, second, -second)
    assert torch.equal(keys, torch.cat((first, second), 2)) and torch.equal(values, -keys)
    assert keys.untyped_storage().data_ptr() == cache.keys.untyped_storage().data_ptr()
    assert not cache.keys[0].any() and not cache.keys[1, :, :, 4:].any()


def test_a_step_writes_each_line_at_its_own_position_and_masks_what_comes_after():
    cache = cache_of()
    new = noise(3, 2, 1, 4)
    step = StepView(cache, torch.tensor([0, 5, 2]))
    keys, values = step.update(0, new, 2 * new)
    for row, position in enumerate((0, 5, 2)):
        assert torch.equal(keys[row, :, position], new[row, :, 0])
        assert torch.equal(values[row, :, position], 2 * new[row, :, 0])
        assert (step.mask[row, 0, 0] == 0).tolist() == [place <= position for place in range(6)]
    assert (cache.keys[0] != 0).sum() == new.numel() and not cache.keys[1].any()


def test_prompts_fill_the_beginning_of_their_rows_and_of_no_other():
    cache = cache_of()
    cache.keys.fill_(7)
    keys, values = noise(2, 2, 3, 4), noise(2, 2, 3, 4) - 1
    given = FillView(cache, torch.tensor([2, 0])).update(1, keys, values)
    assert given[0] is keys and given[1] is values
    assert torch.equal(cache.keys[1, [2, 0], :, :3], keys)
    assert torch.equal(cache.values[1, [2, 0], :, :3], values)
    assert (
        (cache.keys[0] == 7).all() and (cache.keys[1, 1] == 7).all() and (cache.keys[1, :, :, 3:] == 7).all()
    )


def test_a_window_shares_memory_and_clearing_a_row_touches_no_other():
    cache = cache_of()
    part = cache.window(2)
    part.keys.fill_(1)
    assert part.keys.shape == (2, 3, 2, 2, 4) and part.length == 2
    assert cache.keys[:, :, :, :2].all() and cache.keys.sum() == part.keys.numel()
    cache.clear(torch.tensor([1]))
    assert not cache.keys[:, 1].any() and cache.keys[:, [0, 2], :, :2].all()


def test_a_longer_cache_copies_a_shorter_one():
    cache, longer = cache_of(), cache_of(9)
    cache.keys.copy_(noise(2, 3, 2, 6, 4))
    cache.values.fill_(3)
    longer.copy_from(cache)
    assert torch.equal(longer.keys[:, :, :, :6], cache.keys) and not longer.keys[:, :, :, 6:].any()
    assert torch.equal(longer.values[:, :, :, :6], cache.values)


def test_a_span_that_would_need_a_mask_is_refused():
    with pytest.raises(ValueError, match=r"span 2\.\.4"):
        SpanView(cache_of(), 2, 4)
