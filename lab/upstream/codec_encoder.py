"""The codec's encoder with the published names of its weights, if transformers has renamed them.

Upstream's encoder is transformers' ``MimiModel`` without its second half. transformers 5.21 split that model in two:
upstream's class can no longer be built, and the names of its weights are no longer those of the published files.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

MOVED = ("encoder_seanet", "encoder_transformer", "downsample")  # parts of the first half, from 5.21 on


def is_split() -> bool:
    from transformers import MimiModel

    return isinstance(getattr(MimiModel, "encoder_transformer", None), property)


def keep_published_names(modeling: ModuleType) -> None:
    """Give upstream's codec an encoder that can be built and loaded, if transformers has split Mimi.

    ``modeling`` is the pack's own copy of ``qwen_tts.core.tokenizer_12hz.modeling_qwen3_tts_tokenizer_v2``. Raises
    ImportError if the halves have other parts than those known here.
    """
    if is_split():
        modeling.Qwen3TTSTokenizerV2Encoder = encoder_class()  # type: ignore[attr-defined]


def encoder_class() -> type[torch.nn.Module]:
    from transformers.models.mimi.modeling_mimi import MimiEncoderOutput, MimiModel, MimiPreTrainedModel

    class CodecEncoder(MimiPreTrainedModel):
        """Mimi's first half and its quantizer, under the names that they had before 5.21."""

        def __init__(self, config: Any):
            super().__init__(config)
            mimi = MimiModel(config)
            half = mimi.encoder
            if missing := [name for name in MOVED if not hasattr(half, name)]:
                raise ImportError(f"Mimi's encoder has no {', '.join(missing)}")
            self.encoder = half.encoder_seanet
            self.encoder_transformer = half.encoder_transformer
            self.downsample = half.downsample
            self.quantizer = mimi.quantizer
            # Not a submodule: its parts are those above, and each weight must have one name.
            self.__dict__["_half"] = half
            self.post_init()

        def encode(self, input_values: torch.Tensor, **_: Any) -> Any:
            """Return ``audio_codes`` ``[B, quantizers, frames]`` of ``[B, 1, T]``, as ``MimiModel.encode`` does."""
            latents = self.__dict__["_half"](input_values).latents
            codes: Any = self.quantizer.encode(latents).transpose(0, 1)
            return MimiEncoderOutput(audio_codes=codes)

    return CodecEncoder
