"""In bf16, the graph engine's samples have the same distribution as upstream's.

Codes of one prompt under
thousands of seeds are compared by chi squared, for each group and for pairs of groups. SEQ_GROUPS=1 is the control: the
same comparison must distinguish it from exact.
"""

from collections.abc import Callable

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.decode.rows import Guard
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling, TokenSampling

from lab.benchmarks.upstream import generate
from lab.upstream.over import upstream_of
from tests.morph.decoding import GraphDecoder, line_requests, prompts_of

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.gpu),
]
LINES, ROWS, FRAMES = 2048, 128, 2
GROUPS = (0, 1, 5, 14, 15)
PAIRS = ((0, 1), (1, 2), (2, 15))
FOLDED = 12  # bins that each group of a pair is folded to
FEWEST = 10  # bins with fewer samples than this, in both sets together, are merged
# Sharp enough that a sample depends strongly on those before it.
SAMPLING = Sampling(TokenSampling(temperature=0.5), TokenSampling(temperature=0.4))


def upstream_codes(model, prompt) -> torch.Tensor:
    torch.manual_seed(0)
    upstream = upstream_of(model)
    batches = [generate(model, upstream, [prompt] * ROWS, FRAMES, SAMPLING) for _ in range(0, LINES, ROWS)]
    return torch.cat(batches)[:, FRAMES - 1]


def graph_codes(model, prompt, seq_groups: int) -> torch.Tensor:
    engine = GraphDecoder(ROWS)

    def decode(seeds: range) -> list:
        guards = [Guard(FRAMES, detect_loops=False) for _ in range(ROWS)]
        return engine.decode(
            model, line_requests([prompt] * ROWS, guards, list(seeds)), GenerateOptions(seq_groups, SAMPLING)
        )

    return in_batches(decode)


def in_batches(decode: Callable[[range], list]) -> torch.Tensor:
    """Return the last frame's codes of LINES lines, ``[LINES, 16]``, without lines that end before it."""
    lines = [line for first in range(0, LINES, ROWS) for line in decode(range(first, first + ROWS))]
    return torch.stack([line.codes[FRAMES - 1] for line in lines if len(line.codes) == FRAMES])


def distance(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Return chi squared of two sets of samples, in standard deviations above that of one distribution."""
    kinds = int(max(ours.max(), theirs.max())) + 1
    counts = torch.stack([one.bincount(minlength=kinds) for one in (ours, theirs)]).double()
    often = counts.sum(0) >= FEWEST
    counts = torch.cat([counts[:, often], counts[:, ~often].sum(1, keepdim=True)], dim=1)
    counts = counts[:, counts.sum(0) > 0]
    wanted = counts.sum(1, keepdim=True) * counts.sum(0) / counts.sum()
    free = max(1, counts.shape[1] - 1)
    return float(((counts - wanted) ** 2 / wanted).sum() - free) / (2 * free) ** 0.5


def distances(ours: torch.Tensor, theirs: torch.Tensor) -> dict[str, float]:
    found = {f"group {group}": distance(ours[:, group], theirs[:, group]) for group in GROUPS}
    for one, other in PAIRS:
        folded = [codes[:, one] % FOLDED * FOLDED + codes[:, other] % FOLDED for codes in (ours, theirs)]
        found[f"groups {one} and {other}"] = distance(*folded)
    return found


@pytest.mark.parametrize("device", DEVICES)
def test_bf16_samples_are_distributed_as_upstreams_and_the_crossbars_are_not(checkpoint, device):
    model = load_model(checkpoint("tiny", "custom_voice"), LoadOptions("bf16", "sdpa"), device)
    prompt = prompts_of(model, rows=(0,))[0]
    wanted = upstream_codes(model, prompt)
    assert len(wanted) > LINES / 2
    found = distances(graph_codes(model, prompt, 15), wanted)
    assert max(found.values()) < 6, found
    control = distances(graph_codes(model, prompt, 1), wanted)
    assert max(control.values()) > 15, control
