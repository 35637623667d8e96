"""Import ``qwen_tts`` even if packages that only its 25 Hz tokenizer uses are missing or broken.

It imports torchaudio, sox and onnxruntime for that tokenizer. Only while the import runs, empty modules replace
onnxruntime and every other package of the three that fails to import.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from qwen3_tts_morph.morph.model.network import inverse_frequencies

from .codec_encoder import keep_published_names
from .generation import accept_new_names, penalize_all_generated

log = logging.getLogger(__name__)

NAME = "_qwen3_tts_morph_qwen_tts"  # in sys.modules
# By transformers' major version; tests/environments.py has their versions
DISTRIBUTIONS = {4: "qwen-tts", 5: "qwen-tts-hf"}
ONLY_FOR_25_HZ = ("torchaudio.compliance.kaldi", "sox", "onnxruntime")
# Its import starts threads, for which a later fork would wait forever at exit.
NEVER_IMPORTED = "onnxruntime"


class StandIn(ModuleType):
    """A module that cannot be imported: using anything in it raises ImportError with the reason."""

    def __init__(self, name: str, reason: Exception):
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None)
        self.__dict__["_reason"] = reason

    def __getattr__(self, attribute: str) -> object:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        raise ImportError(f"{self.__name__} could not be imported ({self._reason}); only the 25 Hz tokenizer needs it")


@contextmanager
def stand_ins(names: tuple[str, ...] = ONLY_FOR_25_HZ) -> Iterator[list[str]]:
    """Replace modules that cannot be imported by empty ones during the ``with``; yield their names."""
    placed: list[str] = []
    for name in names:
        try:
            if name == NEVER_IMPORTED:
                raise ImportError("it is not needed")
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
    """Return frequencies and attention scaling: an entry of transformers' ``ROPE_INIT_FUNCTIONS``."""
    return inverse_frequencies(config, device), 1.0


@contextmanager
def default_rope_registered() -> Iterator[None]:
    """Register RoPE of type "default" in transformers' registry during the ``with``, as qwen_tts needs it.

    transformers 5 has no such entry. qwen-tts-hf adds one permanently when it is imported, which from 5.17 on
    overrides every other model's own function (Mimi's, in the codec, then fails). It is needed while qwen_tts is
    imported and while its models are built.
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
    """Return the package ``qwen_tts`` of ``qwen-tts`` or ``qwen-tts-hf``, by the installed transformers.

    It is imported under a name of the pack's own: ``sys.modules["qwen_tts"]`` may be another pack's copy, with other
    classes. All imports inside the package are relative, so that the copies do not mix.
    Raises ImportError, naming the fix, if it is not installed or does not fit the installed transformers.
    """
    if NAME in sys.modules:
        return sys.modules[NAME]
    import transformers.utils

    # transformers caches the first answer: ask before a stand-in could make it "yes".
    transformers.utils.is_torchaudio_available()
    printed = io.StringIO()  # it prints a flash-attn warning that concerns only the 25 Hz tokenizer
    with stand_ins() as placed, default_rope_registered(), contextlib.redirect_stdout(printed):
        try:
            package = _import_as(NAME, _find_package())
            _adapt(package)
        except (ImportError, AttributeError, TypeError) as error:
            _forget(NAME)
            raise ImportError(
                f"qwen_tts cannot be imported with transformers {transformers.__version__}: {error}. "
                "transformers 4.57 needs qwen-tts, transformers 5 needs qwen-tts-hf"
            ) from error
    log.debug("qwen_tts printed: %s", printed.getvalue().strip())
    if placed:
        log.info("not importable, and not needed for 12 Hz models: %s", ", ".join(placed))
    return package


def _adapt(package: ModuleType) -> None:
    """Patch the pack's own copy for the installed transformers."""
    talker, codec = package.core.models.modeling_qwen3_tts, package.core.tokenizer_12hz
    keep_published_names(codec.modeling_qwen3_tts_tokenizer_v2)
    accept_new_names(talker)
    penalize_all_generated(talker)


def _find_package() -> Path:
    """Return the folder of ``qwen_tts`` in the fitting distribution; ImportError if it is not installed."""
    import transformers

    fitting = DISTRIBUTIONS.get(int(transformers.__version__.partition(".")[0]))
    if fitting is None:
        raise ImportError("no qwen-tts was made for it")
    try:
        folder = Path(str(importlib.metadata.distribution(fitting).locate_file("qwen_tts")))
    except importlib.metadata.PackageNotFoundError as error:
        raise ImportError(f"{fitting} is not installed") from error
    if not (folder / "__init__.py").is_file():
        raise ImportError(f"{fitting} has no files in {folder.parent}")
    return folder


def _import_as(name: str, folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None  # it ends in .py
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    spec.loader.exec_module(package)
    return package


def _forget(name: str) -> None:
    """Remove a partly imported package, so that the next import starts over."""
    for module in [one for one in sys.modules if one == name or one.startswith(f"{name}.")]:
        del sys.modules[module]
