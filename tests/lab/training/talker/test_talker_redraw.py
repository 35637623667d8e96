"""A talker samples groups 1-15 of recorded lines, and the codec's decoder learns from both."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.options import TokenSampling

from lab.training.codec import train as codec_command
from lab.training.codec.checkpoint import read_weights, write_weights
from lab.training.codec.config import SAMPLES_PER_FRAME, load_config
from lab.training.codec.data import pack_lines, sample_batch
from lab.training.codec.given import Aligned, align, load_given, pack_given
from lab.training.codec.trainer import Trainer
from lab.training.corpus import shards
from lab.training.corpus.shards import Corpus
from lab.training.parallel import ALONE
from lab.training.talker.checkpoint import load_weights
from lab.training.talker.codes import FIRST_LEAD, Codes, CodeWriter, Utterance, load_codes
from lab.training.talker.layout import Style, lay_out
from lab.training.talker.redraw import hidden_of, load_talker, redraw, sample_rest
from lab.training.talker.train import train
from lab.training.talker.voices import embed_voices
from tests.lab.training.codec.tiny_codec import line, tiny
from tests.lab.training.talker.tiny_talker import CODEBOOK, tiny_run, write_codes, write_config

pytestmark = pytest.mark.slow  # this training is finished: --all runs it

CPU = torch.device("cpu")
TUNING = {"decoder_only": True, "gain_db": (0.0, 0.0), "silent_start": 0.0, "drawn": 0.5}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Codes, and a talker trained on them for a few steps."""
    root = tmp_path_factory.mktemp("redraw")
    write_codes(root / "codes")
    write_config(root / "talker.json")
    train(ALONE, tiny_run(root, 3))
    return root


@pytest.fixture(scope="module")
def drawn(root: Path) -> Codes:
    given = argparse.Namespace(
        codes=root / "codes", talker=root / "talker", out=root / "drawn", config=root / "talker.json"
    )
    redraw(ALONE, given)
    return load_codes(root / "drawn")


def test_lines_keep_all_but_groups_1_to_15(root: Path, drawn: Codes) -> None:
    recorded = load_codes(root / "codes")
    assert sorted(drawn.texts) == sorted(recorded.texts)
    for row, text in enumerate(drawn.texts):
        same = recorded.texts.index(text)
        ours, theirs = drawn.utterance_codes(row), recorded.utterance_codes(same)
        assert drawn.names[drawn.speakers[row]] == recorded.names[recorded.speakers[same]]
        assert ours[:, 0].tolist() == theirs[:, 0].tolist()
        assert ours.min() >= 0 and ours.max() < CODEBOOK
        assert (ours[:, 1:] != theirs[:, 1:]).mean() > 0.5  # noise, of which it has not learnt much yet


def test_greedy_samples_are_the_predictors_most_probable_codes(root: Path) -> None:
    network = load_talker(root / "talker", CPU).network
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(7, 96, generator=generator)
    first = torch.randint(CODEBOOK, (7,), generator=generator)
    with torch.inference_mode():
        rest = sample_rest(network, hidden, first, TokenSampling(do_sample=False))
        said = network.predict(hidden, torch.cat((first[:, None], rest[:, :-1]), dim=1))
    assert rest.tolist() == said.argmax(-1).tolist()


def test_voices_are_embedded_as_in_training(root: Path) -> None:
    talker, codes = load_talker(root / "talker", CPU), load_codes(root / "codes")
    weights, about, _ = load_weights(root / "talker" / "weights")
    heard = embed_voices(codes, codes.mels, talker.embed)
    assert about["voices"] == codes.names
    rounded = 0.02 * heard.abs().max()  # the encoder's weights were stored as bf16
    assert torch.allclose(heard, weights["voices"].float(), atol=rounded)
    assert not torch.allclose(heard[0], heard[1], rtol=1e-3)


def test_a_lines_states_do_not_depend_on_a_longer_line_in_the_batch(root: Path) -> None:
    talker, codes = load_talker(root / "talker", CPU), load_codes(root / "codes")
    voices = embed_voices(codes, codes.mels, talker.embed)
    layouts = []
    for row in (0, 3):
        frames = codes.utterance_codes(row)
        layouts.append(
            lay_out(talker.ids, talker.tokens.encode([codes.texts[row]])[0], frames, len(frames), Style())
        )
    with torch.inference_mode():
        both = hidden_of(talker, layouts, voices[:2])
        alone = hidden_of(talker, layouts[:1], voices[:1])
    assert torch.allclose(both[: layouts[0].frames], alone, atol=1e-5)
    assert len(both) == sum(one.frames for one in layouts)


def test_a_crops_codes_match_its_frames() -> None:
    lines = []
    for number, speaker in enumerate("ba"):
        frames = np.arange(20) + 20 * number
        audio = np.repeat(frames * 100, SAMPLES_PER_FRAME).astype(np.int16)
        codes = np.broadcast_to(frames[:, None, None], (20, 2, 16)) + np.array([0, 500])[:, None]
        durations = np.array([len(audio) // 2, len(audio) // 4, len(audio) // 4])
        whole = shards.Utterance("text", "a", speaker, audio, durations)
        lines.append(Aligned(whole, codes.astype(np.int16)))
    options = tiny(**TUNING).training
    batch = sample_batch(pack_given(lines), options, 0.0, 3)
    heard = (batch.wave.view(len(batch.wave), -1, SAMPLES_PER_FRAME)[..., 0] * 32768 / 100).round().long()
    assert batch.codes is not None
    kinds = (batch.codes[:, :, 0] >= 500).long()
    assert torch.equal(batch.codes - 500 * kinds[..., None], heard[..., None].expand(-1, -1, 16))
    assert kinds.unique().tolist() == [0, 1] and (kinds == kinds[:, :1]).all()


def test_given_codes_decode_like_the_encoders_own() -> None:
    trainer = Trainer(tiny(), pack_lines([line("b", 200.0), line("a", 300.0)]))
    trainer.fill_codebooks()
    codec = trainer.codec.eval()
    wave = torch.from_numpy(line("c", 250.0).audio[: 8 * SAMPLES_PER_FRAME]).float()[None] / 32768
    for groups in (torch.tensor([16]), torch.tensor([3])):
        with torch.inference_mode():
            coded = codec(wave, groups)
            again = codec.decode_codes(coded.quantised.codes.transpose(1, 2), groups)
        assert torch.allclose(again.wave, coded.wave, atol=1e-5)
        assert torch.allclose(again.phones, coded.phones, atol=1e-5)


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus with recorded codes, sampled ones in another order, and a codec's weights; "Twice." has two lengths."""
    root = tmp_path_factory.mktemp("spoken")
    lines = [
        dataclasses.replace(line("a", 200.0), text="One."),
        dataclasses.replace(line("a", 200.0, tokens=9000), text="Twice."),
        dataclasses.replace(line("a", 200.0), text="Twice."),
        dataclasses.replace(line("b", 300.0), text="Two."),
    ]
    for split in ("train", "dev"):
        shards.write_shard(root / f"{split}-00-000.safetensors", lines, 24000)
    trainer = Trainer(tiny(), pack_lines(lines))
    trainer.fill_codebooks()
    (root / "weights").mkdir()
    write_weights(root / "weights", trainer.weights())
    generator = torch.Generator().manual_seed(2)
    for name, mels, order in (("codes", 5, lines), ("drawn", 0, lines[::-1])):
        writer = CodeWriter(root / name, 32)
        for one in order:
            frames = -(-len(one.audio) // SAMPLES_PER_FRAME) + FIRST_LEAD
            codes = torch.randint(32, (frames, 16), generator=generator)
            mel = torch.zeros(mels, 128, dtype=torch.uint8)
            phones = torch.zeros(frames, 2, dtype=torch.long)
            writer.add(Utterance(one.text, one.speaker, "train", codes, mel, phones))
        writer.flush()
    return root


def test_the_command_tunes_only_the_decoder(spoken: Path, tmp_path: Path) -> None:
    config = tiny(total_steps=3, validate_every=3, **TUNING)
    config = dataclasses.replace(config, quantiser=dataclasses.replace(config.quantiser, start_step=0))
    given = (spoken / "codes", spoken / "drawn")
    slice_ = codec_command.Slice(spoken, tmp_path / "out", 5, False, start=spoken / "weights", given=given)
    slice_.out.mkdir()
    codec_command.run(config, slice_, ALONE)
    before, after = (read_weights(folder).tensors for folder in (spoken / "weights", slice_.out / "weights"))
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert any(name.startswith("upstream.decoder.decoder") for name in moved)
    assert not [name for name in moved if "encoder." in name or name == "codes" or "phone" in name]


def test_options_that_would_change_the_encoded_audio_are_refused(spoken: Path) -> None:
    for wrong in ({"gain_db": (0.0, 3.0)}, {"silent_start": 0.1}, {"decoder_only": False}):
        options = tiny(**{**TUNING, **wrong}).training
        with pytest.raises(ValueError, match=r"codec_drawn\.json"):
            load_given(spoken, spoken / "codes", spoken / "drawn", options)
    shipped = load_config(Path(codec_command.DEFAULT).with_name("codec_drawn.json")).training
    speech = load_given(spoken, spoken / "codes", spoken / "drawn", shipped)
    assert speech.codes is not None and len(speech.audio) == len(speech.codes) * SAMPLES_PER_FRAME


def test_lines_that_a_voice_speaks_twice_are_skipped(spoken: Path) -> None:
    lines = align(Corpus(spoken, "train"), load_codes(spoken / "codes"), load_codes(spoken / "drawn"))
    assert [one.line.text for one in lines] == ["One.", "Two."]


def test_sampled_codes_must_be_given(spoken: Path, tmp_path: Path) -> None:
    slice_ = codec_command.Slice(spoken, tmp_path, 5, False, start=spoken / "weights")
    with pytest.raises(ValueError, match="--drawn"):
        codec_command.prepare(tiny(**TUNING), slice_, ALONE)


def test_codes_of_another_corpus_are_refused(spoken: Path, tmp_path: Path) -> None:
    shorter = [dataclasses.replace(line("a", 200.0, tokens=9000), text="One.")]
    shards.write_shard(tmp_path / "train-00-000.safetensors", shorter, 24000)
    with pytest.raises(ValueError, match=r"'One\.' by a"):
        load_given(tmp_path, spoken / "codes", spoken / "drawn", tiny(**TUNING).training)
