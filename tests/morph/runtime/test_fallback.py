"""A fallback says what runs instead, and why."""

from qwen3_tts_morph.morph.runtime.fallback import Fallback


def test_it_says_what_runs_instead_and_why():
    assert Fallback("CUDA graphs", "no CUDA").describe() == "op by op, without CUDA graphs: no CUDA"
