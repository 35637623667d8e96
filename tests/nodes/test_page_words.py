"""What the page code says has its Chinese."""

import re
from pathlib import Path

from qwen3_tts_morph.morph.script.dub import DOES_NOT_FIT
from qwen3_tts_morph.morph.speech.pieces import WHAT_HAPPENED, WORDS_DIFFER

SCRIPTS = Path(__file__).resolve().parents[2] / "web" / "js"
SAID = re.compile(r'\bsay\((?:[^"()]*\? )?"([^"]+)"(?: : "([^"]+)")?')
TRANSLATED = re.compile(r'^  "([^"]+)":\s+"[^"]+",$', re.M)


def test_every_sentence_of_the_page_has_its_chinese_and_no_other_does() -> None:
    sources = {path.name: path.read_text(encoding="utf-8") for path in SCRIPTS.glob("*.js")}
    said = {one for text in sources.values() for found in SAID.findall(text) for one in found if one}
    assert said and said | {*WHAT_HAPPENED.values(), WORDS_DIFFER, DOES_NOT_FIT} == set(
        TRANSLATED.findall(sources["words.js"])
    )
