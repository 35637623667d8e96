"""Lines as JSON: where they end, and what is said of those that cannot be spoken."""

import json

import pytest
from qwen3_tts_morph.morph.text.scripts.script import ScriptError
from qwen3_tts_morph.serve.scripts.line_list import parse_lines


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_other_line_breaks_may_be_in_a_string(end: str) -> None:
    texts = ["One\u2028two.", "Three\x85four.", "Five\u2029six."]
    rows = [json.dumps({"text": text}, ensure_ascii=False) for text in texts]
    lines = parse_lines(end.join([*rows, ""]))[0].lines
    assert [(line.number, line.text) for line in lines] == list(enumerate(texts, start=1))


@pytest.mark.parametrize("key", ["text", "voice", "name", "language", "instruct"])
def test_half_a_character_is_named_with_its_line_and_key(key: str) -> None:
    text = '{"text": "Hello."}\n' + json.dumps({"text": "Hello."} | {key: "An\ud83d"})
    with pytest.raises(ScriptError, match=f"line 2: {key} contains half a character"):
        parse_lines(text)
