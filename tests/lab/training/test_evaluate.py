"""Speaking the held-out lines for the judges: voices, references, and the files that are written."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.options import LoadOptions
from qwen3_tts_morph.morph.text.normalize import Normalizer
from qwen3_tts_morph.morph.voice.create import MODES
from safetensors.torch import save_file

from lab.judges.clips import read_texts
from lab.random_checkpoint import write_checkpoint
from lab.training.corpus.bundle import ABOUT, LINES, STYLES
from lab.training.corpus.shards import Utterance, write_shard
from lab.training.evaluate import EvaluateOptions, clone_all, evaluate, read_references, spellings

pytestmark = pytest.mark.slow  # this training is finished: --all runs it

VOICES = ("new_00", "new_01")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("corpus")
    (root / "teacher").mkdir()
    (root / "shards").mkdir()
    lines = [
        {"text": f"Line number {index}.", "phonemes": "ab", "split": "test", "kind": "wordnet"}
        for index in range(4)
    ]
    lines += [
        {"text": f"To choose by, {index}.", "phonemes": "ab", "split": "dev", "kind": "wordnet"}
        for index in range(4)
    ]
    cast = [{"name": name, "group": "held_out_mix", "recipe": {"af_heart": 1.0}} for name in VOICES]
    (root / "teacher" / LINES).write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    about = {"seed": 0, "vocabulary": {"a": 1, "b": 2}, "cast": cast}
    (root / "teacher" / ABOUT).write_text(json.dumps(about), encoding="utf-8")
    save_file({"af_heart": torch.zeros(1, 256)}, root / "teacher" / STYLES)
    spoken = []
    for number in range(8):
        audio = np.random.default_rng(number).normal(0, 3000, 24000 + 100 * number).astype(np.int16)
        durations = np.array([600, len(audio) - 1200, 300, 300], np.int32)
        spoken.append(Utterance("Reference.", "ab", VOICES[number // 4], audio, durations))
    write_shard(root / "shards" / "references-00-000.safetensors", spoken, 24000)
    return root


def test_every_line_is_spoken_and_judged_against_other_references(corpus: Path, tmp_path: Path):
    model = load_model(write_checkpoint(tmp_path / "voice", "tiny", "base"), LoadOptions(precision="fp32"))
    options = EvaluateOptions(corpus, tmp_path / "out", limit=3, seq_groups=3)
    model.sampling = dataclasses.replace(model.sampling, max_new_tokens=6)
    about = evaluate(model, options)
    clips = read_texts(tmp_path / "out" / "texts.tsv")
    assert [clip.text for clip in clips] == [f"Line number {index}." for index in range(3)]
    assert {clip.speaker for clip in clips} == set(VOICES)
    lengths = {soundfile.info(tmp_path / "out" / "wavs" / clip.path).frames for clip in clips}
    assert all(0 < length <= 6 * 1920 for length in lengths)
    assert about["lines"] == sum(about["ended"].values()) == 3
    references = sorted((tmp_path / "out" / "references" / "new_01").glob("*.wav"))
    # The first two of a voice's four references were used for cloning.
    assert [soundfile.info(path).frames for path in references] == [24600, 24700]


def test_sampling_can_be_chosen_on_other_sentences(corpus: Path, tmp_path: Path):
    model = load_model(write_checkpoint(tmp_path / "voice", "tiny", "base"), LoadOptions(precision="fp32"))
    model.sampling = dataclasses.replace(model.sampling, max_new_tokens=4)
    takes = []
    for name, temperatures in (("warm", (0.9, 0.9)), ("cold", (0.01, 0.01)), ("again", (0.01, 0.01))):
        options = EvaluateOptions(
            corpus, tmp_path / name, texts="references", temperatures=temperatures, limit=2
        )
        assert evaluate(model, options)["temperatures"] == list(temperatures)
        clips = read_texts(tmp_path / name / "texts.tsv")
        assert len(clips) == 2 and all(clip.text.startswith("To choose by") for clip in clips)
        takes.append([(tmp_path / name / "wavs" / clip.path).read_bytes() for clip in clips])
    assert takes[0] != takes[1] == takes[2]


def test_voices_are_cloned_with_their_transcripts_if_asked(corpus: Path, tmp_path: Path):
    model = load_model(write_checkpoint(tmp_path / "voice", "tiny", "base"), LoadOptions(precision="fp32"))
    references = read_references(EvaluateOptions(corpus, tmp_path))
    for mode in MODES:
        for voice in clone_all(model, references, mode).values():
            assert voice.kind == mode
            assert voice.transcript == ("Reference. Reference." if mode == "icl" else None)


def test_sentences_of_voices_without_references_are_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="'dev'"):
        EvaluateOptions(tmp_path, tmp_path, texts="dev")


def test_presets_are_not_said_to_be_cloned(tmp_path: Path):
    with pytest.raises(ValueError, match=r"mode 'icl'.*test_presets"):
        EvaluateOptions(tmp_path, tmp_path, split="test_presets", mode="icl")


def test_an_unknown_split_is_named(tmp_path: Path):
    with pytest.raises(ValueError, match="'train'"):
        EvaluateOptions(tmp_path, tmp_path, split="train")


def test_a_line_with_figures_may_be_heard_in_figures_or_in_words() -> None:
    normalizer = Normalizer("en")
    assert spellings("Nothing is to be written out.", normalizer) == ["Nothing is to be written out."]
    text, spoken, heard = spellings("We close at 5:40 am today.", normalizer)
    assert text == "We close at 5:40 am today." and "five forty" in spoken and heard.endswith("a.m. today.")
