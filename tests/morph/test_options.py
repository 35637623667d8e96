import math
from dataclasses import fields

import numpy as np
import pytest
from qwen3_tts_morph.morph.options import (
    GenerateOptions,
    LoadOptions,
    Sampling,
    TokenSampling,
    check_seq_groups,
)
from qwen3_tts_morph.morph.setting import settings_of

NAN = math.nan


@pytest.mark.parametrize(
    ("make", "values", "named"),
    [
        (TokenSampling, {"temperature": 0.0}, "temperature is 0.0"),
        (TokenSampling, {"temperature": -1.0}, "temperature is -1.0"),
        (TokenSampling, {"temperature": NAN}, "temperature is nan"),
        (TokenSampling, {"temperature": math.inf}, "temperature is inf"),
        (TokenSampling, {"temperature": 1e308}, r"temperature is 1e\+308"),
        (TokenSampling, {"temperature": 1e-39}, "temperature is 1e-39"),
        (TokenSampling, {"top_k": -1}, "top_k is -1"),
        (TokenSampling, {"top_p": 0.0}, "top_p is 0.0"),
        (TokenSampling, {"top_p": 1.1}, "top_p is 1.1"),
        (TokenSampling, {"top_p": NAN}, "top_p is nan"),
        (Sampling, {"repetition_penalty": 0.0}, "repetition_penalty is 0.0"),
        (Sampling, {"repetition_penalty": NAN}, "repetition_penalty is nan"),
        (Sampling, {"repetition_penalty": 1e308}, r"repetition_penalty is 1e\+308"),
        (Sampling, {"repetition_penalty": 1e-308}, "repetition_penalty is 1e-308"),
        (Sampling, {"max_seconds": 0.0}, "max_seconds is 0.0"),
        (Sampling, {"max_seconds": 3601.0}, "max_seconds is 3601"),
        (Sampling, {"max_seconds": NAN}, "max_seconds is nan"),
        (Sampling, {"max_new_tokens": 1}, "max_new_tokens is 1"),
        (GenerateOptions, {"seq_groups": 0}, "SEQ_GROUPS is 0"),
        (GenerateOptions, {"seq_groups": 16}, "SEQ_GROUPS is 16"),
        (GenerateOptions, {"batch_size": -1}, "batch_size is -1"),
        (GenerateOptions, {"batch_size": 513}, "batch_size is 513"),
        (GenerateOptions, {"split_chars": 39}, "split_chars is 39"),
        (GenerateOptions, {"split_chars": -1}, "split_chars is -1"),
        (GenerateOptions, {"chunk_frames": ()}, r"chunk_frames is \(\)"),
        (GenerateOptions, {"chunk_frames": (1, 0)}, r"chunk_frames is \(1, 0\)"),
        (GenerateOptions, {"chunk_frames": (301,)}, r"chunk_frames is \(301,\)"),
        (GenerateOptions, {"chunk_frames": [1, 2]}, r"chunk_frames is \[1, 2\]"),
        (LoadOptions, {"precision": "int8"}, "precision is 'int8'"),
        (LoadOptions, {"attention": "flash"}, "attention is 'flash'"),
        (LoadOptions, {"weights": "int4"}, "weights is 'int4'"),
    ],
)
def test_a_bad_option_is_refused_by_name_with_the_valid_values(make, values, named):
    with pytest.raises(ValueError, match=rf"{named}.*choose"):
        make(**values)


WRONG = ["5", None, True, 1.5, NAN, math.inf, 1, [1], np.arange(2)]


def fits(make, field: str, value: object) -> bool:
    """Return whether one of WRONG is a valid value of this field."""
    default = getattr(make(), field)
    if value is None:
        return default is None
    if isinstance(default, bool):
        return value is True
    if isinstance(default, int):
        return type(value) is int and field not in ("split_chars", "max_new_tokens")
    # max_seconds is a number or None; samplings and words are not in WRONG
    is_number = type(value) in (int, float) and (isinstance(default, float) or field == "max_seconds")
    return is_number and value <= settings_of(make)[field].high


@pytest.mark.parametrize("value", WRONG, ids=repr)
@pytest.mark.parametrize(
    ("make", "field"),
    [(make, f.name) for make in (TokenSampling, Sampling, GenerateOptions, LoadOptions) for f in fields(make)],
)
def test_a_value_of_the_wrong_type_is_refused_by_name_not_by_a_type_error(make, field, value):
    if fits(make, field, value):
        make(**{field: value})
        return
    known = settings_of(make).get(field)
    name = field if known is None else known.label or known.public
    with pytest.raises(ValueError, match=rf"(?s)^{name} is .*: choose "):
        make(**{field: value})


def test_numpy_numbers_are_converted_to_pythons():
    sampling = TokenSampling(np.bool_(True), np.float32(0.5), np.int64(7), np.float64(0.25))
    assert sampling == TokenSampling(True, 0.5, 7, 0.25)
    options = GenerateOptions(seq_groups=np.int32(3), batch_size=np.uint8(4))
    kinds = [type(getattr(options, name)) for name in ("seq_groups", "batch_size")]
    assert kinds == [int, int]
    assert [type(value) for value in vars(sampling).values()][:4] == [bool, float, int, float]
    assert Sampling(max_seconds=np.int16(3)).max_frames == 38


def test_a_number_too_large_for_a_float_is_refused():
    with pytest.raises(ValueError, match="temperature is 1000"):
        TokenSampling(temperature=10**400)


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (TokenSampling, {"temperature": 0.01, "top_k": 0, "top_p": 1.0}),
        (Sampling, {"repetition_penalty": 1.0, "max_seconds": 3600.0, "max_new_tokens": 2}),
        (GenerateOptions, {"seq_groups": 1, "batch_size": 512, "split_chars": 0}),
        (GenerateOptions, {"seq_groups": 15, "batch_size": 1, "split_chars": 40}),
        (LoadOptions, {"precision": "fp16", "attention": "flash_attention_2"}),
    ],
)
def test_the_limits_themselves_are_allowed(make, values):
    made = make(**values)
    assert {key: getattr(made, key) for key in values} == values


@pytest.mark.parametrize("value", [0, 16, -3, 5.0, "5", None])
def test_seq_groups_is_a_whole_number_from_1_to_15(value):
    with pytest.raises(ValueError, match="choose a whole number from 1 to 15"):
        check_seq_groups(value)
    assert [check_seq_groups(number) for number in range(1, 16)] == list(range(1, 16))


def test_options_cannot_be_changed_after_they_were_checked():
    with pytest.raises(AttributeError):
        TokenSampling().temperature = -1.0


def test_a_checkpoints_own_sampling_is_read_key_by_key():
    config = {
        "do_sample": False,
        "temperature": 0.5,
        "top_k": 11,
        "top_p": 0.6,
        "subtalker_dosample": False,
        "subtalker_temperature": 0.7,
        "subtalker_top_k": 12,
        "subtalker_top_p": 0.8,
        "repetition_penalty": 1.3,
        "max_new_tokens": 99,
        "eos_token_id": 5,
    }
    assert Sampling.from_config(config) == Sampling(
        TokenSampling(False, 0.5, 11, 0.6), TokenSampling(False, 0.7, 12, 0.8), 1.3, None, 99
    )


def test_missing_values_of_a_checkpoint_take_upstreams_defaults():
    assert Sampling.from_config({}) == Sampling(
        TokenSampling(True, 0.9, 50, 1.0), TokenSampling(True, 0.9, 50, 1.0), 1.05, None, 2048
    )


def test_frames_are_capped_by_tokens_and_by_seconds_whichever_is_less():
    assert Sampling(max_new_tokens=41).max_frames == 40  # the last token makes no frame
    assert Sampling(max_new_tokens=8192, max_seconds=2.0).max_frames == 25
    assert Sampling(max_new_tokens=11, max_seconds=2.0).max_frames == 10
    assert Sampling(max_seconds=0.001).max_frames == 1


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ValueError, match="engine is 'triton': choose one of auto, eager, graph"):
        LoadOptions(engine="triton")


def test_null_in_a_generation_config_takes_the_default() -> None:
    config = {"top_p": None, "temperature": None, "repetition_penalty": None, "max_new_tokens": None}
    assert Sampling.from_config(config) == Sampling.from_config({})
