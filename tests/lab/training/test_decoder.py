"""Training the shipped codec's decoder: windows decode like whole lines, and an interruption changes nothing."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from lab.training.branches import IN_ORDER
from lab.training.codec.config import GROUPS, SAMPLE_RATE, SAMPLES_PER_FRAME
from lab.training.codec.data import pack_lines
from lab.training.codec.discriminators import Discriminators, MagnitudeDiscriminator
from lab.training.codec.evaluate import encode as encode_wave
from lab.training.codec.evaluate import load_tokenizer
from lab.training.codec.export import export as export_new
from lab.training.codec.trainer import Trainer as CodecTrainer
from lab.training.corpus.shards import Utterance
from lab.training.decoder import config as configs
from lab.training.decoder import train as command
from lab.training.decoder.batches import held_out, judged_from, judged_part, places_of, sample_batch
from lab.training.decoder.checkpoint import read_weights, write_weights
from lab.training.decoder.choose import choose
from lab.training.decoder.compare import differences, periodic
from lab.training.decoder.export import MODEL, export
from lab.training.decoder.network import WindowDecoder, learns, load_codec
from lab.training.decoder.report import STATE, Reporter
from lab.training.decoder.stretches import JoinOptions, Stretches, join, load, make_stretches, save
from lab.training.decoder.trainer import Trainer
from lab.training.periodicity import periodicity, pitch_of
from lab.training.storage import write_wav
from tests.lab.training.codec.tiny_codec import line
from tests.lab.training.codec.tiny_codec import tiny as tiny_codec

pytestmark = pytest.mark.slow  # this training is finished: --all runs it

JOIN = JoinOptions(seconds=4.0, batch_seconds=20.0)


def tiny(base: configs.Config | None = None, **training: object) -> configs.Config:
    """The real options on few small windows, which cover all that a judged sample depends on."""
    config = base or configs.load_config()
    plan = {"alone_steps": 2, "warmup_steps": 2, "log_every": 2, "validate_every": 4, **training}
    return dataclasses.replace(
        config,
        windows=configs.Windows(count=3, frames=24, decoded=11, judged=7680, cold=0.3, dropout=0.2),
        adversarial=dataclasses.replace(
            config.adversarial, segment=7680, periods=(2, 3), period_channels=(4, 8), stft_channels=4
        ),
        training=dataclasses.replace(config.training, **plan),
    )


def lines() -> list[Utterance]:
    return [line("b", 200.0), line("a", 300.0), line("b", 250.0), line("a", 220.0), line("b", 180.0)]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory) -> Path:
    """A speech tokenizer with random weights in the shipped format."""
    trainer = CodecTrainer(tiny_codec(), pack_lines(lines()))
    trainer.fill_codebooks()
    return export_new(trainer.codec, tmp_path_factory.mktemp("shipped"))


@pytest.fixture(scope="module")
def speech(shipped) -> Stretches:
    return make_stretches(lines(), load_codec(shipped), JOIN)


def trainer_of(shipped: Path, speech: Stretches, config: configs.Config | None = None) -> Trainer:
    config = config or tiny()
    return Trainer(config, WindowDecoder(load_codec(shipped), config.windows.decoded), speech)


def test_the_whole_decoding_is_upstreams(shipped, speech):
    codec = load_codec(shipped)
    codes = speech.codes[:30][None].long()
    with torch.no_grad():
        ours = WindowDecoder(codec, 11).whole(codes)
        theirs = codec.decoder(codes.transpose(1, 2))[:, 0]
    torch.testing.assert_close(ours.clamp(-1, 1), theirs, atol=1e-5, rtol=1e-4)
    assert theirs.std() > 1e-5


def test_windows_decode_judged_samples_like_the_whole_line(shipped, speech):
    options = dataclasses.replace(tiny().windows, count=8, frames=40, decoded=14, dropout=0.0)
    network = WindowDecoder(load_codec(shipped), options.decoded)
    last = int(speech.starts[1])
    one = Stretches(speech.audio[: last * SAMPLES_PER_FRAME], speech.codes[:last], torch.tensor([0, last]))
    places = places_of(one.starts, options.frames)
    with torch.no_grad():
        whole = network.whole(one.codes[None].long())[0]
        batch = sample_batch(one, places, options, 0, 3)
        judged = judged_part(network(batch.codes, batch.offsets, batch.groups), batch.offsets, options)
    assert (batch.offsets == 0).any() and (batch.offsets == options.frames - options.decoded).any()
    recorded = one.audio.float() / 32768
    for row in range(options.count):
        first = batch.wave[row, :500]  # enough to find where it is from
        at = int((recorded.unfold(0, len(first), 1) - first).abs().sum(1).argmin())
        wanted = whole[at : at + options.judged]
        assert float((judged[row] - wanted).norm() / wanted.norm()) < 1e-3, row


def test_a_window_from_a_stretchs_start_judges_its_first_samples():
    options = tiny().windows
    assert judged_from(torch.tensor([0, 13]), options).tolist() == [0, 11 * SAMPLES_PER_FRAME - 7680]
    wave = torch.arange(11 * SAMPLES_PER_FRAME).expand(2, -1)
    cut = judged_part(wave, torch.tensor([0, 13]), options)
    assert cut[:, 0].tolist() == [0, 11 * SAMPLES_PER_FRAME - 7680] and cut.shape == (2, 7680)


def test_a_steps_batch_is_reproducible_and_stays_within_its_stretch(speech):
    options = dataclasses.replace(tiny().windows, count=64)
    places = places_of(speech.starts, options.frames)
    one, again, other = (sample_batch(speech, places, options, 1, step) for step in (5, 5, 6))
    assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
    assert not torch.equal(one.wave, other.wave)
    assert set(places.first.tolist()) <= set(speech.starts.tolist())
    for start in places.any.tolist():
        stretch = int((speech.starts <= start).sum())
        assert start + options.frames <= int(speech.starts[stretch])
    with pytest.raises(ValueError, match="24 frames"):
        places_of(torch.tensor([0, 5]), 24)


def test_lines_are_joined_within_a_voice_and_padded_to_whole_frames():
    pieces = join(lines(), dataclasses.replace(JOIN, silent=1.0, gain_db=(-6.0, -6.0)))
    assert len(pieces) == 3 and all(len(piece) % SAMPLES_PER_FRAME == 0 for piece in pieces)
    assert all(not piece[:SAMPLES_PER_FRAME].any() for piece in pieces)
    loudest = max(int(np.abs(one.audio.astype(np.int32)).max()) for one in lines())
    assert max(int(np.abs(piece).max()) for piece in pieces) == pytest.approx(loudest / 2, rel=0.01)
    with pytest.raises(ValueError, match="no lines"):
        join([], JOIN)


def test_codes_of_a_stretch_are_the_shipped_codecs(shipped, speech, tmp_path):
    save(tmp_path / "train.safetensors", speech)
    read = load(tmp_path / "train.safetensors")
    first, second = int(read.starts[1]), int(read.starts[2])
    wave = read.audio[first * SAMPLES_PER_FRAME : second * SAMPLES_PER_FRAME].float() / 32768
    alone = encode_wave(load_tokenizer(shipped), wave.numpy())
    assert (read.codes[first:second].long() == alone).float().mean() > 0.99  # except for ties
    assert len(read.codes.unique()) > 16
    with pytest.raises(ValueError, match="stretches"):
        load(tmp_path / "dev.safetensors")


def test_only_the_decoder_learns_and_first_only_its_discriminators(shipped, speech):
    trainer = trainer_of(shipped, speech)
    before = {name: value.clone() for name, value in trainer.network.codec.state_dict().items()}
    opponents = {name: value.clone() for name, value in trainer.discriminators.state_dict().items()}
    for _ in range(2):
        assert "mel" not in trainer.train_step()
    assert all(torch.equal(before[name], value) for name, value in trainer.network.codec.state_dict().items())
    assert any(
        not torch.equal(opponents[name], value) for name, value in trainer.discriminators.state_dict().items()
    )
    for _ in range(2):
        found = trainer.train_step()
    assert {"mel", "fooling", "features", "telling", "gradient"} <= found.keys()
    after = trainer.network.codec.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all(learns(name) for name in changed)
    assert changed >= {name for name in trainer.network.learnt() if name.endswith("weight")}


def test_gradients_have_the_memory_layout_of_their_parameters(shipped, speech):
    """torch's fused optimizer (CUDA) accepts no other layout; on a CPU nothing would fail."""
    trainer = trainer_of(shipped, speech)
    for _ in range(4):
        trainer.train_step()
    for optimizer in (trainer.updater.optimizer, trainer.updater.opponent):
        for parameter, state in optimizer.state.items():
            assert parameter.grad.stride() == state["exp_avg"].stride() == parameter.stride()
        assert optimizer.state


def test_features_are_matched_where_no_phase_is_heard(speech):
    wanted = speech.audio[:7680].float()[None] / 32768
    spectrum = torch.fft.rfft(wanted)
    made = torch.fft.irfft(spectrum * torch.exp(torch.tensor(2.0j)), 7680)  # every phase turned by 2 radians
    options = tiny().adversarial
    blind = Discriminators(options)(wanted, made, IN_ORDER)
    hearing = Discriminators(dataclasses.replace(options, phase_features=True))(wanted, made, IN_ORDER)
    assert blind.features.item() < 0.3 * hearing.features.item()
    one = MagnitudeDiscriminator(512, 4, (0.0, 0.5, 1.0))
    assert one.cuts == [(0, 128), (128, 257)] and len(one(wanted)[1]) == 8
    with pytest.raises(ValueError, match="magnitude_sizes"):
        dataclasses.replace(options, magnitude_sizes=())
    with pytest.raises(ValueError, match="bands"):
        dataclasses.replace(options, bands=(0.5, 1.0))


def test_harmonics_are_periodic_and_noise_is_not():
    seconds = torch.arange(2 * SAMPLE_RATE) / SAMPLE_RATE
    tone = sum(torch.sin(2 * torch.pi * 125 * number * seconds) / number for number in range(1, 40))
    noise = torch.randn(len(seconds), generator=torch.Generator().manual_seed(0))
    low = sum(torch.sin(2 * torch.pi * 125 * number * seconds) / number for number in range(1, 8))
    pitch = pitch_of(tone[None])
    assert pitch.voiced.float().mean() > 0.9
    assert (pitch.lags[pitch.voiced] - SAMPLE_RATE / 125).abs().max() <= 1
    assert min(periodicity(tone[None], pitch).values()) > 0.95
    hoarse = periodicity((low + 0.3 * noise)[None], pitch)
    assert len(hoarse) == 2 and max(hoarse.values()) < 0.25
    assert not pitch_of(noise[None]).voiced.any()
    assert periodicity(noise[None], pitch_of(noise[None]))["periodicity 1-2 kHz"] == 0


def test_a_resumed_training_equals_an_uninterrupted_one(shipped, speech, tmp_path):
    whole, first, second = (trainer_of(shipped, speech) for _ in range(3))
    for _ in range(6):
        whole.train_step()
    for _ in range(4):
        first.train_step()
    first.save(tmp_path / STATE)
    second.resume(tmp_path / STATE)
    for _ in range(2):
        second.train_step()
    assert second.step == whole.step == 6
    for name, value in whole.network.learnt().items():
        torch.testing.assert_close(second.network.learnt()[name], value, msg=name)
    for name, value in whole.average.values.items():
        torch.testing.assert_close(second.average.values[name], value, msg=name)


def test_another_machine_goes_on_from_the_weights_and_teaches_discriminators_first(shipped, speech, tmp_path):
    first, second = (trainer_of(shipped, speech) for _ in range(2))
    for _ in range(4):
        first.train_step()
    write_weights(tmp_path, first.weights())
    second.start_from(read_weights(tmp_path))
    assert second.step == 4 and second.alone
    for name, value in second.network.learnt().items():
        torch.testing.assert_close(value.detach(), first.average.values[name], atol=1e-2, rtol=1e-2, msg=name)
    for name, value in first.discriminators.state_dict().items():
        torch.testing.assert_close(second.discriminators.state_dict()[name], value, atol=1e-2, rtol=1e-2)
    for _ in range(2):
        second.train_step()
    assert not second.alone and "mel" in second.train_step()


def test_the_rate_rises_stays_and_falls_at_the_end(shipped, speech):
    trainer = trainer_of(shipped, speech, tiny(alone_steps=10, warmup_steps=4))
    rates = []
    for trainer.step in (0, 3, 9, 10, 13, 5000):
        rates.append(trainer.rate())
    assert rates == pytest.approx([1, 1, 1, 0.25, 1, 1])
    trainer.decayed = 1.0
    assert trainer.rate() == pytest.approx(trainer.config.training.final_rate)


def test_the_export_changes_the_decoder_alone_and_speaks_in_upstream(shipped, speech, tmp_path):
    trainer = trainer_of(shipped, speech)
    for _ in range(4):
        trainer.train_step()
    write_weights(tmp_path / "weights", trainer.weights())
    out = export(shipped, read_weights(tmp_path / "weights").tensors, tmp_path / "out")
    before, after = load_file(shipped / MODEL), load_file(out / MODEL)
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all(learns(name) for name in changed)
    tokenizer, old = load_tokenizer(out), load_tokenizer(shipped)
    wave = speech.audio[: 40 * SAMPLES_PER_FRAME].float().numpy() / 32768
    codes = encode_wave(tokenizer, wave)
    assert torch.equal(codes, encode_wave(old, wave))
    (made,), rate = tokenizer.decode({"audio_codes": codes})
    (earlier,), _ = old.decode({"audio_codes": codes})
    assert rate == SAMPLE_RATE and len(made) == 40 * SAMPLES_PER_FRAME
    trainer.network.load(read_weights(tmp_path / "weights").tensors)
    with torch.no_grad():
        ours = trainer.network.whole(codes[None])[0].clamp(-1, 1).numpy()
    np.testing.assert_allclose(made, ours, atol=1e-3)
    assert np.abs(made - earlier).max() > 0
    with pytest.raises(ValueError, match="another folder"):
        export(shipped, {}, shipped)
    with pytest.raises(ValueError, match="no decoder"):
        export(shipped, {}, tmp_path / "none")


def test_the_command_trains_validates_saves_and_resumes(shipped, speech, tmp_path):
    for split in ("train", "dev"):
        save(tmp_path / f"{split}.safetensors", speech)
    slice_ = command.Slice(shipped, tmp_path, tmp_path / "out", minutes=0.0)
    slice_.out.mkdir()
    trainer = command.prepare(tiny(), slice_, speech)
    reporter = Reporter(trainer, speech, slice_.out)
    for _ in range(6):
        reporter.after(trainer.train_step())
    reporter.save()
    rows = [json.loads(row) for row in (slice_.out / "curve.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row.get("step") for row in rows] == [None, 2, 4, None, 6]
    assert {"mel", "periodicity 1-2 kHz", "periodicity 2-4 kHz"} <= rows[3].keys() and rows[3][
        "held out"
    ] == 4
    with pytest.raises(ValueError, match="--resume"):
        command.run(tiny(), slice_)
    command.run(tiny(), dataclasses.replace(slice_, resume=True))
    assert read_weights(slice_.out / "weights").step == 6
    with pytest.raises(ValueError, match="no training"):
        command.run(tiny(), dataclasses.replace(slice_, out=tmp_path / "none", resume=True))
    command.rehearse(tiny(), dataclasses.replace(slice_, out=tmp_path / "none"), 1)


def test_both_configs_are_read_and_wrong_keys_are_named():
    new, old = (
        configs.load_config(configs.DEFAULT.with_name(f"{name}.json"))
        for name in ("decoder", "decoder_phase")
    )
    assert not new.adversarial.phase_features and old.adversarial.phase_features
    assert new.windows == old.windows and configs.config_from(new.as_json()) == new
    with pytest.raises(ValueError, match="unknown"):
        configs.config_from({**new.as_json(), "windows": {"unknown": 1}})
    with pytest.raises(ValueError, match="within"):
        dataclasses.replace(new.windows, judged=30000)
    codes, wave = held_out(
        Stretches(torch.zeros(30 * 1920, dtype=torch.int16), torch.zeros(30, GROUPS), torch.tensor([0, 30])),
        24,
        5,
    )
    assert codes.shape == (1, 24, GROUPS) and wave.shape == (1, 24 * SAMPLES_PER_FRAME)


def test_the_most_periodic_training_wins_unless_its_mel_is_too_far(tmp_path):
    for name, mel, found in (("a", 0.40, 0.30), ("b", 0.42, 0.33), ("c", 0.44, 0.40)):
        (tmp_path / name).mkdir()
        rows = [{"step": 1, "mel": 9.0}, {"held out": 2, "mel": mel, "periodicity 1-2 kHz": found}]
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        (tmp_path / name / "curve.jsonl").write_text(text, encoding="utf-8")
    assert choose([tmp_path / name for name in "abc"]) == tmp_path / "b"
    with pytest.raises(ValueError, match="no validation"):
        choose([tmp_path / "d"])


def test_judged_lines_are_compared_in_pairs(tmp_path):
    def judged(score: float, errors: int, path: str = "a/1.wav") -> dict[str, object]:
        heard = {"word_errors": errors, "words": 4}
        return {
            "clip": {"path": path},
            "heard": heard,
            "opinion": {"distillmos": score},
            "similarity_to_original": None,
        }

    found = differences([judged(3.0, 1), judged(3.5, 0)], [judged(3.25, 0), judged(3.75, 0)])
    assert found.keys() == {"distillmos", "word errors"}
    assert found["distillmos"].value == pytest.approx(0.25) and found["distillmos"].low == pytest.approx(0.25)
    assert found["word errors"].value == pytest.approx(-0.125)
    with pytest.raises(ValueError, match="not the same"):
        differences([judged(3.0, 0)], [judged(3.0, 0, "b/1.wav")])
    seconds = np.arange(40_000) / SAMPLE_RATE
    tone = sum(np.sin(2 * np.pi * 125 * number * seconds) / number for number in range(1, 40))
    noise = np.random.default_rng(0).standard_normal(len(tone))
    for name, wave in (("original", tone), ("coded", noise)):
        write_wav(tmp_path / name / "a/1.wav", 0.1 * wave, SAMPLE_RATE)
    assert periodic(tmp_path / "original", tmp_path / "original", ["a/1.wav"])["periodicity 1-2 kHz"] > 0.9
    assert periodic(tmp_path / "original", tmp_path / "coded", ["a/1.wav"])["periodicity 1-2 kHz"] < 0.3
