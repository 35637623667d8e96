"""A checkpoint's configs as attributes, with upstream's defaults and checks of their values.

Upstream accepts any values, and fails or speaks wrongly much later.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ...postprocess.checks import is_whole
from ..model.network import inverse_frequencies, require_default_rope
from ..options import PREDICTED_GROUPS

MOST_PARTS = 1024  # layers, heads, groups: building more would take minutes, even on the meta device
COUNTS = ("num_", "_layers", "_groups", "_scale")
ABOVE_ZERO = ("rope_theta", "rms_norm_eps", "norm_eps", "sliding_window", "sample_rate", "num_hidden_layers")
INTEGERS = ("head_dim", "text_vocab_size", "codebook_dim")  # some config classes have no default for these
CODEC_IDS = tuple(
    f"codec_{name}"
    for name in ("pad_id", "bos_id", "eos_token_id", "think_id", "nothink_id", "think_bos_id", "think_eos_id")
)
TABLES = ("codec_language_id", "spk_id")
# Fields of the codec's config that our modules do not read: all published checkpoints have the defaults.
FIXED = {
    "encoder_config": ("use_causal_conv", "use_conv_shortcut", "pad_mode", "hidden_act", "attention_bias"),
    "decoder_config": ("hidden_act", "attention_bias"),
}
KINDS = ("base", "custom_voice", "voice_design")
TEXT_IDS = tuple(f"{name}_token_id" for name in ("im_start", "im_end", "tts_pad", "tts_bos", "tts_eos"))
# The defaults of upstream's config classes, for the fields that the pack reads; an object is a nested config. And what
# else peft can do than add B A to a weight, by the field of an adapter's config.
MODEL, CODEC, UNSUPPORTED = json.loads(Path(__file__).with_name("fields.json").read_text("utf-8")).values()


def fill_in(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> SimpleNamespace:
    """Return a config's fields as attributes, with the defaults for missing fields."""
    fields = {**defaults, **given}
    for name, inner in defaults.items():
        if isinstance(inner, dict):
            fields[name] = fill_in(given.get(name) or {}, inner)
    rope = given.get("rope_parameters")
    if isinstance(rope, dict):  # written by transformers 5
        fields |= {"rope_theta": given.get("rope_theta", rope.get("rope_theta")), "rope_scaling": rope}
    return SimpleNamespace(**fields)


def walk(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all scalars in a JSON value with their dotted names."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from walk(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner, name)
    else:
        yield name, value


def check_sizes(config: dict[str, Any], where: str = "config.json") -> None:
    """Raise ValueError, naming the field, for sizes that no model can have; call it before building one."""
    for name, value in walk(config):
        last = name.rsplit(".", 1)[-1]
        if last in INTEGERS and not is_whole(value):
            raise ValueError(f"{name} in {where} is {value!r}: it must be a whole number")
        if isinstance(value, str | bool) or value is None:
            continue
        if last.endswith(ABOVE_ZERO) and value <= 0:
            raise ValueError(f"{name} in {where} is {value}: it must be above 0")
        if (last.startswith(COUNTS[:1]) or last.endswith(COUNTS[1:])) and not 0 <= value <= MOST_PARTS:
            raise ValueError(f"{name} in {where} is {value}: it must be 0 to {MOST_PARTS}")


def check_types(given: Mapping[str, Any], defaults: Mapping[str, Any], where: str, name: str = "") -> None:
    """Raise ValueError, naming the field, for a value whose type differs from the default's.

    ``name`` is the dotted name of ``given`` inside the file ``where``.
    """
    for key, value in given.items():
        expected, field = defaults.get(key), f"{name}.{key}" if name else key
        if isinstance(expected, dict):
            if not isinstance(value, dict):
                raise ValueError(f"{field} in {where} is a {type(value).__name__}: it must be an object")
            check_types(value, expected, where, field)
        elif expected is not None and value is not None and _kind(expected) != _kind(value):
            raise ValueError(f"{field} in {where} is {value!r}: it must be a {_kind(expected)}")


def check_layers(config: Any) -> None:
    """Raise ValueError for decoder layers that upstream's classes allow and no published checkpoint has."""
    if config.hidden_act != "silu" or config.attention_bias:
        raise ValueError(
            f"config.json has hidden_act {config.hidden_act!r} and attention_bias {config.attention_bias}: only silu "
            "without biases is supported"
        )
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    if kinds or config.use_sliding_window:
        raise ValueError("config.json has layers of sliding attention: only full_attention is supported")
    require_default_rope(config)
    inverse_frequencies(config)


def check_tables(given: dict[str, Any]) -> None:
    """Raise ValueError if the talker's config has no table of speakers or languages: upstream reads both."""
    talker = given.get("talker_config")
    if not isinstance(talker, dict):
        return
    for name in TABLES:
        if not isinstance(talker.get(name), dict):
            shown = json.dumps(talker[name]) if name in talker else "missing"
            where = f"talker_config.{name} in config.json"
            raise ValueError(f"{where} is {shown}: write an object, {{}} for none")


def check_kind(config: Any) -> None:
    """Raise ValueError if a config has no valid model type and size."""
    if config.tts_model_type not in KINDS:
        raise ValueError(
            f"tts_model_type in config.json is {config.tts_model_type!r}: it must be one of {', '.join(KINDS)}"
        )
    if not isinstance(config.tts_model_size, str):
        raise ValueError(f"tts_model_size in config.json is {config.tts_model_size!r}: it must be a string")


def check_ids(config: Any) -> None:
    """Raise ValueError, naming the field, if an id in a config is outside its vocabulary."""
    talker = config.talker_config
    for name in TEXT_IDS:
        _check_id(name, getattr(config, name), talker.text_vocab_size)
    for name in CODEC_IDS:
        _check_id(f"talker_config.{name}", getattr(talker, name), talker.vocab_size)
    for table in TABLES:
        for name, value in getattr(talker, table).items():
            _check_id(f"talker_config.{table} of {name!r}", value, talker.vocab_size)
    for name, dialect in (getattr(talker, "spk_is_dialect", None) or {}).items():
        if dialect and dialect not in talker.codec_language_id:
            raise ValueError(f"talker_config.spk_is_dialect of {name!r} is {dialect!r}, which has no id")


def check_codec(codec: Any) -> None:
    for half, names in FIXED.items():
        for name in names:
            value, wanted = getattr(getattr(codec, half), name), CODEC[half][name]
            if value != wanted:
                raise ValueError(f"{half} has {name} {value!r}: the codec has {wanted!r} alone")


def check_groups(config: Any, codec: Any) -> None:
    """Raise ValueError if the configs of talker and codec do not match each other, or this pack."""
    talker, decoder, groups = config.talker_config, codec.decoder_config, PREDICTED_GROUPS + 1
    predictor = talker.code_predictor_config
    counts = {
        "talker_config.num_code_groups in config.json": talker.num_code_groups,
        "code_predictor_config.num_code_groups in config.json": predictor.num_code_groups,
        "decoder_config.num_quantizers in speech_tokenizer/config.json": decoder.num_quantizers,
    }
    for name, count in counts.items():
        if count != groups:
            raise ValueError(f"{name} is {count}: it must be {groups}")
    if decoder.codebook_size < predictor.vocab_size:
        raise ValueError(
            f"the codec has codebooks of {decoder.codebook_size} and the talker speaks {predictor.vocab_size} codes"
        )


def _check_id(name: str, value: Any, size: int) -> None:
    if not is_whole(value, 0, size - 1):
        raise ValueError(f"{name} in config.json is {value!r}: the vocabulary has 0 to {size - 1}")


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, list | tuple):
        return "list"
    return {"str": "text", "dict": "object"}.get(type(value).__name__, type(value).__name__)
