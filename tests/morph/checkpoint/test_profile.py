"""What a checkpoint's morph.json says about speaking with it."""

import json
import shutil

import pytest
from qwen3_tts_morph.morph.checkpoint.find import demo_voice
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.checkpoint.profile import read_alignment, read_profile
from qwen3_tts_morph.morph.text.profile import TextProfile
from qwen3_tts_morph.morph.words.head import AlignmentHead, TalkerShape

DEFAULTS = TextProfile(longest_piece=400, normalize="", hold_end=False)


def written(folder, text: str):
    (folder / "morph.json").write_text(text, encoding="utf-8")
    return folder


def test_a_checkpoint_without_a_profile_takes_the_defaults(tmp_path, load):
    assert read_profile(tmp_path) == TextProfile() == DEFAULTS
    assert load("tiny", "base").profile == DEFAULTS


def test_the_demo_voices_profile():
    assert read_profile(demo_voice()) == TextProfile(100, "en", True)


def test_a_loaded_model_has_its_checkpoints_profile(checkpoint, tmp_path):
    path = shutil.copytree(checkpoint("tiny", "base"), tmp_path / "mine")
    written(path, '{"longest_piece": 120, "normalize": null}')
    assert load_model(path).profile == TextProfile(120, "", False)


@pytest.mark.parametrize("given", [{"longest_piece": 40}, {"longest_piece": 10000}, {"normalize": "en"}, {}])
def test_missing_fields_have_their_defaults(tmp_path, given):
    assert read_profile(written(tmp_path, json.dumps(given))) == TextProfile(**given)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ('{"longest_piece": 39}', "longest_piece is 39: choose a whole number from 40 to 10000"),
        ('{"longest_piece": 10001}', "longest_piece is 10001"),
        ('{"longest_piece": 100.0}', r"longest_piece is 100\.0"),
        ('{"longest_piece": true}', "longest_piece is True"),
        ('{"longest_piece": null}', "longest_piece is None"),
        ('{"longest_piece": NaN}', "morph.json is not JSON"),
        (
            '{"normalize": "xx"}',
            "normalize is 'xx': choose one of en, de, es, fr, it, pt, ru, or null for none",
        ),
        ('{"normalize": ["en"]}', "normalize is"),
        ('{"hold_end": 1}', "hold_end is 1: choose True or False"),
        ('{"longest_pieces": 100}', "'longest_pieces' is unknown"),
        ("[]", "contains a list instead of an object"),
        ("{", "morph.json is not JSON"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_damaged_profile_is_refused_with_checkpoint_and_field(tmp_path, text, cause):
    path = tmp_path / "mine"
    path.mkdir()
    with pytest.raises(ValueError, match=rf"checkpoint mine has a damaged morph\.json \(.*{cause}.*correct it"):
        read_profile(written(path, text))


def test_a_folder_named_like_the_profile_is_refused(tmp_path):
    (tmp_path / "morph.json").mkdir()
    with pytest.raises(ValueError, match=r"morph\.json is not a file"):
        read_profile(tmp_path)


SHAPE, KNOWN = TalkerShape(64, 3, 4), TalkerShape(1024, 28, 16)


def test_the_alignment_head_is_the_profiles_else_that_of_the_shape(tmp_path):
    assert read_alignment(tmp_path, SHAPE) is None
    assert read_alignment(written(tmp_path, "{}"), KNOWN) == AlignmentHead(6, 5)
    written(tmp_path, '{"longest_piece": 120, "alignment": {"layer": 2, "head": 3, "lead_ms": -40}}')
    assert read_alignment(tmp_path, SHAPE) == AlignmentHead(2, 3, -0.04)
    assert read_profile(tmp_path) == TextProfile(120)
    assert read_alignment(written(tmp_path, '{"alignment": null}'), KNOWN) is None


def test_a_loaded_model_has_its_checkpoints_head(checkpoint, tmp_path, load):
    assert load("tiny", "base").alignment is None
    path = shutil.copytree(checkpoint("tiny", "base"), tmp_path / "mine")
    written(path, '{"alignment": {"layer": 0, "head": 1}}')
    assert load_model(path).alignment == AlignmentHead(0, 1)


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        (5, "alignment is 5: write its layer"),
        ({"layer": 1}, "write its layer, its head"),
        ({"layer": 1, "head": 0, "odd": 1}, "write its layer, its head"),
        ({"layer": -1, "head": 0}, "layer is -1: choose a whole number"),
        ({"layer": 1, "head": True}, "head is True"),
        ({"layer": 3, "head": 0}, "layer 3 head 0, and the talker has 3 layers of 4 heads"),
        ({"layer": 0, "head": 4}, "layer 0 head 4, and"),
        ({"layer": 1, "head": 0, "lead_ms": "1"}, "lead_ms is '1': write a number"),
        ({"layer": 1, "head": 0, "lead_ms": 5000}, "choose -1 to 1 second"),
    ],
)
def test_a_damaged_head_is_refused_with_checkpoint_and_field(tmp_path, given, cause):
    (tmp_path / "mine").mkdir()
    path = written(tmp_path / "mine", json.dumps({"alignment": given}))
    with pytest.raises(ValueError, match=rf"checkpoint mine has a damaged morph\.json \(.*{cause}.*correct it"):
        read_alignment(path, SHAPE)
