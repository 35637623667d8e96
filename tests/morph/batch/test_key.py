"""Keys of lines: everything that decides the sound changes them, and nothing else does."""

from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from qwen3_tts_morph.morph.batch import key as keys
from qwen3_tts_morph.morph.batch.key import code_digest, common_key, line_key
from qwen3_tts_morph.morph.engine import Engine
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling, TokenSampling
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.speech.piece import Making, Piece
from qwen3_tts_morph.morph.synthesizer import Synthesizer
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
}
# In the pieces (how a text is cut and written out), in ``Kept`` (retries), or only in the rounding.
NO_SOUND = {"batch_size": 2, "split_chars": 50, "retries": 4, "normalize": "off", "chunk_frames": (3,)}


def test_every_option_is_known_to_change_the_sound_or_not() -> None:
    assert {one.name for one in fields(GenerateOptions)} == set(SOUND) | set(NO_SOUND)


def test_options_that_change_the_sound_change_the_key(model) -> None:
    synthesizer = Synthesizer(model, Engine("eager"))
    own = common_key(synthesizer, OPTIONS)
    others = {
        name: common_key(synthesizer, replace(OPTIONS, **{name: value})) for name, value in SOUND.items()
    }
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
    monkeypatch.setattr(keys, "installed", lambda name: "0.0" if name == "qwen-tts" else None)
    others.append(common_key(Synthesizer(model, Engine("eager")), OPTIONS))
    monkeypatch.undo()
    monkeypatch.setattr(keys, "CODE", "other")
    others.append(common_key(Synthesizer(model, Engine("eager")), OPTIONS))
    assert len({own, *others}) == 8


def test_a_model_without_files_has_no_key(model, monkeypatch) -> None:
    monkeypatch.setattr(model, "fingerprint", "")
    with pytest.raises(ValueError, match="was not loaded with load_model"):
        common_key(Synthesizer(model), OPTIONS)


def cloned(embedding: list[float], **more) -> Voice:
    return Voice("x_vector", "0b6", speaker_embedding=torch.tensor(embedding), **more)


def test_what_is_spoken_and_who_speaks_change_the_key(model) -> None:
    line, piece = Line("Hello.", cloned([1.0, 2.0]), "english", instruct="softly"), Piece(0, "Hello.", 3, 1)
    own = line_key("common", line, [piece])
    others = [
        line_key("another", line, [piece]),
        line_key("common", replace(line, voice=cloned([1.0, 2.5])), [piece]),
        line_key("common", replace(line, voice=cloned([1.0, 2.0], instruct="x")), [piece]),
        line_key("common", replace(line, voice=preset_voice(model, "ryan")), [piece]),
        line_key("common", replace(line, language="german"), [piece]),
        line_key("common", replace(line, instruct="loudly"), [piece]),
        line_key("common", line, [replace(piece, text="Hello!")]),
        line_key("common", line, [replace(piece, seed=4)]),
        line_key("common", line, [replace(piece, stride=2)]),
        line_key("common", line, [replace(piece, pause_s=0.5)]),
        line_key("common", line, [replace(piece, after_s=0.5)]),
        line_key("common", line, [piece, piece]),
    ]
    assert len({own, *others}) == 13


def test_no_instruction_is_not_the_voices_own(model) -> None:
    line, piece = Line("Hello.", cloned([1.0, 2.0], instruct="softly")), Piece(0, "Hello.", 3, 1)
    own = line_key("common", line, [piece])
    assert line_key("common", replace(line, instruct=""), [piece]) != own
    assert line_key("common", replace(line, instruct="softly"), [piece]) == own


def test_names_and_the_way_to_the_pieces_do_not_change_the_key() -> None:
    line, piece = Line("$5.", cloned([1.0, 2.0])), Piece("Five dollars.", 3, 1)
    same = Line("five dollars", cloned([1.0, 2.0], name="Anna"), " AUTO ", 99, "", "ANNA")
    assert line_key("common", line, [piece]) == line_key("common", same, [replace(piece, making=Making(7))])


def test_the_code_that_makes_sound_has_a_digest(tmp_path: Path) -> None:
    for folder in ("morph", "postprocess", "nodes"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.py").write_bytes(b"one\n")
    own = code_digest(tmp_path)
    (tmp_path / "nodes" / "a.py").write_bytes(b"two\n")
    (tmp_path / "morph" / "a.py").write_bytes(b"one\r\n")  # as git checks it out on Windows
    assert code_digest(tmp_path) == own
    (tmp_path / "postprocess" / "a.py").write_bytes(b"two\n")
    assert code_digest(tmp_path) != own
