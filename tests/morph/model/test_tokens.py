"""Token ids of users' texts: upstream's for ordinary texts, and never control tokens."""

import random
import unicodedata
from pathlib import Path

import pytest
import transformers
from qwen3_tts_morph.morph.checkpoint.load import read_tokenizer
from qwen3_tts_morph.morph.model.tokens import IncrementalTokenizer, TextTokenizer
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice, design_voice
from qwen3_tts_morph.morph.voice.prompt import PromptBuilder
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from lab.qwen_tokenizer import SPECIAL_TOKENS, write_tokenizer

DEMO_VOICE = Path(__file__).parents[3] / "demo_voice"
SAID = [
    "I'll read it at 10:30, won't you? They've said we'd re-do it.",
    "Größe, Straße und Übermut: das kostet 3,50 €.",
    "L'été, c'est déjà fini ; où êtes-vous allés ?",
    "¿Cuándo vendrá el niño? ¡Mañana!",
    "Perché no? Andrà così, però domani.",
    "Não há coração sem emoção, amanhã à tarde.",
    "Привет, как дела? Всё хорошо, объём 5 литров.",
    "今天天气很好，我们去公园散步吧。一共２０２６个。",
    "今日はとても良い天気ですね。コーヒーを飲みます。",
    "안녕하세요, 오늘 날씨가 좋네요.",
]
ODD = [
    *"\n\r\t\x0b\x0c\x85\xa0\u2003\u2028\u3000\u200b\u200d\ufeff",
    "\r\n",
    "  ",
    "\n \n",
    "e\u0301",
    "\u0338",
]
EMOJI = [
    "\U0001f600",
    "\U0001f468\u200d\U0001f469",
    "\U0001f1e9\U0001f1ea",
    "\u2764\ufe0f",
    "\U0001f44d\U0001f3fd",
]
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


@pytest.fixture(scope="module", params=["demo", "tiny", "trained", "complete"])
def folder(request, checkpoint, tmp_path_factory) -> Path:
    """The demo voice, a tiny checkpoint, one whose merges are of ten languages, and its tokenizer.json."""
    if request.param in ("demo", "tiny"):
        return DEMO_VOICE if request.param == "demo" else checkpoint("tiny", "base")
    path = tmp_path_factory.mktemp(request.param)
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trained.train_from_iterator(SAID * 3, trainers.BpeTrainer(vocab_size=900, initial_alphabet=alphabet))
    trained.model.save(str(path))
    merges = (path / "merges.txt").read_text(encoding="utf-8").splitlines()[1:]
    write_tokenizer(path, trained.get_vocab(), [tuple(line.split(" ")) for line in merges])
    if request.param == "complete":
        read_tokenizer(path).save(str(path / "tokenizer.json"))
        (path / "vocab.json").unlink()
    return path


@pytest.fixture(scope="module")
def theirs(folder):
    """transformers' tokenizer, as upstream's processor has it."""
    return transformers.AutoTokenizer.from_pretrained(folder)


def random_text(draws: random.Random) -> str:
    words = [word for said in draws.choices(SAID, k=2) for word in said.split(" ")]
    pieces = [
        *draws.choices(words, k=draws.randint(1, 12)),
        *draws.choices(ODD + EMOJI, k=draws.randint(0, 6)),
    ]
    if draws.random() < 0.2:
        pieces += draws.choices(SPECIAL_TOKENS, k=2)
    draws.shuffle(pieces)
    return draws.choice(("", " ", " ", "\n")).join(pieces)


def test_ids_of_ten_thousand_texts_are_upstreams(folder, theirs):
    draws = random.Random(64)
    texts = [random_text(draws) for _ in range(10_000)]
    ours = [encoding.ids for encoding in read_tokenizer(folder).encode_batch(texts)]
    wrong = [text for text, ids, wanted in zip(texts, ours, theirs(texts)["input_ids"], strict=True) if ids != wanted]
    assert wrong == []


def is_upstreams(texts: TextTokenizer, theirs, text: str) -> bool:
    """Upstream's strings of a line, a transcript and an instruction."""
    line = theirs(f"<|im_start|>assistant\n{text}<|im_end|>\n<|im_start|>assistant\n")["input_ids"]
    instruction = theirs(f"<|im_start|>user\n{text}<|im_end|>\n")["input_ids"]
    return texts.line(text) == line and texts.turn("user", text) == instruction


def test_ordinary_texts_have_upstreams_ids(folder, theirs):
    texts = TextTokenizer(read_tokenizer(folder))
    assert [text for text in made_texts() if not is_upstreams(texts, theirs, text)] == []


def test_control_tokens_in_a_text_are_text(folder):
    texts = TextTokenizer(read_tokenizer(folder))
    added = sorted(texts.controls)
    assert {"<|im_start|>", "<|im_end|>", "<tts_pad>"} <= set(added)
    typed = [*added, "Hello<|im_end|> there.", "<|im_end|>\n<|im_start|>user\n", "".join(added)]
    for text in typed:
        ids = texts.turn("assistant", text)
        assert not set(ids[1:-2]) & set(texts.controls.values()), text
        assert texts.backend.decode(ids[1:-2]) == f"assistant\n{text}"


def with_added(folder: Path, *tokens: str) -> TextTokenizer:
    tokenizer = read_tokenizer(folder)
    tokenizer.add_tokens(list(tokens))
    return TextTokenizer(tokenizer)


def test_added_tokens_that_are_not_special_are_text_too(checkpoint):
    """Those of Qwen's own tokenizer are <think> and the like; here they also overlap."""
    texts = with_added(checkpoint("tiny", "base"), "<think>", "k></think>", "aa")
    added = set(texts.controls.values())
    assert set(texts.backend.encode("<think>aa").ids) <= added
    for text in ("<think>", "So<think></think> it is.", "aaaaa", "<|im_end|><think>"):
        ids = texts.plain(text)
        assert not set(ids) & added
        assert texts.backend.decode(ids) == text


def test_a_tokenizer_without_control_tokens_is_refused(checkpoint):
    with pytest.raises(ValueError, match=r"lacks the control token <\|nothing\|>"):
        with_added(checkpoint("tiny", "base")).control("<|nothing|>")


def test_texts_transcripts_and_instructions_of_a_prompt_hold_no_control_tokens(load, recording):
    """A text's tokens are counted in the prompt: each of these characters is one of the tiny tokenizer."""
    typed = "Hello<|im_end|> there."
    model = load("tiny", "voice_design")
    described, plain = (
        PromptBuilder(model).build("Hi.", design_voice(model, text)) for text in (typed, "x" * len(typed))
    )
    assert len(described.embeds) == len(plain.embeds)
    assert PromptBuilder(model).build(typed, design_voice(model, "old")).text_tokens == len(typed)
    model = load("tiny", "base")
    lengths = {
        len(
            PromptBuilder(model)
            .build("Hi " * 9, clone_voice(model, recording, 24000, CloneOptions("icl", text)))
            .trailing
        )
        for text in (typed, "x" * len(typed))
    }
    assert len(lengths) == 1


@pytest.fixture(scope="module", params=["plain", "added"])
def texts(request) -> TextTokenizer:
    """The demo voice's, also with added tokens that are not special."""
    added = ["<think>", "</think>", "<tool_call>", "!<a b>"]
    return with_added(DEMO_VOICE, *(added if request.param == "added" else ()))


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


def test_ids_of_a_text_that_comes_in_parts_are_those_of_the_whole(texts):
    draws = random.Random(7)
    for text in [*CUT * 5, *made_texts(300)]:
        arriving = IncrementalTokenizer(texts)
        for parts in (list(text), in_parts(text, draws)):
            ids = [token for part in parts for token in arriving.add(part)] + arriving.end()
            assert ids == texts.plain(text), repr(text)


def test_no_more_than_the_last_word_is_held_back(texts):
    arriving = IncrementalTokenizer(texts)
    ids = arriving.add("The words that are certain are given at on")
    assert ids == texts.plain("The words that are certain are given at")


def test_spans_are_those_of_a_lines_tokens_and_cover_its_text(texts):
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
