"""A small byte-level BPE in Qwen's file format, trained on the corpus's texts.

    python -m lab.training.talker.tokenizer --texts texts.txt --out work/tokenizer

Upstream cuts a prompt by position, so "assistant" and "user" must be one token each: their last merges come after
all others, where they change no other word.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
)
ROLE_WORDS = ("assistant", "user")
# Qwen2's own pre-tokenizer: transformers builds it from tokenizer_class, so it is not ours to choose.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)


def train_tokenizer(texts: Iterable[str], size: int, out: Path) -> None:
    """Write vocab.json, merges.txt and tokenizer_config.json for ``size`` tokens, specials included.

    Raises:
        ValueError: when ``size`` has no room for the 256 bytes, the role words and the special tokens.
    """
    room = size - len(SPECIAL_TOKENS) - sum(len(word) for word in ROLE_WORDS)
    if room < 256:
        raise ValueError(f"text_vocab is {size}: choose at least {size - room + 256}")
    tokenizer = _assemble(models.BPE())
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=room, initial_alphabet=alphabet, show_progress=False)
    )
    model = json.loads(tokenizer.to_str())["model"]
    vocab, merges = model["vocab"], [tuple(pair) for pair in model["merges"]]
    for word in ROLE_WORDS:
        _merge_word(tokenizer, word, vocab, merges)
        tokenizer = _assemble(models.BPE(vocab=vocab, merges=merges))
    out.mkdir(parents=True, exist_ok=True)
    _write_files(out, vocab, merges)


def _assemble(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _merge_word(
    tokenizer: Tokenizer, word: str, vocab: dict[str, int], merges: list[tuple[str, str]]
) -> None:
    """Join a word's pieces, left to right, by merges behind all others."""
    pieces = tokenizer.encode(word).tokens
    while len(pieces) > 1:
        merges.append((pieces[0], pieces[1]))
        pieces = [pieces[0] + pieces[1], *pieces[2:]]
        vocab.setdefault(pieces[0], len(vocab))


def _write_files(out: Path, vocab: dict[str, int], merges: Sequence[tuple[str, str]]) -> None:
    special = {
        str(len(vocab) + index): {
            "content": token,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": True,
        }
        for index, token in enumerate(SPECIAL_TOKENS)
    }
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "processor_class": "Qwen3TTSProcessor",
        "added_tokens_decoder": special,
        "add_prefix_space": False,
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "model_max_length": 131072,
    }
    lines = ["#version: 0.2", *(f"{left} {right}" for left, right in merges)]
    (out / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    (out / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


class TextTokens:
    """Texts to ids, as transformers' Qwen2 tokenizer gives them for the same files.

    Args:
        folder: where the three files are.
    """

    def __init__(self, folder: Path):
        self.vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
        lines = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()
        merges = [(left, right) for left, _, right in (line.partition(" ") for line in lines[1:])]
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        self.plain = _assemble(models.BPE(vocab=self.vocab, merges=merges))
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        self.special = {
            entry["content"]: int(index) for index, entry in config["added_tokens_decoder"].items()
        }
        self.plain.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL_TOKENS])
        self.size = len(self.vocab) + len(self.special)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Plain ids of texts."""
        return [found.ids for found in self.plain.encode_batch(list(texts))]

    def respell(self, texts: Sequence[str], dropout: float, seed: int) -> list[list[int]]:
        """Ids with merges left out by chance (BPE dropout, Provilkov 2020), so that a word is met in several spellings.

        A word is spelled alike in all texts of one call. Special tokens are not looked for. ``tokenizers`` has such a
        dropout, which takes no seed.
        """
        rng = random.Random(seed)
        known: dict[str, list[int]] = {}
        found = []
        for text in texts:
            words = self.plain.pre_tokenizer.pre_tokenize_str(self.plain.normalizer.normalize_str(text))
            ids: list[int] = []
            for word, _ in words:
                if word not in known:
                    known[word] = self._spell(word, dropout, rng)
                ids += known[word]
            found.append(ids)
        return found

    def _spell(self, word: str, dropout: float, rng: random.Random) -> list[int]:
        pieces = list(word)
        while True:
            pairs = [
                (self.ranks[pair], place)
                for place, pair in enumerate(pairwise(pieces))
                if pair in self.ranks and rng.random() >= dropout
            ]
            if not pairs:
                return [self.vocab[piece] for piece in pieces]
            _, place = min(pairs)
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]

    def role(self) -> list[int]:
        """The three ids that open a prompt: <|im_start|>, assistant, newline."""
        return self.encode(["<|im_start|>assistant\n"])[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--texts", type=Path, required=True, help="a file with one text a line")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", type=int, default=512, help="tokens, specials included")
    arguments = parser.parse_args()
    texts = arguments.texts.read_text(encoding="utf-8").splitlines()
    train_tokenizer(texts, arguments.size, arguments.out)
    tokens = TextTokens(arguments.out)
    counts = [len(ids) for ids in tokens.encode(texts)]
    letters = sum(len(text) for text in texts)
    print(
        f"{tokens.size} tokens; {letters / max(1, sum(counts)):.2f} letters a token over {len(texts)} texts"
    )


if __name__ == "__main__":
    main()
