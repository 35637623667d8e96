"""Configs as attributes: every field that the pack reads has upstream's value, also if the file lacks it."""

import copy
import json
from typing import Any

import pytest
from qwen3_tts_morph.morph.checkpoint.configs import CODEC, MODEL, fill_in
from qwen3_tts_morph.morph.checkpoint.find import demo_voice

from lab.upstream.package import default_rope_registered, import_qwen_tts

# Upstream names each layer's type; transformers 5 has rope_parameters.
WRITTEN_OTHERWISE = ("layer_types", "rope_theta", "rope_scaling")


def differing(ours: Any, theirs: Any, defaults: dict[str, Any], name: str = "") -> list[str]:
    """Return the fields of ``defaults`` that have other values in upstream's config."""
    found = []
    for field, default in defaults.items():
        mine = getattr(ours, field)
        if isinstance(default, dict):
            found += differing(mine, getattr(theirs, field), default, f"{field}.")
        elif field not in WRITTEN_OTHERWISE or (field in vars(theirs) and field != "layer_types"):
            wanted = getattr(theirs, field, None)
            if mine != (list(wanted) if isinstance(wanted, tuple) else wanted):
                found.append(f"{name}{field}: {mine!r}, {wanted!r}")
    return found


@pytest.mark.parametrize("emptied", [False, True])
@pytest.mark.parametrize("which", ["demo", "tiny", "tiny-1.7B"])
def test_values_are_upstreams(checkpoint, which, emptied):
    folder = demo_voice() if which == "demo" else checkpoint(which, "base")
    core = import_qwen_tts().core
    for part, kind, defaults in (
        (folder, core.models.Qwen3TTSConfig, MODEL),
        (folder / "speech_tokenizer", core.Qwen3TTSTokenizerV2Config, CODEC),
    ):
        given = {} if emptied else json.loads((part / "config.json").read_text(encoding="utf-8"))
        with default_rope_registered():
            theirs = kind(**copy.deepcopy(given))
        assert differing(fill_in(given, defaults), theirs, defaults) == []


def test_rope_as_transformers_5_writes_it_is_read():
    rope = {"rope_theta": 5e5, "rope_type": "default", "mrope_section": [24, 20, 20]}
    talker = fill_in({"talker_config": {"rope_parameters": rope}}, MODEL).talker_config
    assert talker.rope_theta == 5e5 and talker.rope_scaling == rope
