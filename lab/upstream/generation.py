"""Make upstream's ``generate`` work on newer versions of transformers as on 4.57.

Only the comparisons with upstream (``lab/check``, the tests) call it; the engines call upstream's layers.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

OLD, NEW = "past_key_values", "cache"
GENERATING = (
    "Qwen3TTSTalkerForConditionalGeneration",
    "Qwen3TTSTalkerCodePredictorModelForConditionalGeneration",
)


def is_renamed() -> bool:
    from transformers.modeling_outputs import BaseModelOutputWithPast

    return NEW in {field.name for field in dataclasses.fields(BaseModelOutputWithPast)}


def accept_new_names(modeling: ModuleType) -> None:
    """Let upstream's models take and return the cache as ``cache``, transformers' name for it from 5.23 on.

    ``modeling`` is the pack's own copy of ``qwen_tts.core.models.modeling_qwen3_tts``.
    """
    from transformers.utils import ModelOutput

    if not is_renamed():
        return
    for name, value in list(vars(modeling).items()):
        if isinstance(value, type) and issubclass(value, ModelOutput) and _has_old_name(value):
            setattr(modeling, name, _with_new_name(value))
    for name in GENERATING:
        model = getattr(modeling, name)
        model.forward = _taking_new_name(model.forward)


def penalize_all_generated(modeling: ModuleType) -> None:
    """Let the talker's repetition penalty count all generated codes.

    From 5.23 on transformers skips as many of the first ids as a row of the prompt has padding. Upstream's prompt is
    embeddings, so that all ids are generated ones: the first codes of padded rows would not be penalized.
    """
    from transformers.generation import RepetitionPenaltyLogitsProcessor

    talker = modeling.Qwen3TTSTalkerForConditionalGeneration
    make = talker._get_logits_processor

    @functools.wraps(make)
    def without_padding(self: Any, *args: Any, **kwargs: Any) -> Any:
        processors = make(self, *args, **kwargs)
        for one in processors:
            if isinstance(one, RepetitionPenaltyLogitsProcessor):
                one.prompt_ignore_length = None
        return processors

    talker._get_logits_processor = without_padding


def _has_old_name(output: type[Any]) -> bool:
    return dataclasses.is_dataclass(output) and OLD in {field.name for field in dataclasses.fields(output)}


def _with_new_name(output: type[Any]) -> type[Any]:
    fields = [
        (NEW if field.name == OLD else field.name, field.type, dataclasses.field(default=field.default))
        for field in dataclasses.fields(output)
    ]
    return dataclasses.make_dataclass(
        output.__name__, fields, bases=output.__bases__, namespace={"__module__": output.__module__}
    )


def _taking_new_name(forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def renamed(self: Any, *args: Any, **kwargs: Any) -> Any:
        if NEW in kwargs:
            kwargs[OLD] = kwargs.pop(NEW)
        return forward(self, *args, **kwargs)

    return renamed
