"""A small byte-level BPE in Qwen's file format, trained on the corpus's texts.

    python -m lab.training.talker.tokenizer --texts texts.txt --out work/tokenizer

Each role word must be one token: its last merges come after all others, so they change no other word.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from ...qwen_tokenizer import ROLE_WORDS, SPECIAL_TOKENS, read_special_ids, write_tokenizer

TOKENIZER_FILES = ("vocab.json", "merges.txt", "tokenizer_config.json")
# Qwen2's own pre-tokenizer: transformers builds it from tokenizer_class, so we cannot choose another.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)


def train_tokenizer(texts: Iterable[str], size: int, out: Path) -> None:
    """Write vocab.json, merges.txt and tokenizer_config.json for ``size`` tokens, special tokens included.

    Raises:
        ValueError: ``size`` is too small for the 256 bytes, the role words and the special tokens.
    """
    free = size - len(SPECIAL_TOKENS) - sum(len(word) for word in ROLE_WORDS)
    if free < 256:
        raise ValueError(f"text_vocab is {size}: choose at least {size - free + 256}")
    tokenizer = _assemble(models.BPE())
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=free, initial_alphabet=alphabet, show_progress=False)
    )
    model = json.loads(tokenizer.to_str())["model"]
    vocab, merges = model["vocab"], [tuple(pair) for pair in model["merges"]]
    for word in ROLE_WORDS:
        _merge_word(tokenizer, word, vocab, merges)
        tokenizer = _assemble(models.BPE(vocab=vocab, merges=merges))
    out.mkdir(parents=True, exist_ok=True)
    write_tokenizer(out, vocab, merges)


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
    """Join a word's pieces, left to right, with merges after all others."""
    pieces = tokenizer.encode(word).tokens
    while len(pieces) > 1:
        merges.append((pieces[0], pieces[1]))
        pieces = [pieces[0] + pieces[1], *pieces[2:]]
        vocab.setdefault(pieces[0], len(vocab))


def copy_tokenizer(folder: Path, out: Path) -> None:
    """Copy a tokenizer's files; ``out`` is created if missing."""
    out.mkdir(parents=True, exist_ok=True)
    for name in TOKENIZER_FILES:
        shutil.copyfile(folder / name, out / name)


class TextTokens:
    """Converts texts to the ids that transformers' Qwen2 tokenizer returns for the same files.

    Args:
        folder: the folder of the three files.
    """

    def __init__(self, folder: Path):
        self.vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
        lines = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()
        merges = [(left, right) for left, _, right in (line.partition(" ") for line in lines[1:])]
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        self.plain = _assemble(models.BPE(vocab=self.vocab, merges=merges))
        self.special = read_special_ids(folder)
        self.plain.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL_TOKENS])
        self.size = len(self.vocab) + len(self.special)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        return [found.ids for found in self.plain.encode_batch(list(texts))]

    def respell(self, texts: Sequence[str], dropout: float, seed: int) -> list[list[int]]:
        """Return ids with merges left out at random (BPE dropout, Provilkov 2020): one word, several spellings.

        A word has the same spelling in all texts of one call. Special tokens are not recognised. The dropout of
        ``tokenizers`` cannot be used: it takes no seed.
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
                (self.ranks[pair], index)
                for index, pair in enumerate(pairwise(pieces))
                if pair in self.ranks and rng.random() >= dropout
            ]
            if not pairs:
                return [self.vocab[piece] for piece in pieces]
            _, index = min(pairs)
            pieces[index : index + 2] = [pieces[index] + pieces[index + 1]]

    def role(self) -> list[int]:
        """Return the three ids that start a prompt: <|im_start|>, assistant, newline."""
        return self.encode(["<|im_start|>assistant\n"])[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--texts", type=Path, required=True, help="a file with one text per line")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", type=int, default=512, help="number of tokens, special tokens included")
    arguments = parser.parse_args()
    texts = arguments.texts.read_text(encoding="utf-8").splitlines()
    train_tokenizer(texts, arguments.size, arguments.out)
    tokens = TextTokens(arguments.out)
    counts = [len(ids) for ids in tokens.encode(texts)]
    letters = sum(len(text) for text in texts)
    print(
        f"{tokens.size} tokens; {letters / max(1, sum(counts)):.2f} letters per token over {len(texts)} texts"
    )


if __name__ == "__main__":
    main()
