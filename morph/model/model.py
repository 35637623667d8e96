"""A loaded checkpoint, as the rest of the pack uses it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from ..options import GenerateOptions, Sampling
from ..runtime.threads import Exclusive
from ..setting import settings_of
from ..text.profile import TextProfile
from ..words.guard import LetterTable
from ..words.head import AlignmentHead
from .names import KIND_NAMES, SIZE_NAMES, list_languages
from .network import Network
from .tail import Tail
from .tokens import TextTokenizer
from .weights import Int8Linear, stack

# The demo voice has 256, the smallest published checkpoint 1,024. GEMMs up to this width take about ten microseconds: a
# second thread gains nothing, and on a busy machine the threads wait for one another at each GEMM.
SMALL_WIDTH = 512


class Qwen3TTS(torch.nn.Module):
    """Talker, codec and trained tails in one module, so that they move between devices together.

    ComfyUI's model management sets its ``device``, and its log shows this class's name.
    """

    def __init__(self, talker: torch.nn.Module, codec: torch.nn.Module):
        super().__init__()
        self.talker = talker
        self.codec = codec
        self.tails = torch.nn.ModuleDict()  # trained tails, by SEQ_GROUPS
        self.merged = torch.nn.ModuleDict()  # weights that models with adapters do not share (``adapter.py``)


@dataclass(frozen=True)
class AppliedAdapter:
    """An adapter in use: its name, the SHA-256 of its files, and its strength (1: as trained)."""

    name: str
    digest: str
    strength: float

    def describe(self) -> str:
        """Return a description for reports: "LoRA anna at 0.8"."""
        return f"LoRA {self.name} at {self.strength:g}"


class Model:
    """A loaded Qwen3-TTS checkpoint; ``name`` is for reports.

    ``config`` has the attributes of config.json, those of the talker in ``config.talker_config``.
    """

    def __init__(self, name: str, config: SimpleNamespace, network: Network, codec: Any, texts: TextTokenizer):
        self.name, self.config, self.texts = name, config, texts
        self.network, self.talker, self.codec = network, network.talker, codec
        self.module = Qwen3TTS(network, codec)
        self.module.eval().requires_grad_(False)
        self.sampling = Sampling()  # the default of calls
        self.profile = TextProfile()
        self.alignment: AlignmentHead | None = None  # the head that follows the text, if known
        self.letters: LetterTable | None = None  # finds wrong words in finished lines; None: its folder has none
        self.type = str(config.tts_model_type)  # "base", "custom_voice" or "voice_design"
        self.size = str(config.tts_model_size)  # "0b6", "1b7" or another
        self.width = int(config.talker_config.hidden_size)  # also the length of a speaker embedding
        self.languages = list_languages(self.config.talker_config.codec_language_id)
        self.sample_rate = int(codec.config.output_sample_rate)  # of the codec's sound, in Hz (24000)
        self.samples_per_frame = int(codec.config.decode_upsample_rate)  # of a frame of 16 codes (1920)
        self._place = self.talker.model.text_embedding  # its weight has the talker's device and dtype
        self.fingerprint = ""  # of its files; "" if it was not loaded from files
        self.adapters: tuple[AppliedAdapter, ...] = ()  # merged into its weights
        self._first: Model | None = None
        self._use = Exclusive("the model")

    def exclusive(self) -> Exclusive:
        """Hold the model exclusively inside the ``with``; other threads wait.

        Speaking and cloning hold it: the first use joins weights in place, and torch's thread count is shared by the
        process (see ``limit_threads``). To use the engine's caches too, take ``Engine.exclusive`` after it.
        """
        return self._use

    @property
    def title(self) -> str:
        return " + ".join([self.name, *(one.describe() for one in self.adapters)])

    @property
    def speakers(self) -> list[str]:
        """Preset speakers, fine-tuned ones included, in the config's order."""
        return list(self.config.talker_config.spk_id or {})

    @property
    def can_clone(self) -> bool:
        return self.network.speaker_encoder is not None

    @property
    def follows_instructions(self) -> bool:
        """Whether the checkpoint was trained to follow instructions (upstream drops them for 0.6B and Base)."""
        return self.type == "voice_design" or (self.type == "custom_voice" and self.size != "0b6")

    @property
    def device(self) -> torch.device:
        device: torch.device = self._place.weight.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = self._place.weight.dtype
        return dtype

    @property
    def weights(self) -> str:
        """One of ``options.WEIGHTS``."""
        return "int8" if isinstance(self.talker.code_predictor.lm_head[0], Int8Linear) else "full"

    @property
    def nbytes(self) -> int:
        """Bytes of all parameters and buffers of talker, codec and tails; a shared storage counts once."""
        parts = (self.module.talker, self.module.codec, self.module.tails)
        tensors = [one for part in parts for one in (*part.parameters(), *part.buffers())]
        storages = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}
        return sum(storages.values())

    @property
    def attention(self) -> str:
        """How the eager engine computes attention: "sdpa", "flash_attention_2" or "eager"."""
        return str(self.talker.config.attention)

    @property
    def first(self) -> Model:
        """The model without adapters whose weights this one shares, or itself."""
        return self._first or self

    def with_network(self, network: Network, tails: Mapping[str, torch.nn.Module]) -> Model:
        """Return a model with another talker and other tails, but the same tokenizer, codec, settings and lock."""
        other = copy.copy(self)
        other.network, other.talker, other._first = network, network.talker, self.first
        other._place = other.talker.model.text_embedding
        other.module = Qwen3TTS(network, self.codec)
        other.module.tails.update(tails)
        other.module.eval().requires_grad_(False)
        return other

    def add_tails(self, tails: Mapping[int, Tail]) -> None:
        self.module.tails.update({str(seq_groups): tail for seq_groups, tail in tails.items()})

    def tails(self, choice: str = "auto") -> dict[int, Tail]:
        """Return the trained tails by SEQ_GROUPS; none for "stock"."""
        if settings_of(GenerateOptions)["tail"].check(choice) == "stock":
            return {}
        return {one.seq_groups: one for one in self.module.tails.values() if isinstance(one, Tail)}

    def code_tables(self) -> torch.Tensor:
        """Return the embedding tables of groups 1-15 as one tensor ``[15, V, H_talker]``; takes no extra memory."""
        return stack(self.talker.code_predictor.model.codec_embedding)

    def tokenize_turn(self, role: str, text: str) -> torch.Tensor:
        return self.put_ids(self.texts.turn(role, text))

    def put_ids(self, ids: list[int]) -> torch.Tensor:
        """Return token ids ``[1, N]`` on the model's device, without a host sync."""
        device = self.device
        on_cuda = device.type == "cuda"
        return torch.tensor([ids], pin_memory=on_cuda).to(device, non_blocking=on_cuda)

    def summary(self) -> str:
        """Return one line: title, size, kind, precision, int8 weights, attention, device, GB (10^9 bytes)."""
        size = SIZE_NAMES.get(self.size, self.size)
        kind = KIND_NAMES.get(self.type, self.type)
        precision = str(self.dtype).removeprefix("torch.")
        if self.weights == "int8":
            precision += ", int8 weights"
        loaded = f"{self.nbytes / 1e9:.3g} GB"
        return f"{self.title} ({size} {kind}, {precision}, {self.attention}, {self.device}, {loaded})"


def is_small_on_cpu(model: Model) -> bool:
    return model.device.type == "cpu" and model.width <= SMALL_WIDTH


@contextmanager
def limit_threads(model: Model) -> Iterator[None]:
    """Let torch compute on one thread for a small model on a CPU, for the length of the ``with``.

    torch keeps the number per thread, and threads that start later get the number set last. Threads that start inside
    the ``with`` therefore also use one; if two renderings overlap, the last to end decides for later threads. Use it
    inside ``Model.exclusive``: then renderings of one model do not overlap.
    """
    if not is_small_on_cpu(model):
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
