"""The pack's own checkpoint as the engine loads it: one folder with preset speakers that also clones."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from qwen3_tts_morph.morph.checkpoint.find import demo_voice
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.checkpoint.trained_files import TAIL_FILE as TAILS
from qwen3_tts_morph.morph.codec.stream import decode_waveform
from qwen3_tts_morph.morph.decode.rows import Decoded, Guard
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.speech.takes import wrong_words
from qwen3_tts_morph.morph.study.sweep import sweep
from qwen3_tts_morph.morph.synthesizer import Engine, Synthesizer
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice, preset_voice
from qwen3_tts_morph.morph.voice.prompt import PromptBuilder
from qwen3_tts_morph.morph.voice.voice import check_voice
from qwen3_tts_morph.morph.waveform.engine import take_all
from qwen3_tts_morph.morph.words.alignment import Trace

from lab.upstream.package import default_rope_registered, import_qwen_tts
from tests.morph import test_parity
from tests.morph.decoding import line_requests

SPEAKERS = ["heart", "emma", "michael", "george"]
MOST_MEGABYTES = 64
RATE = 24000
# Lines of the demo voice in which the alignment head alone notices nothing
SINGLE_WORDS = json.loads((Path(__file__).parents[1] / "data" / "forced_letters.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def demo():
    return load_model(demo_voice())


def test_it_is_small_enough_for_the_repository():
    sizes = {path.name: path.stat().st_size for path in demo_voice().iterdir() if path.is_file()}
    tails = sizes.pop(TAILS)
    codec = sum(path.stat().st_size for path in (demo_voice() / "speech_tokenizer").iterdir())
    assert codec + sum(sizes.values()) <= MOST_MEGABYTES * 1e6 and tails < 25e6


@pytest.mark.parametrize("line", SINGLE_WORDS, ids=lambda line: line["spoken"])
def test_a_single_word_that_is_repeated_or_invented_is_noticed(demo, line):
    weights = np.array(line["weights"], dtype=np.float32)
    trace = Trace(np.array(line["tokens"], dtype=np.int32), weights, weights)
    codes = torch.tensor(line["codes"])[:, None].expand(-1, 16)
    found = {"repeated": "said 'whole' again", "invented": "said something else after 'and'", "unchanged": ""}
    assert wrong_words(demo, line["text"], Decoded(codes, "eos", trace)) == found[line["kind"]]


def test_it_has_the_published_format(demo):
    assert (demo.sample_rate, demo.samples_per_frame) == (RATE, 1920)
    assert demo.config.talker_config.num_code_groups == 16 and len(demo.code_tables()) == 15
    assert len(demo.talker.code_predictor.model.layers) == 5
    assert demo.languages == ["auto", "english"]
    assert "(0.02B Base," in demo.summary()


@pytest.mark.parametrize("frames", [20, pytest.param(305, id="beyond one chunk", marks=pytest.mark.slow)])
def test_the_codec_engine_makes_its_waveforms(demo, frames):
    """In torch operations and float32, the error is at least 80 dB below upstream's signal."""
    prompt = PromptBuilder(demo).build("A kettle sang in the kitchen.", preset_voice(demo, "emma"))
    sampling = Sampling(max_new_tokens=40)
    engine = Engine("graph")
    [line] = engine.decode(demo, line_requests([prompt], [Guard(40)], [1]), GenerateOptions(5, sampling))
    codes = [line.codes.repeat(1 + frames // len(line.codes), 1)[:frames], line.codes[:7]]
    heard = [None, line.codes[:9]]
    choice = engine.choose(demo)
    ours = take_all(engine.begin_waveforms(demo, choice, codes, heard))
    assert engine.describe(demo, choice) == "engine: graph (as chosen; op by op, without CUDA graphs: no CUDA)"
    theirs = [decode_waveform(demo, *one) for one in zip(codes, heard, strict=True)]
    for wave, wanted in zip(ours, theirs, strict=True):
        assert wave.shape == wanted.shape and np.abs(wanted).max() > 0.01
        error = np.square(wave.astype(np.float64) - wanted).mean()
        assert 10 * np.log10(np.square(wanted.astype(np.float64)).mean() / error) > 80


@pytest.mark.gpu
def test_the_codec_engines_kernels_make_its_waveforms_on_cuda():
    """cuDNN may compute upstream's convolutions in TF32, hence fewer dB than on a CPU."""
    model = load_model(demo_voice(), LoadOptions("fp32"), "cuda")
    codes = [torch.randint(64, (frames, 16), generator=torch.Generator().manual_seed(1)) for frames in (40, 340)]
    engine = Engine()
    choice = engine.choose(model)
    for _ in range(2):  # direct, then captured
        ours = take_all(engine.begin_waveforms(model, choice, codes, [None, None]))
    assert "waveforms" not in engine.describe(model, choice)
    theirs = [decode_waveform(model, one) for one in codes]
    for wave, wanted in zip(ours, theirs, strict=True):
        error = np.square(wave.astype(np.float64) - wanted).mean()
        assert 10 * np.log10(np.square(wanted.astype(np.float64)).mean() / error) > 40


@pytest.mark.gpu
def test_a_voice_that_is_cloned_again_is_the_same_to_the_bit_on_cuda(recording):
    """Save Voice compares a voice with the saved one: another run of the same workflow must be no error."""
    model = load_model(demo_voice(), LoadOptions(), "cuda")
    first, again = (clone_voice(model, recording, RATE, CloneOptions("icl", "a tone")) for _ in range(2))
    assert torch.equal(first.speaker_embedding, again.speaker_embedding)
    assert torch.equal(first.ref_codes, again.ref_codes)


@pytest.mark.slow
def test_its_trained_tails_are_closer_to_exact_than_the_stock_crossbar(demo):
    assert sorted(demo.tails()) == list(range(1, 15))
    line = Line("A kettle sang in the kitchen.", preset_voice(demo, "emma"))
    options = GenerateOptions(tail="auto")
    trained, stock = (
        {row.seq_groups: row.distance for row in sweep(Synthesizer(demo), line, (1, 5), one).rows}
        for one in (options, dataclasses.replace(options, tail="stock"))
    )
    assert all(trained[groups] < 0.95 * stock[groups] for groups in trained)


def test_it_has_four_different_speakers(demo):
    assert demo.speakers == SPEAKERS
    prompts = [PromptBuilder(demo).build("Hello.", preset_voice(demo, name.upper())).embeds for name in SPEAKERS]
    assert all(not torch.equal(one, other) for at, one in enumerate(prompts) for other in prompts[:at])


@pytest.mark.skipif(transformers.__version__ >= "5", reason="upstream's own loading needs transformers 4.57")
def test_upstreams_own_methods_load_it_and_speak(recording):
    wrapper, folder = import_qwen_tts().Qwen3TTSModel, str(demo_voice())
    with default_rope_registered():  # transformers 5 lacks it
        cloning = wrapper.from_pretrained(folder)
        naming = wrapper.from_pretrained(folder, tts_model_type="custom_voice")
    torch.manual_seed(0)
    voice = {"ref_audio": (recording, RATE), "x_vector_only_mode": True}
    [clone], rate = cloning.generate_voice_clone("Good evening.", "english", max_new_tokens=20, **voice)
    [preset], _ = naming.generate_custom_voice("Good evening.", "heart", "english", max_new_tokens=20)
    assert rate == RATE
    assert all(len(one) > RATE // 4 and np.abs(one).max() > 0.05 for one in (clone, preset))


def test_its_codes_equal_upstreams(demo, recording):
    voice = clone_voice(demo, recording, RATE, CloneOptions("icl", "a tone"))
    asked = (demo, test_parity.TEXTS, voice, "english", test_parity.SAMPLED)
    theirs = test_parity.upstream_codes(*asked)
    assert sum(map(len, theirs[0])) > 20
    test_parity.assert_equal(test_parity.our_codes(*asked), theirs)


def test_unsupported_requests_are_refused_with_the_reason(demo, load):
    with pytest.raises(ValueError, match=r"'vivian' is unknown to demo_voice: choose one of emma, george"):
        preset_voice(demo, "vivian")
    with pytest.raises(ValueError, match=r"does not follow instructions.*clear the instruction"):
        preset_voice(demo, "heart", "whispering")
    with pytest.raises(ValueError, match=r"'heart' was made for a 0\.02B model and .* is 0\.6B"):
        check_voice(load("tiny", "custom_voice"), preset_voice(demo, "heart"))
