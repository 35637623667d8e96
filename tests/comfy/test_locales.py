"""Translations and help pages match the nodes as a real ComfyUI reports them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.comfy.server import ComfyServer

ROOT = Path(__file__).resolve().parents[2]
DOCS, LOCALES, PREFIX = ROOT / "web" / "docs", ROOT / "locales", "MorphTTS"
PAGES = {"en": "{}.md", "zh": "{}/zh.md"}
SWITCH = {"en": ("off", "on"), "zh": ("关", "开")}
LARGEST = 2**63  # larger numbers are written differently in help pages (2^64 - 1)


def node_texts(info: dict[str, Any]) -> dict[str, Any]:
    """Return a node's part of /object_info in the format of a locale file."""
    inputs = {**info["input"].get("required", {}), **info["input"].get("optional", {})}
    outputs = zip(info["output_name"], info["output_tooltips"], strict=True)
    return {
        "display_name": info["display_name"],
        "description": info["description"],
        "inputs": {
            # The page looks a name with a dot, as voices.voice_1, up under this key.
            key.replace(".", "_"): {"name": options.get("display_name", key), "tooltip": options["tooltip"]}
            for key, (_, options) in inputs.items()
        },
        "outputs": {str(index): {"name": name, "tooltip": tooltip} for index, (name, tooltip) in enumerate(outputs)},
    }


def test_the_nodes_have_the_texts_of_the_english_locale_and_it_has_no_others(server: ComfyServer) -> None:
    written = json.loads((LOCALES / "en" / "nodeDefs.json").read_text(encoding="utf-8"))
    found = {name: node_texts(info) for name, info in server.object_info().items() if name.startswith(PREFIX)}
    if found["MorphTTSWholeCast"]["inputs"].pop("voices", None):  # inputs that grow, in newer ComfyUIs
        inputs = written["MorphTTSWholeCast"]["inputs"]
        for name in [one for one in inputs if one.startswith("voices_")]:
            del inputs[name]
    assert written == found


def test_comfyui_serves_both_locales(server: ComfyServer) -> None:
    served = server.get("/i18n")
    for language in ("en", "zh"):
        own = json.loads((LOCALES / language / "nodeDefs.json").read_text(encoding="utf-8"))
        assert {key: served[language]["nodeDefs"][key] for key in own} == own


def test_tooltips_state_the_defaults_of_the_nodes(server: ComfyServer) -> None:
    wrong = []
    for name, info in server.object_info().items():
        inputs = {**info["input"].get("required", {}), **info["input"].get("optional", {})}
        for key, (kind, options) in inputs.items() if name.startswith(PREFIX) else ():
            default = expected_words(kind, options, "en")[:1]
            if default and not re.search(rf"Default: {re.escape(default[0])}(?!\w)", options["tooltip"]):
                wrong.append(f"{name}.{key}: {default[0]}")
    assert wrong == []


def expected_words(kind: Any, options: dict[str, Any], language: str) -> list[str]:
    """Return the words that a help page must contain about an input's default and range."""
    default = options.get("default")
    if kind == "BOOLEAN":
        return [SWITCH[language][default]]
    if kind in ("INT", "FLOAT"):
        return [f"{value:.10g}" for value in (default, options["min"], options["max"]) if value < LARGEST]
    if kind == "STRING" and default and not options.get("multiline"):
        return [default]
    return [default] if kind == "COMBO" and default else []


@pytest.mark.parametrize("language", PAGES)
def test_help_pages_state_the_defaults_and_ranges_of_the_nodes(server: ComfyServer, language: str) -> None:
    unmentioned = []
    for name, info in server.object_info().items():
        if not name.startswith(PREFIX):
            continue
        page = (DOCS / PAGES[language].format(name)).read_text(encoding="utf-8")
        inputs = {**info["input"].get("required", {}), **info["input"].get("optional", {})}
        for key, (kind, options) in inputs.items():
            # "- `name` (unit, range; default x): ..."; in Chinese the punctuation is full-width.
            entry = re.search(rf"^- .*?`{key}`[ (（]+(.*?)(\): |）：)", page, re.M)
            words = set(re.split(r"[\s,，;；]+", entry[1])) if entry else set()
            missing = [
                word
                for word in expected_words(kind, options, language)
                if not set(word.replace(",", "").split()) <= words
            ]
            unmentioned += [f"{name}.{key}: {word}" for word in missing]
    assert unmentioned == []
