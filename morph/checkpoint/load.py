"""Load a checkpoint folder, with a precision and an attention that the machine supports."""

import importlib.util
import logging
from pathlib import Path
from types import SimpleNamespace

import torch
from safetensors import safe_open
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from ..codec.modules import Codec
from ..model.model import Model
from ..model.tokens import TextTokenizer
from ..model.weights import quantize_talker, view_heads
from ..options import LoadOptions, Sampling
from ..words.head import TalkerShape
from .configs import CODEC as FIELDS
from .configs import check_codec, check_groups, fill_in
from .files import read_object
from .find import check_complete, fingerprint_digest, weight_files
from .profile import read_alignment, read_profile
from .trained_files import LETTER_FILE, TAIL_FILE, load_letters, load_tails
from .verify import CODEC, blame, build_network, check_tokenizer, check_weights, read_config, read_generation

log = logging.getLogger(__name__)

CODEC_TYPE = "qwen3_tts_tokenizer_12hz"
# Qwen's pattern of words, and what a token that is added may say of itself.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def choose_dtype(precision: str, device: torch.device) -> torch.dtype:
    """Return the dtype for a device; ValueError for bf16 on a GPU without it, or fp16 on the CPU.

    "auto" is bf16 on GPUs that support it, else fp32. It never picks fp16, which overflows in some checkpoints
    ("probability tensor contains inf"); choose fp16 explicitly to try it.
    """
    has_bf16 = device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0)
    if precision == "auto":
        return torch.bfloat16 if device.type == "cuda" and has_bf16 else torch.float32
    if precision == "bf16" and not has_bf16:
        name = torch.cuda.get_device_name(device)
        raise ValueError(f"precision is bf16 and {name} does not support it: choose auto, fp32 or fp16")
    if precision == "fp16" and device.type == "cpu":
        raise ValueError("precision is fp16 and the device is the CPU: choose auto, fp32 or bf16")
    return DTYPES[precision]


def choose_attention(attention: str, device: torch.device, dtype: torch.dtype) -> str:
    """Return transformers' name of the attention; ValueError for a flash_attention_2 that cannot run.

    "auto" is sdpa: for single positions flash-attn was slower (docs/log/benchmarks.md).
    """
    if attention == "auto":
        return "sdpa"
    if attention == "flash_attention_2" and (reason := why_no_flash(device, dtype)):
        raise ValueError(f"attention is flash_attention_2 and {reason}: choose auto or sdpa")
    return attention


def why_no_flash(device: torch.device, dtype: torch.dtype) -> str | None:
    """Return why flash-attn cannot run, or None."""
    if importlib.util.find_spec("flash_attn") is None:
        return "flash-attn is not installed"
    if device.type != "cuda":
        return f"the device is {device.type}, not CUDA"
    if dtype == torch.float32:
        return "precision is fp32, which flash-attn does not support"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return f"{torch.cuda.get_device_name(device)} is too old for flash-attn"
    return None


def check_frame_rate(path: Path) -> None:
    """Raise ValueError for a checkpoint of the 25 Hz family, which has a different codec and groups."""
    with blame(path):
        config = read_object(path / "config.json")
    if config.get("tokenizer_type") != CODEC_TYPE:
        raise ValueError(f"checkpoint {path.name} uses {config.get('tokenizer_type')}: only 12 Hz models are supported")


def assign_weights(folder: Path, module: torch.nn.Module, dtype: torch.dtype) -> None:
    """Replace a module's tensors on the meta device by those of a folder's weight files, in ``dtype``.

    Tensors that have this dtype stay mapped to the file and take no memory.
    """
    needed = module.state_dict()
    state: dict[str, torch.Tensor] = {}
    for file in weight_files(folder):
        with safe_open(file, framework="pt") as weights:
            for name in needed.keys() & weights.keys():
                tensor = weights.get_tensor(name)
                state[name] = tensor.to(dtype) if tensor.is_floating_point() else tensor
    module.load_state_dict(state, assign=True)


def load_model(
    path: Path, options: LoadOptions | None = None, device: torch.device | str = "cpu", move: bool = True
) -> Model:
    """Load a checkpoint folder in the published format.

    Args:
        options: precision, attention and weights; ``engine`` is for ``Synthesizer.load``.
        device: precision and attention are chosen for it. The weights are loaded on the CPU in their final dtype.
        move: move the model to ``device``. False under ComfyUI, which moves it later.
    Raises:
        ValueError: for missing or damaged files, weights that do not match the config, options that the device does
            not support, or trained tails of another checkpoint.
    """
    options = options or LoadOptions()
    device = torch.device(device)
    check_complete(path)
    dtype = choose_dtype(options.precision, device)
    attention = choose_attention(options.attention, device, dtype)
    check_frame_rate(path)
    profile = read_profile(path)
    # Before the files are read, so that a file replaced meanwhile is noticed.
    fingerprint = fingerprint_digest(path)
    # Parameters must not be inference tensors: those could not be moved between devices later.
    with torch.inference_mode(False):
        with blame(path):
            model = _read_model(path, dtype)
        model.talker.config.attention = model.talker.code_predictor.config.attention = attention
        model.profile, model.fingerprint = profile, fingerprint
        talker = model.config.talker_config
        shape = TalkerShape(talker.hidden_size, talker.num_hidden_layers, talker.num_attention_heads)
        model.alignment = read_alignment(path, shape)
        if options.weights == "int8":
            quantize_talker(model.talker)  # before the move, so that the device never holds the full weights
        if move:
            model.module.to(device)
        heads = view_heads(model.talker.code_predictor.lm_head)
        model.code_tables()
        if (path / LETTER_FILE).is_file():
            model.letters = load_letters(path / LETTER_FILE, model.codec.config.decoder_config.codebook_size)
        if (path / TAIL_FILE).is_file():
            model.add_tails(load_tails(path / TAIL_FILE, path, heads))
    tails = ", ".join(map(str, model.tails())) or "none: crossbar with stock heads"
    log.info("%s: trained tails for SEQ_GROUPS %s", path.name, tails)
    return model


def _read_model(path: Path, dtype: torch.dtype) -> Model:
    network, config = build_network(path)
    sampling = Sampling.from_config(read_generation(path))
    texts = TextTokenizer(read_tokenizer(path))
    check_tokenizer(texts, config)
    assign_weights(path, network, dtype)
    codec = _read_codec(path / CODEC, config, dtype)
    model = Model(path.name, config, network, codec, texts)
    model.sampling = sampling
    return model


def _read_codec(folder: Path, config: SimpleNamespace, dtype: torch.dtype) -> Codec:
    codec_config = fill_in(read_config(folder, FIELDS, CODEC_TYPE, f"{CODEC}/"), FIELDS)
    check_codec(codec_config)
    with torch.device("meta"):
        codec = Codec(codec_config)
    check_weights(folder, codec, f"{CODEC}/")
    check_groups(config, codec_config)
    assign_weights(folder, codec, dtype)
    return codec


def read_tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer in tokenizer.json, or in vocab.json and merges.txt, with the tokens that its config adds.

    It is Qwen's byte-level BPE, with the token ids of upstream's processor. A damaged file may raise any exception.
    """
    config = read_object(folder / "tokenizer_config.json")
    complete = folder / "tokenizer.json"
    if complete.is_file():
        tokenizer = Tokenizer.from_file(str(complete))
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
