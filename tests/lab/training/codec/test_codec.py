"""The codec's training: the trainer's path equals upstream's, and an interruption changes nothing."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from lab.judges.clips import read_texts
from lab.training.average import Average
from lab.training.codec import config as configs
from lab.training.codec import train as command
from lab.training.codec.balance import Balancer
from lab.training.codec.checkpoint import Weights, read_weights, write_weights
from lab.training.codec.cost import time_steps
from lab.training.codec.data import CELL, CELLS, EDGE, Speech, held_out, pack_lines, sample_batch
from lab.training.codec.evaluate import (
    Sample,
    decode_first,
    encode,
    evaluate,
    load_tokenizer,
    mel_distance,
)
from lab.training.codec.export import codec_of, export
from lab.training.codec.losses import SpectralLoss, magnitude, phone_loss
from lab.training.codec.model import Codec, fill_codebooks
from lab.training.codec.quantizer import ResidualQuantiser
from lab.training.codec.trainer import Trainer
from lab.training.corpus.shards import write_shard
from lab.training.parallel import ALONE
from tests.lab.training.codec.tiny_codec import line, tiny

pytestmark = pytest.mark.slow  # this training is finished: --all runs it

FRAME = configs.SAMPLES_PER_FRAME


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def speech() -> Speech:
    return pack_lines([line("b", 200.0), line("a", 300.0, "bc"), line("b", 250.0)])


@pytest.fixture(scope="module")
def codec(speech) -> Codec:
    """A codec with random weights, and codebooks filled from its own embeddings."""
    trainer = Trainer(tiny(), speech)
    trainer.fill_codebooks()
    return trainer.codec.eval()


@pytest.fixture(scope="module")
def wave(speech) -> torch.Tensor:
    return held_out(speech, 20, 2).wave


@torch.no_grad()
def test_crops_run_upstreams_encoder_and_decoder(codec, wave):
    mimi, decoder = codec.upstream.encoder, codec.upstream.decoder
    hidden = mimi.encoder_transformer(mimi.encoder(wave[:, None]).transpose(1, 2))[0].transpose(1, 2)
    torch.testing.assert_close(codec.crops.encode(wave), mimi.downsample(hidden), atol=1e-4, rtol=1e-4)
    fill_codebooks(codec)
    codes = torch.randint(32, (2, 16, 20), generator=torch.Generator().manual_seed(0))
    ours = codec.crops.decode(decoder.quantizer.decode(codes)).clamp(-1, 1)
    torch.testing.assert_close(ours, decoder(codes)[:, 0], atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_upstream_encodes_and_decodes_what_the_trainer_quantises(codec, wave):
    fill_codebooks(codec)
    ours = codec(wave)
    theirs = codec.upstream.encode(wave, torch.ones_like(wave).long()).audio_codes
    codes = torch.stack(theirs)
    assert (codes.transpose(1, 2) == ours.quantised.codes).float().mean() > 0.99  # except for ties
    decoded = torch.stack(codec.upstream.decode(ours.quantised.codes.transpose(1, 2)).audio_values)
    torch.testing.assert_close(decoded, ours.wave.clamp(-1, 1), atol=1e-4, rtol=1e-3)
    assert len(codes[..., 1:].unique()) > 16  # a constant would not pass


def test_the_export_loads_and_decodes_like_the_trainer(codec, wave, tmp_path):
    symbols = tuple(f"{number}" for number in range(codec.phone_count))
    write_weights(tmp_path / "weights", Weights(codec.config, symbols, 7, codec.averaged()))
    carried = codec_of(read_weights(tmp_path / "weights"))
    tokenizer = load_tokenizer(export(carried, tmp_path / "speech_tokenizer"))
    with torch.no_grad():
        ours = carried(wave[:1])
    codes = encode(tokenizer, wave[0, :-500].numpy())  # upstream pads the last frame
    assert codes.shape == (20, 16)
    assert (ours.quantised.codes[0, :, :-1] == codes[:-1].T).float().mean() > 0.99
    (decoded,), rate = tokenizer.decode({"audio_codes": ours.quantised.codes[0].T})
    assert rate == configs.SAMPLE_RATE
    np.testing.assert_allclose(decoded, ours.wave[0].clamp(-1, 1).numpy(), atol=1e-3)


@pytest.mark.parametrize("groups", [1, 5, 16])
def test_fewer_groups_decode_as_in_training(codec, wave, groups, tmp_path):
    with torch.no_grad():
        ours = codec(wave[:1], torch.tensor([groups]))
        tokenizer = load_tokenizer(export(codec, tmp_path, torch.float32))
        decoded = decode_first(tokenizer, ours.quantised.codes[0].T, groups)
        again = decode_first(tokenizer, ours.quantised.codes[0].T, 16)
    np.testing.assert_allclose(decoded, ours.wave[0].clamp(-1, 1).numpy(), atol=1e-3)
    assert groups == 16 or np.abs(decoded - again).max() > 1e-4


def test_evaluation_writes_the_judges_input(codec, wave, tmp_path):
    tokenizer = load_tokenizer(export(codec, tmp_path / "codec"))
    samples = [Sample("0001", "ann", "One line.", wave[0, :-700].numpy())]
    means = evaluate(tokenizer, iter(samples), tmp_path / "out", (1, 16))
    (clip,) = read_texts(tmp_path / "out" / "texts.tsv")
    assert (clip.path, clip.speaker, clip.text) == ("ann/0001.wav", "ann", "One line.")
    lengths = {soundfile.info(tmp_path / "out" / part / clip.path).frames for part in ("original", *means)}
    assert lengths == {wave.shape[1] - 700} and means.keys() == {"groups-01", "groups-16"}
    assert mel_distance(samples[0].wave, samples[0].wave) == 0 < means["groups-16"]


@pytest.mark.slow
def test_the_losses_fall(speech):
    config = tiny(learning_rate=0.002, crops=((8, 1.0),), gain_db=(0.0, 0.0), silent_start=0.0)
    later = dataclasses.replace(config.quantiser, start_step=20)
    discriminators = dataclasses.replace(config.adversarial, start_step=115)
    trainer = Trainer(dataclasses.replace(config, quantiser=later, adversarial=discriminators), speech)
    found = [trainer.train_step() for _ in range(120)]
    for name in ("magnitude", "phones"):
        assert sum(step[name] for step in found[-6:]) < 0.7 * 6 * found[0][name]
    assert {"telling", "fooling", "features"} <= found[-1].keys() and "telling" not in found[3]


def test_gradients_have_the_memory_layout_of_their_parameters(speech):
    """torch's fused optimizer (CUDA) accepts no other layout; on a CPU nothing would fail."""
    trainer = Trainer(tiny(), speech)
    for _ in range(5):
        trainer.train_step()
    for optimizer in (trainer.updater.optimizer, trainer.updater.opponent):
        for parameter, state in optimizer.state.items():
            assert parameter.grad.stride() == state["exp_avg"].stride() == parameter.stride()
        assert optimizer.state


def test_only_the_decoder_learns_while_codes_stay_fixed(speech, tmp_path):
    first = Trainer(tiny(), speech)
    for _ in range(4):
        first.train_step()
    write_weights(tmp_path, first.weights())
    config = tiny(decoder_only=True)
    config = dataclasses.replace(
        config,
        quantiser=dataclasses.replace(config.quantiser, start_step=0),
        adversarial=dataclasses.replace(config.adversarial, start_step=0),
    )
    second = Trainer(config, speech)
    second.start_from(read_weights(tmp_path))
    held = held_out(speech, 16, 2)
    with torch.no_grad():
        before = second.codec(held.wave)
    for _ in range(3):
        losses = second.train_step()
    with torch.no_grad():
        after = second.codec(held.wave)
    assert torch.equal(before.quantised.codes, after.quantised.codes)
    assert (before.wave - after.wave).abs().max() > 1e-4
    assert {"fooling", "features"} <= losses.keys()
    assert second.average.values.keys() == first.average.values.keys()


def test_the_balancer_gives_each_loss_its_share():
    wave = torch.randn(2, 50, requires_grad=True)
    balancer = Balancer({"spectral": 1.0, "fooling": 3.0}, "spectral")
    small, large = 1e-3 * wave[:, :25].sum(), 1e3 * wave[:, 25:].sum()
    found = balancer.gradient({"spectral": small, "fooling": large}, wave)
    assert found[:, 25:].norm() / found[:, :25].norm() == pytest.approx(3.0, rel=1e-4)
    alone = balancer.gradient({"spectral": small}, wave)
    assert alone[0, :25].tolist() == pytest.approx([1e-3] * 25)
    with pytest.raises(ValueError, match="spectral"):
        Balancer({"fooling": 1.0}, "spectral")


def test_a_resumed_training_equals_an_uninterrupted_one(speech, tmp_path):
    whole, first = Trainer(tiny(), speech), Trainer(tiny(), speech)
    for _ in range(7):
        whole.train_step()
    for _ in range(5):
        first.train_step()
    torch.manual_seed(99)
    second = Trainer(tiny(), speech)
    first.save(tmp_path / "state.safetensors")
    second.resume(tmp_path / "state.safetensors")
    for _ in range(2):
        second.train_step()
    assert second.step == whole.step == 7
    for name, value in whole.codec.state_dict().items():
        torch.testing.assert_close(second.codec.state_dict()[name], value, msg=name)
    for name, value in whole.average.values.items():
        torch.testing.assert_close(second.average.values[name], value, msg=name)


def test_exported_weights_continue_from_their_step(speech, tmp_path):
    first, second = Trainer(tiny(seed=1), speech), Trainer(tiny(seed=2), speech)
    for _ in range(5):
        first.train_step()
    write_weights(tmp_path, first.weights())
    second.restart(read_weights(tmp_path))
    assert second.step == 5 and second.rate() < first.rate()
    for name, value in second.codec.averaged().items():
        torch.testing.assert_close(value, first.average.values[name], atol=1e-2, rtol=1e-2, msg=name)
    held = held_out(speech, 16, 2)
    assert second.validate(held)["mel"] == pytest.approx(first.validate(held)["mel"], rel=0.05)
    second.train_step()


def test_weights_are_written_in_small_parts(tmp_path, monkeypatch):
    monkeypatch.setattr("lab.training.storage.PART_BYTES", 1000)
    tensors = {f"t{number}": torch.full((150,), float(number)) for number in range(7)}
    files = write_weights(tmp_path, Weights(tiny(), ("_",), 3, tensors))
    assert len(files) == 4 and all(file.stat().st_size < 1500 for file in files[:-1])
    read = read_weights(tmp_path)
    assert read.step == 3 and read.config == tiny()
    assert {name: float(value[0]) for name, value in read.tensors.items()} == {f"t{n}": n for n in range(7)}


def test_unused_codes_are_restarted():
    options = dataclasses.replace(tiny().quantiser, decay=0.5)
    quantiser = ResidualQuantiser(2, 8, 4, options).train()
    quantiser.vectors[:] = 100.0
    quantiser.vectors[:, 0] = 0.0  # all rows choose this one
    quantiser.sums.copy_(quantiser.vectors)
    rows = torch.randn(4, 4, 16, generator=torch.Generator().manual_seed(0))
    for step in range(1, 12):
        quantiser(rows, rows)
        quantiser.restart(step)
    used = quantiser(rows, rows).codes
    assert len(used[:, 0].unique()) == 8 and len(used[:, 1].unique()) == 8


def test_gradients_pass_the_quantiser_and_dropped_groups_add_nothing(codec):
    first, rest = (torch.randn(2, 8, 5, requires_grad=True) for _ in range(2))
    quantised = codec.quantiser(first, rest, torch.tensor([1, 16]))
    assert quantised.rest[0].abs().max() < 1e-6 < quantised.rest[1].abs().max()
    (quantised.first.sum() + quantised.rest.sum()).backward()
    assert torch.equal(first.grad, torch.ones_like(first)) and torch.equal(rest.grad, torch.ones_like(rest))


def test_phones_follow_the_durations_and_voices_are_contiguous(speech):
    assert speech.symbols == (EDGE, "a", "b", "c")
    names = [speech.symbols[index] for index in speech.phones[25::50].tolist()]
    assert names == [EDGE, "b", "c", EDGE, EDGE, "a", "b", EDGE, EDGE, "a", "b", EDGE]
    assert len(speech.phones) == len(speech.audio) // CELL
    unknown = pack_lines([line("x", 200.0, "z")], speech.symbols)
    assert unknown.phones[75] == -1
    known = phone_loss(torch.zeros(1, 4), torch.tensor([[1, -1]]))
    assert float(known) == pytest.approx(np.log(4))


def test_a_steps_batch_is_reproducible_and_its_labels_fit_its_sound(speech):
    options = tiny(gain_db=(0.0, 0.0), silent_start=0.0, crops=((8, 1.0),)).training
    batch, again, other = (sample_batch(speech, options, 0.5, step) for step in (3, 3, 4))
    assert torch.equal(batch.wave, again.wave) and not torch.equal(batch.wave, other.wave)
    assert batch.wave.shape == (4, 8 * FRAME) and batch.phones.shape == (4, 8, 2, CELLS // 2)
    whole = speech.audio.float() / 32768
    windows = whole.unfold(0, 8 * FRAME, CELL)
    start = int((windows - batch.wave[0]).abs().sum(1).argmin())
    assert torch.equal(speech.phones[start : start + 8 * CELLS].long(), batch.phones[0].flatten())
    silent = sample_batch(speech, dataclasses.replace(options, silent_start=1.0), 0.0, 3)
    assert silent.wave[:, :FRAME].abs().max() == 0 and silent.wave[:, 4 * FRAME :].abs().max() > 0
    assert (silent.phones[:, 0] == 0).all() and (silent.groups == configs.GROUPS).all()


def test_the_spectral_loss_is_zero_for_equal_tones_and_positive_for_others():
    losses = SpectralLoss(configs.load_config().losses)
    seconds = torch.arange(12000) / configs.SAMPLE_RATE
    tone = 0.5 * torch.sin(2 * torch.pi * 440 * seconds)[None]
    other = 0.5 * torch.sin(2 * torch.pi * 2000 * seconds)[None]
    assert magnitude(tone, 1024, losses.window_1024).max() == pytest.approx(0.5, rel=0.2)
    assert all(float(value) == 0 for value in losses(tone, tone).values())
    assert all(float(value) > 0.3 for value in losses(tone, other).values())


@pytest.mark.gpu
def test_captured_updates_equal_uncaptured_ones(speech):
    plain, fast = (Trainer(tiny(), speech.to("cuda"), capture=capture) for capture in (False, True))
    compared = False
    for _ in range(30):
        ours, theirs = fast.train_step(), plain.train_step()
        if fast.replayer.captured and not compared:
            # Later steps tell nothing: sums in another order make two trainings part within some twenty steps.
            assert float(ours["mel"]) == pytest.approx(float(theirs["mel"]), rel=0.05)
            compared = True
    assert compared and np.isfinite(float(ours["mel"]))


def test_the_average_is_in_place_only_inside_its_context():
    value = torch.zeros(2)
    average = Average({"x": value}, 0.9)
    value += 10
    average.update(1000)
    with average.in_place():
        assert value[0] == pytest.approx(1.0)
    assert value[0] == 10


@pytest.mark.slow
def test_the_command_trains_logs_saves_and_resumes(tmp_path):
    lines = [line("a", 200.0), line("b", 300.0)]
    for split in ("train", "dev"):
        write_shard(tmp_path / f"{split}-00-000.safetensors", lines, configs.SAMPLE_RATE)
    slice_ = command.Slice(tmp_path, tmp_path / "out", 5, False)
    slice_.out.mkdir()
    config = tiny(total_steps=4, validate_every=4)
    command.run(config, slice_, ALONE)
    rows = [
        json.loads(row) for row in Path(slice_.out / "curve.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [row.get("step", row.get("held out")) for row in rows] == [2, 4, 4]
    assert len(rows[0]["used"]) == 16 and "mel of 4" in rows[2]
    with pytest.raises(ValueError, match="--resume"):
        command.run(config, slice_, ALONE)
    longer = dataclasses.replace(config, training=dataclasses.replace(config.training, total_steps=6))
    command.run(longer, dataclasses.replace(slice_, resume=True), ALONE)
    assert read_weights(slice_.out / "weights").step == 6
    trainer = command.prepare(longer, dataclasses.replace(slice_, resume=True), ALONE)
    timed = list(time_steps(trainer, warm=1, timed=1))
    assert len(timed) == 4 and "16 frames, with discriminators" in timed[-1]
    with pytest.raises(ValueError, match="no training"):
        command.run(config, dataclasses.replace(slice_, out=tmp_path / "none", resume=True), ALONE)


def test_a_config_with_a_base_contains_only_differences():
    base, gentle = configs.load_config(), configs.load_config(configs.DEFAULT.parent / "codec_decoder.json")
    assert gentle.shape == base.shape and gentle.losses == base.losses
    assert gentle.training.decoder_only and not base.training.decoder_only
    assert gentle.training.batch_frames == base.training.batch_frames


def test_bad_shapes_and_keys_are_named():
    values = configs.load_config().as_json()
    assert configs.config_from(values) == configs.load_config()
    with pytest.raises(ValueError, match="power of 2"):
        dataclasses.replace(configs.load_config().shape, codebook=500)
    with pytest.raises(ValueError, match="unknown"):
        configs.config_from({**values, "losses": {**values["losses"], "unknown": 1}})
