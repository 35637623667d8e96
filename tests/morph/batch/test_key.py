"""Keys of lines: everything that decides the sound changes them, and nothing else does."""

from dataclasses import fields, replace

import pytest
import torch
from qwen3_tts_morph.morph.batch import key as keys
from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.batch.key import common_key, line_key
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling, TokenSampling
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.synthesizer import Engine, Synthesizer
from qwen3_tts_morph.morph.text.normalize import Normalizer
from qwen3_tts_morph.morph.text.profile import TextProfile
from qwen3_tts_morph.morph.text.pronunciation import PronunciationList
from qwen3_tts_morph.morph.voice.create import preset_voice
from qwen3_tts_morph.morph.voice.voice import Voice

OPTIONS = GenerateOptions()
SOUND = {
    "seq_groups": 6,
    "sampling": Sampling(subtalker=TokenSampling(top_k=7)),
    "guard": False,
    "wrong_words": "retry",
    "tail": "stock",
    "trim_ends": True,
    "split_chars": 50,
    "normalize": "off",
}
# In ``Kept`` (retries), or only in the rounding.
NO_SOUND = {"batch_size": 2, "retries": 4, "chunk_frames": (3,)}


def test_every_option_is_known_to_change_the_sound_or_not() -> None:
    assert {one.name for one in fields(GenerateOptions)} == set(SOUND) | set(NO_SOUND)


def test_options_that_change_the_sound_change_the_key(model, monkeypatch) -> None:
    monkeypatch.setattr(model, "profile", TextProfile(normalize="en"))
    synthesizer = Synthesizer(model, Engine("eager"))
    own = common_key(synthesizer, OPTIONS)
    others = {name: common_key(synthesizer, replace(OPTIONS, **{name: value})) for name, value in SOUND.items()}
    assert len({own, *others.values()}) == 1 + len(SOUND)
    same = {common_key(synthesizer, replace(OPTIONS, **{name: value})) for name, value in NO_SOUND.items()}
    assert same == {own}
    assert common_key(synthesizer, replace(OPTIONS, sampling=model.sampling)) == own


def test_engine_precision_attention_checkpoint_and_code_change_the_key(load, model, monkeypatch) -> None:
    own = common_key(Synthesizer(model, Engine("eager")), OPTIONS)
    others = [
        common_key(Synthesizer(model, Engine("graph")), OPTIONS),
        common_key(Synthesizer(load("tiny", "base"), Engine("eager")), OPTIONS),
        common_key(Synthesizer(load("tiny", "custom_voice", "bf16"), Engine("eager")), OPTIONS),
        common_key(Synthesizer(load("tiny", "custom_voice", "fp32", "eager"), Engine("eager")), OPTIONS),
    ]
    monkeypatch.setattr(torch, "__version__", "0.0")
    others.append(common_key(Synthesizer(model, Engine("eager")), OPTIONS))
    monkeypatch.undo()
    monkeypatch.setattr(keys, "SOUND_VERSION", 0)
    others.append(common_key(Synthesizer(model, Engine("eager")), OPTIONS))
    assert len({own, *others}) == 7


def test_a_new_way_to_write_out_texts_changes_keys_of_checkpoints_that_need_it(model, monkeypatch) -> None:
    graph = Synthesizer(model, Engine("graph"))

    def now() -> str:
        return common_key(graph, OPTIONS)

    reads_itself = now()
    monkeypatch.setattr(keys, "TEXT_VERSION", 0)
    assert now() == reads_itself
    monkeypatch.setattr(model, "profile", TextProfile(normalize="en"))
    old = now()
    monkeypatch.setattr(keys, "TEXT_VERSION", 1)
    assert now() != old


def test_a_model_without_files_has_no_key(model, monkeypatch) -> None:
    monkeypatch.setattr(model, "fingerprint", "")
    with Batch(Synthesizer(model)) as batch:
        assert batch.key(Line("Hello.", preset_voice(model, "ryan")), OPTIONS) is None


def cloned(embedding: list[float], **more) -> Voice:
    return Voice("x_vector", "0b6", speaker_embedding=torch.tensor(embedding), **more)


def test_what_is_spoken_and_who_speaks_change_the_key(model) -> None:
    line = Line("It costs $5.", cloned([1.0, 2.0]), "english", 3, "softly")
    read = PronunciationList((("costs", "sells for"),))
    own = line_key("common", line)
    others = [
        line_key("another", line),
        line_key("common", replace(line, voice=cloned([1.0, 2.5]))),
        line_key("common", replace(line, voice=cloned([1.0, 2.0], instruct="x"))),
        line_key("common", replace(line, voice=preset_voice(model, "ryan"))),
        line_key("common", replace(line, language="german")),
        line_key("common", replace(line, instruct="loudly")),
        line_key("common", replace(line, text="It costs $5!")),
        line_key("common", replace(line, text="It costs [pause 0.2] $5.")),
        line_key("common", replace(line, seed=4)),
        line_key("common", replace(line, pronunciation=(read,))),
        line_key("common", replace(line, voice=cloned([1.0, 2.0], pronunciation=(read,)))),
    ]
    assert len({own, *others}) == len(others)  # the last two are read alike


def test_no_instruction_is_not_the_voices_own() -> None:
    line = Line("Hello.", cloned([1.0, 2.0], instruct="softly"))
    own = line_key("common", line)
    assert line_key("common", replace(line, instruct="")) != own
    assert line_key("common", replace(line, instruct="softly")) == own


def test_names_and_shown_words_do_not_change_the_key() -> None:
    line = Line("Five dollars.", cloned([1.0, 2.0]))
    same = Line("<$5|Five dollars>.", cloned([1.0, 2.0], name="Anna"), " AUTO ", 0, "", "ANNA")
    assert line_key("common", line) == line_key("common", same)


def test_a_key_needs_no_writing_out_of_figures(model, monkeypatch) -> None:
    monkeypatch.setattr(Normalizer, "parts", lambda *_: pytest.fail("the text is written out"))
    monkeypatch.setattr(model, "profile", TextProfile(normalize="en"))
    with Batch(Synthesizer(model, Engine("eager"))) as batch:
        assert batch.key(Line("It costs $5.", preset_voice(model, "ryan")), OPTIONS)
