"""Complete lines through the graph engine: the same codes with kernels as with torch operations."""

import pytest
import torch

pytest.importorskip("triton", reason="not run: the kernels need triton")

from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.decode.rows import Guard
from qwen3_tts_morph.morph.graph import backend as fused
from qwen3_tts_morph.morph.graph.backend import FrameBackend
from qwen3_tts_morph.morph.kernels import Passes, frame, unsupported
from qwen3_tts_morph.morph.kernels.frame import PromptOps
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling

from tests.morph.decoding import GREEDY, GraphDecoder, assert_equal, line_requests, prompts_of

ALL = [
    (shape, rows, sampling)
    for shape, rows in (("tiny-1.7B", (0,)), ("tiny", (0, 1, 2)))
    for sampling in (GREEDY, Sampling())
]
# The interpreter takes ten seconds per frame, and a line of one frame takes three of them.
CASES, FRAMES = (ALL, 12) if torch.cuda.is_available() else ([("tiny-1.7B", (0,), Sampling())], 1)


@pytest.fixture
def interpreted(monkeypatch, device):
    """Without CUDA, the kernels run in Triton's interpreter. No user wants that, so the engine must be told to."""
    if device.type != "cuda":
        chosen = Passes(
            frame.decode_frame,
            frame.predict_codes,
            frame.advance,
            frame.begin_lines,
            frame.start_lines,
            PromptOps(),
        )
        monkeypatch.setattr(fused, "choose_frame", lambda weights: (chosen, unsupported(weights)))


@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(("shape", "rows", "sampling"), CASES)
def test_lines_equal_those_of_torch_operations(checkpoint, device, shape, rows, sampling):
    model = load_model(checkpoint(shape, "custom_voice"), LoadOptions("fp32", "sdpa"), device)
    prompts, seeds = prompts_of(model, rows=rows), list(rows)

    def decode(engine: GraphDecoder):
        guards = [Guard(FRAMES, False) for _ in prompts]
        return engine.decode(model, line_requests(prompts, guards, seeds), GenerateOptions(1, sampling))

    engine = GraphDecoder(len(rows))
    plain = GraphDecoder(len(rows), frames=FrameBackend(kernels=False))
    for _ in range(3 if device.type == "cuda" else 1):  # plain, captured, replayed
        assert_equal(decode(engine), decode(plain))
    assert engine.frames.fallback is None and plain.frames.fallback is not None
    if device.type == "cuda":
        assert engine.fallback is None
