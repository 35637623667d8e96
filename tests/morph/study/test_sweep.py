"""The sweep: distances against a plain computation, consistent rows, and the plot."""

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling, TokenSampling, parse_groups
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.study import sweep as module
from qwen3_tts_morph.morph.study.plot import plot_sweep
from qwen3_tts_morph.morph.study.sweep import Sweep, SweepRow, measure_distances, sweep, table
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice, preset_voice
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from lab.streams import render_lines

OPTIONS = GenerateOptions(sampling=Sampling(max_new_tokens=9))


@pytest.fixture
def model(load):
    return load("tiny-1.7B", "custom_voice")


@pytest.mark.parametrize(
    ("text", "groups"),
    [("5", [5]), ("1, 3, 5, 15", [1, 3, 5, 15]), ("15 5,5;\n1", [1, 5, 15]), (" 7,", [7]), ("007", [7])],
)
def test_groups_are_sorted_without_duplicates(text, groups):
    assert parse_groups(text) == groups


@pytest.mark.parametrize("text", ["", " , ", "0", "16", "1, 99", "-1", "1.5", "five", "3-5", "²", "1" * 5000])
def test_anything_but_a_list_of_groups_is_refused(text):
    with pytest.raises(ValueError, match=r"SEQ_GROUPS.*numbers? from 1 to 15"):
        parse_groups(text)


def plain_distribution(logits: torch.Tensor, sampling: TokenSampling) -> torch.Tensor:
    """Return the distribution of one row, filtered by transformers' own sampler."""
    if sampling.do_sample:
        warpers = LogitsProcessorList(
            [
                TemperatureLogitsWarper(sampling.temperature),
                TopKLogitsWarper(sampling.top_k),
                TopPLogitsWarper(sampling.top_p),
            ]
        )
        logits = warpers(None, logits[None])[0]
    return logits.softmax(-1)


@torch.inference_mode()
def plain_distance(model, hidden, codes, sampling: TokenSampling, seq_groups: int) -> float:
    """Compute every state separately, by running upstream's own layers over its complete prefix."""
    predictor = model.talker.code_predictor
    tables = [model.talker.model.codec_embedding, *predictor.model.codec_embedding]
    distances = []
    for state, frame in zip(hidden, codes, strict=True):
        rows = [state, *(table(code)[None] for table, code in zip(tables[:15], frame[:15], strict=True))]
        states = []
        for group in range(15):
            prefix = predictor.small_to_mtp_projection(torch.cat(rows[: group + 2])[None])
            states.append(predictor.model(prefix)[0, -1])
        for group in range(15):
            seen = states[min(group, seq_groups - 1)]
            exact, ours = (
                plain_distribution(predictor.lm_head[group](one).float(), sampling) for one in (states[group], seen)
            )
            distances.append(0.5 * (exact - ours).abs().sum().item())
    return sum(distances) / len(distances)


@pytest.mark.parametrize(
    "sampling",
    [TokenSampling(), TokenSampling(temperature=0.7, top_k=20, top_p=0.8), TokenSampling(do_sample=False)],
    ids=str,
)
def test_distances_equal_a_plain_computation(model, sampling):
    random = torch.Generator().manual_seed(0)
    hidden = torch.randn(6, 1, model.width, generator=random)
    codes = torch.randint(64, (6, 16), generator=random)
    distances = measure_distances(model, hidden, codes, sampling)
    assert list(distances) == list(range(1, 16))
    for seq_groups in (1, 4, 14):
        wanted = plain_distance(model, hidden, codes, sampling, seq_groups)
        assert distances[seq_groups] == pytest.approx(wanted, abs=1e-4) and wanted > 0.001
    assert distances[15] == 0


def test_distances_of_many_frames_are_their_mean(model):
    """More frames than are compared at once."""
    random = torch.Generator().manual_seed(0)
    frames = module.CHUNK + 7
    hidden = torch.randn(frames, 1, model.width, generator=random)
    codes = torch.randint(64, (frames, 16), generator=random)
    parts = [slice(0, 30), slice(30, frames)]
    whole = measure_distances(model, hidden, codes, TokenSampling())
    halves = [measure_distances(model, hidden[part], codes[part], TokenSampling()) for part in parts]
    for groups in whole:
        mean = (30 * halves[0][groups] + (frames - 30) * halves[1][groups]) / frames
        assert whole[groups] == pytest.approx(mean, abs=1e-5)


def test_a_sweep_speaks_the_line_as_render_lines_does(model):
    line = Line("Hello there.", preset_voice(model, "ryan"), "english", seed=4, name="ANNA")
    result = sweep(Synthesizer(model), line, [1, 5, 15], OPTIONS)
    assert [row.seq_groups for row in result.rows] == [1, 5, 15]
    for row, spoken in zip(result.rows, result.spoken, strict=True):
        options = GenerateOptions(seq_groups=row.seq_groups, sampling=OPTIONS.sampling)
        alone = render_lines(Synthesizer(model), [line], options)[0]
        assert np.array_equal(spoken.waveform, alone.waveform)
        assert spoken.report == alone.report and spoken.sample_rate == 24000
        assert row.frames == alone.report.frames and row.seconds == pytest.approx(row.frames * 0.08)
        assert 0 <= row.distance <= 1
    assert result.rows[-1].distance == 0 < result.rows[0].distance


def test_an_icl_voice_is_swept_without_its_reference(load, recording):
    model = load("tiny-1.7B", "base")
    line = Line("Hello.", clone_voice(model, recording, 24000, CloneOptions("icl", "a tone")))
    result = sweep(Synthesizer(model), line, [5], OPTIONS)
    assert abs(len(result.spoken[0].waveform) - 1920 * result.rows[0].frames) <= 1


def test_a_voice_of_another_model_is_refused_before_anything_is_decoded(load, model):
    line = Line("Hello.", preset_voice(load("tiny", "custom_voice"), "ryan"))
    with pytest.raises(ValueError, match=r"was made for a 0\.6B model"):
        sweep(Synthesizer(model), line, [5], OPTIONS, lambda *_: pytest.fail("decoded"))


def rows(*numbers: tuple[int, float, float]) -> Sweep:
    return Sweep([SweepRow(groups, 50, 4.0, ms, ms / 80, distance) for groups, ms, distance in numbers], [])


def test_the_table_has_a_row_per_setting():
    lines = table(rows((1, 20.0, 0.25), (15, 100.0, 0.0))).splitlines()
    assert lines[2:] == [
        "|          1 |     50 |    4.00 |     20.0 | 0.250 |             0.250 |",
        "|         15 |     50 |    4.00 |    100.0 | 1.250 |             0.000 |",
    ]
    assert len({len(line) for line in lines}) == 1, "not aligned as plain text"
    assert {line.count("|") for line in lines} == {7}


def test_the_table_says_what_exact_means_for_int8_weights(checkpoint):
    model = load_model(checkpoint("tiny", "custom_voice"), LoadOptions("fp32", "sdpa", weights="int8"))
    result = sweep(Synthesizer(model), Line("Hello.", preset_voice(model, "ryan")), [15], OPTIONS)
    assert table(result).endswith("Exact is the int8 model's own SEQ_GROUPS 15, which is approximate itself.")


def test_the_plot_is_rgb_and_shows_the_rows():
    pytest.importorskip("matplotlib")
    one = plot_sweep(rows((1, 20, 0.25), (15, 100, 0.0)))
    assert one.dtype == np.uint8 and one.ndim == 3 and one.shape[2] == 3
    assert one.std() > 5, "an empty page"
    assert np.array_equal(one, plot_sweep(rows((1, 20, 0.25), (15, 100, 0.0))))
    assert not np.array_equal(one, plot_sweep(rows((1, 20, 0.75), (15, 100, 0.0))))
    assert plot_sweep(rows((5, 20, 0.25))).shape == one.shape  # one row alone
