"""Help pages and translations are complete and agree with each other."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from qwen3_tts_morph.morph.options import (
    SHIFT_STRENGTHS,
    GenerateOptions,
    LoadOptions,
    Sampling,
    TokenSampling,
)
from qwen3_tts_morph.morph.setting import settings_of

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "web" / "docs"
# ComfyUI's page loads <node>/<language>.md or, if that is missing, <node>.md.
PAGES = {"en": "{}.md", "zh": "{}/zh.md"}


def read_locale(language: str) -> dict[str, Any]:
    return json.loads((ROOT / "locales" / language / "nodeDefs.json").read_text(encoding="utf-8"))


ENGLISH, CHINESE = read_locale("en"), read_locale("zh")


def read_page(node: str, language: str) -> str:
    return (DOCS / PAGES[language].format(node)).read_text(encoding="utf-8")


def test_every_node_has_texts_and_help_pages_and_there_are_no_others() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "nodes").rglob("*.py")]
    nodes = {name for source in sources for name in re.findall(r'schema\(\s*"(MorphTTS\w+)"', source)}
    assert nodes == set(ENGLISH) == set(CHINESE)
    assert {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.*")} == {
        page.format(node) for node in nodes for page in PAGES.values()
    }


@pytest.mark.parametrize("language", PAGES)
@pytest.mark.parametrize("node", ENGLISH)
def test_the_page_names_every_input_and_output_under_its_own_heading(node: str, language: str) -> None:
    parts = read_page(node, language).split("\n## ")
    named = [re.findall(r"^- .*?`(\w+)`", part, re.M) for part in parts]
    # Inputs that grow are one entry: voices for voices_voice_1, voices_voice_2 and so on.
    inputs = [re.sub(r"^(\w+?s)_\w+_\d+$", r"\1", key) for key in ENGLISH[node]["inputs"]]
    assert named[1] == list(dict.fromkeys(inputs))
    outputs = [output["name"] for output in ENGLISH[node]["outputs"].values()]
    if outputs:
        assert named[2] == outputs
    assert len(parts) >= (5 if outputs else 4)  # title, inputs, outputs, example, mistakes


@pytest.mark.parametrize("node", ENGLISH)
def test_both_pages_quote_the_same_errors(node: str) -> None:
    quoted = [re.findall(r"^- \*([^*]+)\*", read_page(node, language), re.M) for language in PAGES]
    assert quoted[0] == quoted[1] != []


def message_patterns() -> set[str]:
    """Return a regular expression for each message of the pack, with wildcards for its values."""
    patterns = set()
    for folder in ("nodes", "morph", "postprocess", "serve"):
        for path in (ROOT / folder).rglob("*.py"):
            for found in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                parts = found.values if isinstance(found, ast.JoinedStr) else [found]
                fixed = [str(part.value) for part in parts if isinstance(part, ast.Constant)]
                if sum(map(len, fixed)) > 15:
                    shape = [re.escape(str(p.value)) if isinstance(p, ast.Constant) else ".+?" for p in parts]
                    patterns.add("".join(shape).removeprefix(".+?\\\n"))  # drop a leading error message
    return patterns | {f".+? is .+?: choose {re.escape(limits)}" for limits in limits_told()}


def limits_told() -> Iterator[str]:
    """Yield how errors name the limits of each setting, and of numbers that ``check_range`` checks."""
    for kind in (TokenSampling, Sampling, GenerateOptions, LoadOptions):
        yield from (one.limits + one.hint for one in settings_of(kind).values())
    yield f"{SHIFT_STRENGTHS[0]:g} to {SHIFT_STRENGTHS[1]:g}"


def test_the_quoted_errors_are_errors_that_the_pack_raises() -> None:
    patterns = [re.compile(r"((line|caption) \d+: )?" + pattern, re.S) for pattern in message_patterns()]
    quoted = {quote for node in ENGLISH for quote in re.findall(r"^- \*([^*]+)\*", read_page(node, "en"), re.M)}
    assert [quote for quote in quoted if not any(pattern.fullmatch(quote) for pattern in patterns)] == []


@pytest.mark.parametrize("node", ["MorphTTSGenerateSpeech", "MorphTTSRenderScript"])
def test_the_pages_do_not_call_the_knob_exact_below_15(node: str) -> None:
    assert "15 is exact" in read_page(node, "en") and "Below 15 is approximate" in read_page(node, "en")
    assert "15 为精确值" in read_page(node, "zh") and "低于 15 属于近似" in read_page(node, "zh")


def texts(value: dict[str, Any] | str, path: str = "") -> dict[str, str]:
    """Return the texts of a locale by path."""
    if isinstance(value, str):
        return {path: value}
    return {key: text for name, part in value.items() for key, text in texts(part, f"{path}.{name}").items()}


def test_the_chinese_locale_has_the_same_texts_and_numbers_as_the_english_one() -> None:
    english, chinese = texts(ENGLISH), texts(CHINESE)
    assert list(english) == list(chinese)
    numbers = re.compile(r"\d+(?:\.\d+)?")
    for path, text in english.items():
        if path.endswith(("tooltip", "description")):
            assert re.search("[\u4e00-\u9fff]", chinese[path]), path
            assert sorted(numbers.findall(text)) == sorted(numbers.findall(chinese[path])), path


@pytest.mark.parametrize("locale", [ENGLISH, CHINESE], ids=["en", "zh"])
def test_no_text_contains_placeholder_syntax_of_the_page(locale: dict[str, Any]) -> None:
    """vue-i18n treats {name}, @:key and | in a text as syntax."""
    assert [path for path, text in texts(locale).items() if re.search(r"[{}@|]", text)] == []
