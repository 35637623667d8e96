"""Translations and help pages match the nodes as a real ComfyUI reports them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.comfy.english_locale import PATH, PREFIX, english_texts

if TYPE_CHECKING:
    from tests.comfy.server import ComfyServer

DOCS = Path(__file__).resolve().parents[2] / "web" / "docs"
PAGES = {"en": "{}.md", "zh": "{}/zh.md"}
SWITCH = {"en": ("off", "on"), "zh": ("关", "开")}
LARGEST = 2**63  # larger numbers are written differently in help pages (2^64 - 1)


def test_the_english_locale_matches_the_nodes(server: ComfyServer) -> None:
    written, found = json.loads(PATH.read_text(encoding="utf-8")), english_texts(server.object_info())
    if found["MorphTTSWholeCast"]["inputs"].pop("voices", None):  # inputs that grow, in newer ComfyUIs
        inputs = written["MorphTTSWholeCast"]["inputs"]
        for name in [one for one in inputs if one.startswith("voices_")]:
            del inputs[name]
    assert written == found, "run tests/comfy/english_locale.py"


def test_comfyui_serves_both_locales(server: ComfyServer) -> None:
    served = server.get("/i18n")
    for language in ("en", "zh"):
        own = json.loads((PATH.parents[1] / language / "nodeDefs.json").read_text(encoding="utf-8"))
        assert {key: served[language]["nodeDefs"][key] for key in own} == own


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
