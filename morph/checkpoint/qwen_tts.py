"""Import ``qwen_tts`` even if packages that only its 25 Hz tokenizer uses are missing or broken.

``import qwen_tts`` imports that tokenizer, and with it torchaudio, sox and onnxruntime; the 12 Hz models use none
of them. Only while the import runs, empty modules replace those that cannot be imported.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from ..model.rope import inverse_frequencies

log = logging.getLogger(__name__)

ONLY_FOR_25_HZ = ("torchaudio.compliance.kaldi", "sox", "onnxruntime")


class StandIn(ModuleType):
    """Replaces a module that cannot be imported: using anything in it raises ImportError with the reason."""

    def __init__(self, name: str, reason: Exception):
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None)
        self.__dict__["_reason"] = reason

    def __getattr__(self, attribute: str) -> object:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        raise ImportError(
            f"{self.__name__} could not be imported ({self._reason}); only the 25 Hz tokenizer needs it"
        )


@contextmanager
def stand_ins(names: tuple[str, ...] = ONLY_FOR_25_HZ) -> Iterator[list[str]]:
    """Replace modules that cannot be imported by empty ones during the ``with``.

    Yields the names of the replaced modules. After the ``with``, ``sys.modules`` has none of them.
    """
    placed: list[str] = []
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as reason:  # a broken native library raises OSError, RuntimeError or worse
            placed += _place(name, reason)
    try:
        yield placed
    finally:
        for name in placed:
            del sys.modules[name]
            parent, _, child = name.rpartition(".")
            if parent in sys.modules:
                delattr(sys.modules[parent], child)


def _place(name: str, reason: Exception) -> list[str]:
    """Put a stand-in for ``name`` and for each missing parent into ``sys.modules``; return their names."""
    placed: list[str] = []
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        part = ".".join(parts[:depth])
        if part in sys.modules:
            continue
        sys.modules[part] = StandIn(part, reason)
        placed.append(part)
        if depth > 1:
            sys.modules[".".join(parts[: depth - 1])].__dict__[parts[depth - 1]] = sys.modules[part]
    return placed


def _default_rope(config: Any, device: Any = None, *_: Any, **__: Any) -> tuple[Any, float]:
    """An entry of transformers' ``ROPE_INIT_FUNCTIONS``: frequencies and attention scaling."""
    return inverse_frequencies(config, device), 1.0


@contextmanager
def default_rope_registered() -> Iterator[None]:
    """Register RoPE of type "default" in transformers' registry, for qwen_tts, during the ``with``.

    transformers 5 has no such entry. qwen-tts-hf adds one permanently when it is imported, which from 5.17 on
    overrides every other model's own function (Mimi's, in the codec, then fails). The entry is needed while qwen_tts
    is imported and while its models are built; afterwards the registry is restored.
    """
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    before = ROPE_INIT_FUNCTIONS.get("default")
    ROPE_INIT_FUNCTIONS["default"] = _default_rope
    try:
        yield
    finally:
        if before is None:
            del ROPE_INIT_FUNCTIONS["default"]
        else:
            ROPE_INIT_FUNCTIONS["default"] = before


def import_qwen_tts() -> ModuleType:
    """Return the package ``qwen_tts`` (from ``qwen-tts`` or ``qwen-tts-hf``).

    Raises:
        ImportError: naming the fix, if it is not installed or does not fit the installed transformers.
    """
    if "qwen_tts" in sys.modules:
        return sys.modules["qwen_tts"]
    import transformers.utils

    # transformers caches the first answer: ask before a stand-in could make it "yes".
    transformers.utils.is_torchaudio_available()
    printed = io.StringIO()  # it prints a flash-attn warning that concerns only the 25 Hz tokenizer
    with stand_ins() as placed, default_rope_registered(), contextlib.redirect_stdout(printed):
        try:
            package = importlib.import_module("qwen_tts")
        except ImportError as error:
            raise ImportError(
                f"qwen_tts cannot be imported with transformers {transformers.__version__}: {error}. "
                "Run this pack's install.py with ComfyUI's Python (transformers 4.57 needs qwen-tts, "
                "transformers 5 needs qwen-tts-hf), then restart ComfyUI."
            ) from error
    log.debug("qwen_tts printed: %s", printed.getvalue().strip())
    if placed:
        log.info("not importable, and not needed for 12 Hz models: %s", ", ".join(placed))
    return package
