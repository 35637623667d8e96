"""The talker's training: its network against upstream's, its layouts against the engine's, and end to end."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.checkpoint.qwen_tts import default_rope_registered, import_qwen_tts
from qwen3_tts_morph.morph.decode.eager import decode
from qwen3_tts_morph.morph.decode.guard import Guard
from qwen3_tts_morph.morph.decode.predictor import Predictor
from qwen3_tts_morph.morph.decode.talker import Talker
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import (
    PREDICTED_GROUPS,
    GenerateOptions,
    LoadOptions,
    Sampling,
    TokenSampling,
)
from qwen3_tts_morph.morph.voice.create import clone_voice, preset_voice
from qwen3_tts_morph.morph.voice.prompt import Prompt, build_prompt
from qwen3_tts_morph.morph.voice.voice import Voice
from safetensors.torch import load_file

from lab.random_checkpoint import write_checkpoint
from lab.training.export import ExportOptions, export
from lab.training.parallel import World
from lab.training.talker import batches
from lab.training.talker.batches import Corpus, Line, Lines, add_noise
from lab.training.talker.checkpoint import load_weights
from lab.training.talker.codes import (
    ROUGH,
    STYLES,
    CodeWriter,
    Utterance,
    load_codes,
    pack_mel,
    unpack_mel,
    write_styles,
)
from lab.training.talker.config import Mix, load_config
from lab.training.talker.layout import Ids
from lab.training.talker.loop import Trainer
from lab.training.talker.network import Network
from lab.training.talker.published import adopt, publish
from lab.training.talker.speaker import build_encoder
from lab.training.talker.tokenizer import TOKENIZER_FILES, TextTokens
from lab.training.talker.train import build_trainer, prepare, train
from tests.lab.training.talker.tiny_talker import (
    CODEBOOK,
    TEXTS,
    VOICES,
    recording,
    tiny_run,
    write_codes,
    write_config,
)
from tests.morph.decoding import line_requests, one_stream

pytestmark = pytest.mark.slow  # this training is finished: --all runs it

STEPS = 20
GREEDY = Sampling(TokenSampling(do_sample=False), TokenSampling(do_sample=False), repetition_penalty=1.0)


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained talker, its folder and the checkpoint exported from it."""

    trainer: Trainer
    folder: Path
    checkpoint: Path
    model: Model


def run_training(root: Path, steps: int, resume: bool = False) -> Trainer:
    return train(World(torch.device("cpu")), tiny_run(root, steps, resume))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A talker with little training: its weights differ from the initial ones."""
    return make_trained(tmp_path_factory.mktemp("talker"), steps=STEPS)


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A talker that has memorised its sentences."""
    return make_trained(tmp_path_factory.mktemp("learnt"), steps=600)


def make_trained(root: Path, steps: int) -> Trained:
    write_codes(root / "codes")
    config = load_config(write_config(root / "talker.json"))
    trainer = run_training(root, steps)
    codec = write_checkpoint(root / "random") / "speech_tokenizer"
    options = ExportOptions(config.presets, config.sampling, dtype=torch.float32)
    export(root / "talker", codec, root / "voice", options)
    model = load_model(root / "voice", LoadOptions(precision="fp32"))
    return Trained(trainer, root, root / "voice", model)


def clone(trained: Trained, number: int, mode: str = "x_vector") -> Voice:
    voice = clone_voice(trained.model, recording(number % 2), 24000)
    if mode == "x_vector":
        return voice
    other = (number + 2) % len(TEXTS)
    codes = load_codes(trained.folder / "codes")
    reference = torch.from_numpy(codes.utterance_codes(other)).long()
    return dataclasses.replace(voice, kind="icl", ref_codes=reference, transcript=TEXTS[other])


def voice_of(trained: Trained, number: int, layout: str) -> Voice:
    if layout == "preset":
        return preset_voice(trained.model, ("first", "second")[number % 2])
    return clone(trained, number, layout)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["x_vector", "preset", "icl"])
@pytest.mark.parametrize("language", ["auto", "english"])
def test_the_engine_speaks_memorised_sentences(learnt: Trained, layout: str, language: str) -> None:
    codes = load_codes(learnt.folder / "codes")
    prompts = [
        build_prompt(learnt.model, text, voice_of(learnt, number, layout), language)
        for number, text in enumerate(TEXTS)
    ]
    guards = [Guard(60, detect_loops=False) for _ in prompts]
    spoken = decode(
        learnt.model,
        line_requests(prompts, guards),
        GenerateOptions(PREDICTED_GROUPS, GREEDY),
        experiment=one_stream(learnt.model),
    )
    for number, line in enumerate(spoken):
        assert line.ended == "eos"
        assert line.codes.tolist() == codes.utterance_codes(number).tolist()


def engine_logits(model: Model, prompt: Prompt, codes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Group 0's logits ``[F + 1, V]`` and groups 1-15's ``[F, 15, V]`` of given frames, computed by the engine."""
    with torch.inference_mode():
        talker = Talker(model, [prompt])
        hidden, logits = talker.prefill()
        states, found = [hidden], [logits]
        for frame in codes:
            hidden, logits = talker.step(frame[None])
            states.append(hidden)
            found.append(logits)
        tables = model.code_tables()
        first = model.talker.get_input_embeddings()(codes[:, :1])
        rest = tables[torch.arange(14), codes[:, 1:15]]
        predictor = Predictor(model.talker.code_predictor)
        inner = predictor.teacher_force(torch.cat(states[:-1]), torch.cat((first, rest), dim=1))
        return torch.cat(found), torch.einsum("gvh,ngh->ngv", predictor.heads, inner)


@pytest.mark.parametrize("layout", ["x_vector", "preset", "icl"])
def test_trainer_and_engine_compute_the_same_logits(trained: Trained, layout: str) -> None:
    weights, about, shape = load_weights(trained.folder / "talker" / "weights")
    network, encoder = Network(shape), build_encoder(shape)
    adopt(network, encoder, {name: tensor.float() for name, tensor in weights.items()})
    codes = load_codes(trained.folder / "codes")
    number, other = 1, 3
    config = load_config(trained.folder / "talker.json")
    tokens = TextTokens(trained.folder / "talker" / "tokenizer")
    corpus = Corpus(codes, tokens, Ids.of(shape, tokens), config.mix)
    reference = (other,) if layout == "icl" else ()
    line = Line((number,), reference, whole=layout == "preset", tag=True)
    laid = corpus.lay_out(np.random.default_rng(0), line, None)
    voice = voice_of(trained, number, layout)
    with torch.inference_mode():
        speaker = voice.speaker_embedding
        if speaker is None:
            speaker = weights["voices"][about["voices"].index(VOICES[number])].float()
        inputs = network.embed(
            torch.from_numpy(laid.text).long()[None],
            torch.from_numpy(laid.codes).long()[None],
            torch.tensor([laid.speaker_at]),
            speaker[None],
        )
        hidden = network.talker(inputs)[0][0, laid.first :]
        first = network.first_head(hidden)
        frames = torch.from_numpy(codes.utterance_codes(number)).long()
        rest = network.predict(hidden[:-1], frames[:, :15])
    prompt = build_prompt(trained.model, TEXTS[number], voice, "english")
    expected = engine_logits(trained.model, prompt, frames)
    assert torch.allclose(first, expected[0], atol=1e-3)
    assert torch.allclose(rest, expected[1], atol=1e-3)


def test_training_resumes_where_it_stopped(trained: Trained, tmp_path: Path) -> None:
    write_codes(tmp_path / "codes")
    write_config(tmp_path / "talker.json")
    first = run_training(tmp_path, steps=3)
    second = run_training(tmp_path, steps=5, resume=True)
    assert (first.step, second.step) == (3, 5)
    assert second.seconds > first.seconds
    again = run_training(tmp_path, steps=5, resume=True)  # it is at step 5 already, and runs one more
    assert again.step == 6
    momentum = [state["exp_avg"] for state in second.updater.optimizer.state.values()]
    assert all(float(state["step"]) == 6 for state in again.updater.optimizer.state.values())
    assert any(value.abs().max() > 0 for value in momentum)


def test_a_new_training_starts_from_the_weights_of_another(tmp_path: Path) -> None:
    write_codes(tmp_path / "codes")
    write_config(tmp_path / "talker.json")
    first = run_training(tmp_path, steps=30)
    again = dataclasses.replace(
        tiny_run(tmp_path, steps=1), start=tmp_path / "talker", out=tmp_path / "second"
    )
    (tmp_path / "talker" / "state.safetensors").unlink()  # only weights and tokenizer are copied
    second = train(World(torch.device("cpu")), again)
    assert second.step == 1
    wanted, found = (trainer.average.values for trainer in (first, second))
    name = "network.first_head.weight"
    moved = (found[name].cpu() - wanted[name].cpu()).norm() / wanted[name].norm()
    assert moved < 0.02, "bf16 and one step away"
    third = train(World(torch.device("cpu")), dataclasses.replace(again, resume=True, most_steps=3))
    assert third.step == 3, "with both it continues as soon as there is a state"


def begin_from(trained: Trained, checkpoint: Path, out: Path) -> Trainer:
    """A training on the talker's codes that starts from a checkpoint, before its first step."""
    run = dataclasses.replace(tiny_run(trained.folder, steps=0), start=checkpoint, out=out)
    codes, world = load_codes(run.codes), World(torch.device("cpu"))
    config, _ = prepare(run, load_config(run.config), codes, world)
    return build_trainer(run, config, codes, world)


def test_a_checkpoint_to_start_from_is_exported_again_as_it_was(trained: Trained, tmp_path: Path) -> None:
    begin_from(trained, trained.checkpoint, tmp_path / "again").save()
    options = ExportOptions({}, {}, dtype=torch.float32)  # without presets: their rows stay as they are
    export(tmp_path / "again", trained.checkpoint / "speech_tokenizer", tmp_path / "voice", options)
    found, wanted = (
        load_file(folder / "model.safetensors") for folder in (tmp_path / "voice", trained.checkpoint)
    )
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    for name in TOKENIZER_FILES:
        assert (tmp_path / "voice" / name).read_bytes() == (trained.checkpoint / name).read_bytes()


def test_a_checkpoint_without_speaker_encoder_is_refused(trained: Trained, tmp_path: Path) -> None:
    codec = trained.checkpoint / "speech_tokenizer"
    options = ExportOptions({}, {}, kind="custom_voice")
    export(trained.folder / "talker", codec, tmp_path / "custom", options)
    with pytest.raises(ValueError, match="Base"):
        begin_from(trained, tmp_path / "custom", tmp_path / "out")


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    write_codes(tmp_path / "codes")
    path = write_config(tmp_path / "talker.json")
    run_training(tmp_path, steps=1)
    values = json.loads(path.read_text(encoding="utf-8"))
    values["shape"]["talker"]["inner"] *= 2
    path.write_text(json.dumps(values), encoding="utf-8")
    other = dataclasses.replace(
        tiny_run(tmp_path, steps=1), start=tmp_path / "talker", out=tmp_path / "second"
    )
    with pytest.raises(ValueError, match="another shape"):
        train(World(torch.device("cpu")), other)


@pytest.mark.slow
def test_upstream_loads_one_folder_as_both_kinds(learnt: Trained) -> None:
    with default_rope_registered():  # transformers 5 lacks it
        model = import_qwen_tts().Qwen3TTSModel.from_pretrained(
            str(learnt.checkpoint), tts_model_type="custom_voice"
        )
    waveforms, rate = model.generate_custom_voice(
        text=TEXTS[0], speaker="first", language="english", do_sample=False, subtalker_dosample=False
    )
    frames = load_codes(learnt.folder / "codes").frames()[0]
    assert rate == 24000
    assert len(waveforms[0]) == frames * 1920


def test_export_refuses_a_codec_of_another_codebook(trained: Trained, tmp_path: Path) -> None:
    codec = tmp_path / "codec"
    codec.mkdir()
    (codec / "config.json").write_text(json.dumps({"decoder_config": {"codebook_size": 2048}}))
    with pytest.raises(ValueError, match="2048"):
        export(trained.folder / "talker", codec, tmp_path / "out", ExportOptions({}, {}))


def test_an_export_has_nothing_of_the_heads_that_only_training_needs(trained: Trained) -> None:
    learner = trained.trainer.learner
    assert learner.phone_head is not None and learner.style_head is not None
    exported = publish(learner.network, learner.encoder).keys()
    assert load_file(trained.checkpoint / "model.safetensors").keys() == exported
    assert load_weights(trained.folder / "talker" / "weights")[0].keys() == exported | {"voices"}


def test_codes_without_styles_train_without_them(trained: Trained, tmp_path: Path) -> None:
    shutil.copytree(trained.folder / "codes", tmp_path / "codes")
    (tmp_path / "codes" / STYLES).unlink()
    write_config(tmp_path / "talker.json")
    trainer = run_training(tmp_path, steps=1)
    assert trainer.learner.style_head is None and trainer.codes.styles.shape == (len(VOICES), 0)
    write_styles(tmp_path / "codes", {VOICES[0]: np.zeros(3)})
    with pytest.raises(ValueError, match=VOICES[1]):
        load_codes(tmp_path / "codes")


def test_weights_are_exported_in_small_files(trained: Trained) -> None:
    folder = trained.folder / "talker" / "weights"
    weights, about, shape = load_weights(folder)
    assert about["step"] == STEPS
    assert shape == trained.trainer.config.shape
    assert len(weights["voices"]) == len(VOICES)
    (folder / "part-0.safetensors").rename(folder / "away")
    with pytest.raises(ValueError, match="0 of 1"):
        load_weights(folder)
    (folder / "away").rename(folder / "part-0.safetensors")


def test_text_tokens_equal_the_checkpoints(trained: Trained) -> None:
    tokens = TextTokens(trained.checkpoint)
    text = "An assistant's user-friendly 3.5 naïve\n line…"
    ids = trained.model.texts.line(text)
    assert ids[:3] == tokens.role()
    assert ids[3:-5] == tokens.encode([text])[0]
    assert trained.model.config.talker_config.text_vocab_size == tokens.size


def test_respelling_without_dropout_is_the_plain_tokenization(trained: Trained) -> None:
    tokens = TextTokens(trained.checkpoint)
    assert tokens.respell(TEXTS, 0.0, seed=1) == tokens.encode(TEXTS)
    drawn = tokens.respell(TEXTS, 0.5, seed=1)
    assert drawn == tokens.respell(TEXTS, 0.5, seed=1) != tokens.encode(TEXTS)
    assert [tokens.plain.decode(ids) for ids in drawn] == list(TEXTS)


def test_joined_sentences_are_tokenized_as_one_text(trained: Trained) -> None:
    codes = load_codes(trained.folder / "codes")
    tokens = TextTokens(trained.checkpoint)
    config = load_config(trained.folder / "talker.json")
    corpus = Corpus(codes, tokens, Ids.of(trained.trainer.config.shape, tokens), config.mix)
    joined = corpus.text_of(np.random.default_rng(0), (0, 2), plain=True)
    assert joined == tokens.encode([f"{TEXTS[0]} {TEXTS[2]}"])[0]


def test_batches_have_few_shapes_and_refer_to_the_voice(trained: Trained) -> None:
    trainer = trained.trainer
    codes = trainer.codes
    tokens = TextTokens(trained.checkpoint)
    mix = dataclasses.replace(
        load_config(trained.folder / "talker.json").mix,
        positions=160,
        lengths=(40, 80),
        join=0.5,
        code_noise=0.5,
        tail_noise=0.5,
        voice_noise=0.5,
    )
    corpus = Corpus(codes, tokens, Ids.of(trainer.config.shape, tokens), mix)
    shapes = set()
    for _, batch in zip(range(40), Lines(corpus, "train", seed=1), strict=False):
        shapes.add((batch.lines, batch.length, len(batch.flat)))
        fields = batch.fields()
        rows = fields.mel_rows(mix.reference_frames[1]).numpy()
        voice_of_row = np.searchsorted(codes.mel_starts, rows, side="right") - 1
        assert (codes.speakers[voice_of_row] == fields.speaker.numpy()[:, None]).all()
        frames = fields.targets.flatten(0, 1)[fields.picked]
        assert (frames >= 0).all() and (frames < CODEBOOK).all()
        ends = fields.targets[..., 0] == corpus.ids.eos
        assert (ends.sum(1) == 1).all()
        counts = [(fields.targets[..., 0] >= 0).sum(), (fields.phones >= 0).sum(), batch.lines]
        assert batch.known().tolist() == counts
    assert {shape[:2] for shape in shapes} == {(4, 40), (2, 80)}
    assert len(shapes) == 2


def test_noise_replaces_codes_by_those_of_the_donors_in_the_same_group(trained: Trained) -> None:
    mix = dataclasses.replace(
        load_config(trained.folder / "talker.json").mix, code_noise=0.5, first_noise=0.5, tail_noise=0.5
    )
    own = np.arange(64, dtype=np.int16).reshape(4, 16)  # a code's group is its number modulo 16
    donors = own + 1000
    shares = []
    for seed in range(50):
        noisy = add_noise(np.random.default_rng(seed), own, donors, mix)
        assert ((noisy == own) | ((noisy >= 1000) & ((noisy - 1000) % 16 == np.arange(16)))).all()
        shares.append((noisy >= 1000).mean(0))
    groups = np.mean(shares, 0)
    assert 0.05 < groups[0] < groups[1] < 0.4 < groups[15], "group 0 least; the last ones most, by tail_noise"


def test_a_line_hears_another_voice_as_often_as_asked_and_never_behind_a_reference(
    voices: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[int] = []

    def note(_: np.random.Generator, codes: np.ndarray, donors: np.ndarray, mix: Mix) -> np.ndarray:
        heard.append(donors is not codes)
        return codes

    monkeypatch.setattr(batches, "add_noise", note)
    monkeypatch.setattr(voices, "mix", dataclasses.replace(voices.mix, voice_noise=0.5))
    for reference, least, most in (((), 0.4, 0.6), ((2,), 0.0, 0.0)):
        heard.clear()
        rng = np.random.default_rng(2)
        for _ in range(200):
            voices.lay_out(rng, Line((1,), reference, whole=False, tag=False), 12)
        assert least <= np.mean(heard) <= most and len(heard) == 200
    heard.clear()
    voices.lay_out(rng, Line((1,), (), whole=False, tag=False), None)
    assert not heard


@pytest.fixture(scope="module")
def voices(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Twelve lines of one voice, three of them short, as flawed recordings too, and the only line of another voice."""
    writer = CodeWriter(tmp_path_factory.mktemp("voices"), CODEBOOK)
    for number in range(13):
        text = "Yes, please." if number % 4 == 0 else f"{TEXTS[number % 4]} {TEXTS[1]}"
        codes, phones = torch.zeros(20, 16, dtype=torch.int16), torch.zeros(20, 2, dtype=torch.int16)
        mel = torch.zeros(30, 128, dtype=torch.uint8)
        writer.add(Utterance(text, VOICES[number == 12], "train", codes, mel, phones))
    for row in range(12):
        text = "Yes, please." if row % 4 == 0 else f"{TEXTS[row % 4]} {TEXTS[1]}"
        writer.add(Utterance(text, VOICES[0], ROUGH, codes, mel, phones))
    writer.flush()
    tokens = TextTokens(trained.checkpoint)
    mix = load_config(trained.folder / "talker.json").mix
    return Corpus(load_codes(writer.folder), tokens, Ids.of(trained.trainer.config.shape, tokens), mix)


def sample_lines(corpus: Corpus, row: int, **mix: float) -> list[Line]:
    corpus.mix = dataclasses.replace(corpus.mix, **mix)
    train = corpus.codes.rows("train")
    peers = train[corpus.codes.speakers[train] == corpus.codes.speakers[row]]
    rng = np.random.default_rng(1)
    return [line for _ in range(200) if (line := corpus.sample_line(rng, row, peers)) is not None]


def test_an_icl_line_has_some_references_and_often_a_short_target(voices: Corpus) -> None:
    lines = sample_lines(
        voices, 5, icl=1.0, reference_lines=3, short_targets=0.4, join=0.0, longest_frames=200
    )
    assert {len(line.reference) for line in lines} == {1, 2, 3}
    assert all(5 not in line.reference for line in lines)
    short = [line for line in lines if line.rows != (5,)]
    assert 0.3 < len(short) / len(lines) < 0.5
    assert {row for line in short for row in line.rows} == {0, 4, 8}


def test_references_are_flawed_recordings_of_other_texts_as_often_as_asked(voices: Corpus) -> None:
    lines = sample_lines(voices, 5, icl=1.0, rough=0.5, reference_lines=1, short_targets=0.0, join=0.0)
    rough = [line for line in lines if voices.codes.splits[line.reference[0]] == ROUGH]
    assert 0.4 < len(rough) / len(lines) < 0.6
    assert all(voices.codes.texts[line.reference[0]] != voices.codes.texts[5] for line in rough)
    assert all(voices.codes.splits[row] == "train" for line in lines for row in line.rows)
    assert {line.rows for line in sample_lines(voices, 12, icl=1.0, rough=1.0)} == {(12,)}, "it has none"


def test_the_speaker_encoder_hears_flawed_recordings_in_training_only(voices: Corpus) -> None:
    voices.mix = dataclasses.replace(voices.mix, rough=1.0)
    first = voices.codes.mel_starts[voices.codes.rows(ROUGH)[0]]
    for once, flawed in ((None, True), (0, False)):
        lines = [Line((row,), (), False, False) for row in range(12)]
        begins = Lines(voices, "train", 0, once=once)._stretches(np.random.default_rng(0), lines)[:, 0]
        assert (begins >= first).all() == flawed and (begins < first).all() != flawed


def test_a_voice_without_short_lines_keeps_its_own(voices: Corpus) -> None:
    lines = sample_lines(voices, 12, icl=1.0, reference_lines=1, short_targets=1.0, join=0.0)
    assert {line.rows for line in lines} == {(12,)}


def test_joined_lines_are_as_long_as_they_may_be(voices: Corpus) -> None:
    lines = sample_lines(voices, 5, icl=0.0, join=1.0, most_joined=10, longest_frames=130)
    assert {len(line.rows) for line in lines} == {2, 3, 4, 5, 6}, "six of 20 frames fit"
    assert all(line.rows[0] == 5 for line in lines)
    assert sample_lines(voices, 5, icl=0.0, join=0.0, longest_frames=19) == []


def test_a_reference_that_does_not_fit_is_left_out(voices: Corpus) -> None:
    lines = sample_lines(
        voices, 5, icl=1.0, rough=0.0, reference_lines=3, short_targets=0.0, join=0.0, longest_frames=50
    )
    assert {len(line.reference) for line in lines} == {0, 1}


def test_mels_are_stored_within_a_rounding_step() -> None:
    mel = torch.linspace(-11.5, 3.7, 500)
    assert torch.allclose(unpack_mel(pack_mel(mel)), mel, atol=0.031)
