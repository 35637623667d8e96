"""A fallback says what runs instead, and why."""

import pytest
from qwen3_tts_morph.morph.runtime.fallback import Fallback


def test_it_says_what_runs_instead_and_why():
    assert Fallback("CUDA graphs", "no CUDA").describe() == "op by op, without CUDA graphs: no CUDA"


def test_an_unknown_part_is_refused():
    with pytest.raises(ValueError, match="part is 'GPU': choose one of CUDA graphs, Triton kernels"):
        Fallback("GPU", "no")
