"""Read a checkpoint's text tokenizer: Qwen's byte-level BPE, with the token ids of upstream's processor."""

from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from .json_file import read_object

COMPLETE, CONFIG = "tokenizer.json", "tokenizer_config.json"
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def read_tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer in COMPLETE, or in vocab.json and merges.txt, with the tokens that CONFIG adds.

    A damaged file may raise any exception.
    """
    config = read_object(folder / CONFIG)
    if (folder / COMPLETE).is_file():
        tokenizer = Tokenizer.from_file(str(folder / COMPLETE))
    else:
        tokenizer = _byte_level(folder, bool(config.get("add_prefix_space")))
    added = sorted((config.get("added_tokens_decoder") or {}).items(), key=lambda item: int(item[0]))
    tokenizer.add_tokens(
        [AddedToken(one["content"], **{flag: one[flag] for flag in FLAGS if flag in one}) for _, one in added]
    )
    return tokenizer


def _byte_level(folder: Path, space_before: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=space_before, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
