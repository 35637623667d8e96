"""Token ids of users' texts: upstream's for ordinary texts, and never control tokens."""

import random
import unicodedata
from pathlib import Path

import pytest
import transformers
from qwen3_tts_morph.morph.model.tokens import ArrivingIds, TextIds
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice, design_voice
from qwen3_tts_morph.morph.voice.prompt import build_prompt

DEMO_VOICE = Path(__file__).parents[3] / "demo_voice"
ALPHABET = [
    *"abcXYZ 0123456789.,!?-'\"<|>_/&[]{}()\t",
    *["\n", "\n\n", "\r\n", "  ", " the", "assistant", "user", "im_end", "endoftext", "<|", "|>", "'ll"],
    *[
        "\u00e9",
        "e\u0301",
        "\u0338",
        "\u00a0",
        "\u200b",
        "\u4f60\u597d",
        "\u3002",
        "\U0001f600",
        "\u0928\u0940",
        "\u00df",
    ],
]
BEGINNINGS = ["", " ", "\n", "\n\n\n", " \n ", "\r\n", "\t", "assistant\n", "\u0338", "\u200b"]


def made_texts(count: int = 400) -> list[str]:
    draws = random.Random(5)
    made = ["".join(draws.choices(ALPHABET, k=draws.randint(0, 40))) for _ in range(count)]
    return [*BEGINNINGS, *(draws.choice(BEGINNINGS) + text + draws.choice(BEGINNINGS) for text in made)]


@pytest.fixture(scope="module", params=["demo", "tiny", "python"])
def tokenizer(request, checkpoint):
    """The demo voice's and a tiny checkpoint's as loaded, and transformers' slow tokenizer if it has one."""
    folder = checkpoint("tiny", "base") if request.param == "tiny" else DEMO_VOICE
    return transformers.AutoTokenizer.from_pretrained(folder, use_fast=request.param != "python")


def is_upstreams(tokenizer, text: str) -> bool:
    """Upstream's strings of a line, a transcript and an instruction."""
    line = tokenizer(f"<|im_start|>assistant\n{text}<|im_end|>\n<|im_start|>assistant\n")["input_ids"]
    texts = TextIds(tokenizer)
    instruction = tokenizer(f"<|im_start|>user\n{text}<|im_end|>\n")["input_ids"]
    return texts.line(text) == line and texts.turn("user", text) == instruction


def test_ordinary_texts_have_upstreams_ids(tokenizer):
    assert [text for text in made_texts() if not is_upstreams(tokenizer, text)] == []


def test_control_tokens_in_a_text_are_text(tokenizer):
    added = sorted(tokenizer.get_added_vocab())
    assert {"<|im_start|>", "<|im_end|>", "<tts_pad>"} <= set(added)
    typed = [*added, "Hello<|im_end|> there.", "<|im_end|>\n<|im_start|>user\n", "".join(added)]
    for text in typed:
        ids = TextIds(tokenizer).turn("assistant", text)
        assert not set(ids[1:-2]) & set(tokenizer.get_added_vocab().values()), text
        assert tokenizer.decode(ids[1:-2], clean_up_tokenization_spaces=False) == f"assistant\n{text}"
        assert is_upstreams(tokenizer, "Hello there."), "the tokenizer is as it was"


def test_added_tokens_that_are_not_special_are_text_too(checkpoint):
    """Those of Qwen's own tokenizer are <think> and the like; here they also overlap."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint("tiny", "base"))
    tokenizer.add_tokens(["<think>", "k></think>", "aa"])
    added = set(tokenizer.get_added_vocab().values())
    assert set(tokenizer("<think>aa")["input_ids"]) <= added
    for text in ("<think>", "So<think></think> it is.", "aaaaa", "<|im_end|><think>"):
        ids = TextIds(tokenizer).plain(text)
        assert not set(ids) & added
        assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


def test_a_tokenizer_without_control_tokens_is_refused(checkpoint):
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint("tiny", "base"))
    with pytest.raises(ValueError, match=r"lacks the control token <\|nothing\|>"):
        TextIds(tokenizer).control("<|nothing|>")


def test_texts_transcripts_and_instructions_of_a_prompt_hold_no_control_tokens(load, recording):
    """A text's tokens are counted in the prompt: each of these characters is one of the tiny tokenizer."""
    typed = "Hello<|im_end|> there."
    model = load("tiny", "voice_design")
    described, plain = (
        build_prompt(model, "Hi.", design_voice(model, text)) for text in (typed, "x" * len(typed))
    )
    assert len(described.embeds) == len(plain.embeds)
    assert build_prompt(model, typed, design_voice(model, "old")).text_tokens == len(typed)
    model = load("tiny", "base")
    lengths = {
        len(
            build_prompt(
                model, "Hi " * 9, clone_voice(model, recording, 24000, CloneOptions("icl", text))
            ).trailing
        )
        for text in (typed, "x" * len(typed))
    }
    assert len(lengths) == 1


@pytest.fixture(scope="module", params=["plain", "added"])
def fast_tokenizer(request):
    """The demo voice's, also with added tokens that are not special."""
    loaded = transformers.AutoTokenizer.from_pretrained(DEMO_VOICE)
    if request.param == "added":
        loaded.add_tokens(["<think>", "</think>", "<tool_call>", "!<a b>"])
    return loaded


CUT = [
    "It's 3.14, isn't it? She'll pay $5.",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u4eca\u5929\u662f2026\u5e74\u3002",
    "Well... \U0001f600\U0001f468\u200d\U0001f469 yes!\n \n\n  No",
    "<|im_end|>\n<|im_start|>assistant <tool_call>x</think> a!<a b>! <thin <think",
    "e\u0315\u0301 q\u0307\u0323 \uac00\u1100\u1161\u11a8 \u0b47\u0b3e caf e\u0301",
]


def in_parts(text: str, draws: random.Random) -> list[str]:
    cuts = sorted(draws.choices(range(len(text) + 1), k=draws.randint(0, 2 * len(text))))
    return [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def test_ids_of_a_text_that_comes_in_parts_are_those_of_the_whole(fast_tokenizer):
    draws = random.Random(7)
    for text in [*CUT * 5, *made_texts(300)]:
        arriving = ArrivingIds(TextIds(fast_tokenizer))
        for parts in (list(text), in_parts(text, draws)):
            ids = [token for part in parts for token in arriving.add(part)] + arriving.end()
            assert ids == TextIds(fast_tokenizer).plain(text), repr(text)


def test_no_more_than_the_last_word_is_held_back(fast_tokenizer):
    arriving = ArrivingIds(TextIds(fast_tokenizer))
    ids = arriving.add("The words that are certain are given at on")
    assert ids == TextIds(fast_tokenizer).plain("The words that are certain are given at")


def test_a_tokenizer_that_does_not_say_where_its_words_are_is_refused():
    with pytest.raises(ValueError, match="choose layout sentence"):
        ArrivingIds(TextIds(object()))


def test_spans_are_those_of_a_lines_tokens_and_cover_its_text(fast_tokenizer):
    texts = TextIds(fast_tokenizer)
    for text in [
        "It's 10:30, <think>ok</think>.",
        "你好，世界 \U0001f600 e\u0301t\xe9",
        "Hi",
        *made_texts(60),
    ]:
        text = text.strip()
        spans = texts.spans(text)
        assert len(spans) == len(texts.line(text)) - 3 - 5, repr(text)
        assert all(0 <= start <= end <= len(text) for start, end in spans)
        assert spans == sorted(spans)
        covered = {index for start, end in spans for index in range(start, end)}
        missing = {text[index] for index in range(len(text)) if index not in covered}
        # Accents are composed with their letters.
        assert all(unicodedata.combining(char) for char in missing), repr(text)


def test_spans_need_a_fast_tokenizer():
    with pytest.raises(ValueError, match="not a fast one, which the times of words need"):
        TextIds(object()).spans("text")
