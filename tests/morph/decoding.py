"""The same lines through the eager and the graph engine, for tests that compare them."""

import numpy as np
import torch
from qwen3_tts_morph.morph.decode import eager, predictor
from qwen3_tts_morph.morph.decode.loop import Decoding, decode_lines
from qwen3_tts_morph.morph.decode.rows import Decoded, Guard, LineRequest, RowPlan
from qwen3_tts_morph.morph.decode.sampling import filter_logits
from qwen3_tts_morph.morph.frame.sampling import gumbel_noise, line_keys
from qwen3_tts_morph.morph.graph.engine import GraphDecoder as GraphRowsDecoder
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling, TokenSampling
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice, design_voice, preset_voice
from qwen3_tts_morph.morph.voice.prompt import PromptBuilder
from qwen3_tts_morph.morph.words.alignment import Trace

TEXTS = ["Hello there, how are you?", "No.", "A longer line that has more to say than the others."]
SEEDS = [11, 12, 2**64 - 1]
GREEDY = Sampling(TokenSampling(do_sample=False), TokenSampling(do_sample=False))
FILTERED = Sampling(TokenSampling(top_k=20, top_p=0.8), TokenSampling(temperature=1.1, top_k=0, top_p=0.7), 1.3)
CHECKPOINT_OF = {"preset": "custom_voice", "design": "voice_design", "x_vector": "base", "icl": "base"}


def one_stream(model) -> eager.Experiment:
    """One random stream for the batch, torch's own for the model's device: as upstream samples."""
    if model.device.type != "cuda":
        return eager.Experiment(stream=torch.default_generator)
    index = torch.cuda.current_device() if model.device.index is None else model.device.index
    return eager.Experiment(stream=torch.cuda.default_generators[index])


def decode_coming(opened, model, first, come=lambda decoding: (), on_frame=lambda _: None) -> list[Decoded]:
    """Decode lines in opened rows; ``come`` is asked before each frame for lines that join.

    A line whose numbers are not finite ends as "broken".
    """
    with opened as rows:
        decoding, waiting, running, made = Decoding(model, rows), list(first), {}, {}
        count = idle = 0
        while waiting or running or idle < 2:
            waiting += come(decoding)
            if waiting and (room := rows.room(len(waiting))):
                taken, waiting = waiting[:room], waiting[room:]
                for row in decoding.admit(taken):
                    running[row], count = count, count + 1
            goes_on = decoding.step()
            while (ended := decoding.read()) is not None:
                goes_on = True
                for row, end in ended:
                    made[running.pop(row)] = Decoded.of(decoding.release(row), end)
                on_frame(decoding.buffers.appended)
            idle = 0 if goes_on else idle + 1
            assert idle < 1000
        return [made[line] for line in range(count)]


def prompts_of(model, kind: str = "preset", rows=range(3), recording=None):
    if kind == "preset":
        voice = preset_voice(model, "ryan")
    elif kind == "design":
        voice = design_voice(model, "a calm old man")
    else:
        voice = clone_voice(model, recording, 24000, CloneOptions(kind, transcript="a tone"))
    return [PromptBuilder(model).build(TEXTS[row], voice) for row in rows]


def line_requests(prompts, guards=None, seeds=None) -> list[LineRequest]:
    """One request per prompt; without guards, those of ``guards_of``, and without seeds, the line's index."""
    lines = zip(prompts, guards or guards_of(prompts), seeds or range(len(prompts)), strict=False)
    return [LineRequest(*line) for line in lines]


def guards_of(prompts, frames: int = 16) -> list[Guard]:
    return [Guard(frames, detect_loops=False) for _ in prompts]


class GraphDecoder(GraphRowsDecoder):
    """A graph decoder that decodes given lines to their ends."""

    def decode(self, model, lines, options, on_frame=None) -> list[Decoded]:
        return decode_graphs(self, model, lines, options, on_frame)


def decode_graphs(decoder: GraphRowsDecoder, model, lines, options, on_frame=None) -> list[Decoded]:
    with decoder.open_rows(model, options, RowPlan.of_lines(lines, options.batch_size)) as rows:
        return decode_lines(model, rows, lines, on_frame)


def decode_eager(model, lines, options, on_frame=None, experiment=None) -> list[Decoded]:
    with eager.open_rows(model, options, RowPlan(len(lines), len(lines)), experiment) as rows:
        return decode_lines(model, rows, lines, on_frame)


class SameNoise:
    """Samples for the eager engine with the graph engine's noise, group by group and frame by frame."""

    def __init__(self, seeds):
        self.keys, self.counter = line_keys(seeds), 0

    def sample(self, logits: torch.Tensor, sampling: TokenSampling, _: object) -> torch.Tensor:
        groups = logits.shape[1] if logits.dim() == 3 else 1
        counters = (self.counter + torch.arange(groups)).expand(len(logits), -1)
        noise = gumbel_noise(self.keys, counters, logits.shape[-1]).view(logits.shape)
        self.counter += groups
        scores = logits.float()
        return (filter_logits(scores, sampling) + noise if sampling.do_sample else scores).argmax(-1)


def eager_lines(model, prompts, seq_groups, sampling, seeds, monkeypatch, guards=None):
    decoded = []
    for row, prompt in enumerate(prompts):
        with monkeypatch.context() as patch:
            sample = SameNoise(seeds[row : row + 1]).sample
            patch.setattr(eager, "sample_tokens", sample)
            patch.setattr(predictor, "sample_tokens", sample)
            lines = line_requests([prompt], guards and guards[row : row + 1])
            decoded += decode_eager(model, lines, GenerateOptions(seq_groups, sampling))
    return decoded


def graph_lines(model, prompts, seq_groups, sampling, seeds, guards=None, rows=None):
    lines = line_requests(prompts, guards, seeds)
    return GraphDecoder(rows or len(prompts)).decode(model, lines, GenerateOptions(seq_groups, sampling))


def assert_equal(ours, theirs) -> None:
    assert [one.ended for one in ours] == [one.ended for one in theirs]
    assert [one.codes.shape for one in ours] == [one.codes.shape for one in theirs]
    assert all(torch.equal(a.codes, b.codes) for a, b in zip(ours, theirs, strict=True))
    for one, other in zip(ours, theirs, strict=True):
        assert same_traces(one.trace, other.trace)


def same_traces(one: Trace | None, other: Trace | None) -> bool:
    """Return whether traces have the same tokens, and shares that differ by rounding; or there are none."""
    if one is None or other is None:
        return one is other
    shares = (np.allclose(getattr(one, name), getattr(other, name), atol=1e-5) for name in ("weights", "mass"))
    return one.tokens.tolist() == other.tokens.tolist() and all(shares)
