"""Patterns are those of Python 3.10, which the pack supports: it has no possessive repeats and no atomic groups."""

import importlib
import pkgutil
import re
import sys

import pytest
from qwen3_tts_morph.morph import text

MODULES = [one.name for one in pkgutil.walk_packages(text.__path__, f"{text.__name__}.")]
NEWER = ("POSSESSIVE_REPEAT", "ATOMIC_GROUP")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="this Python refuses them itself")
@pytest.mark.parametrize("name", MODULES)
def test_no_pattern_needs_a_newer_python(name: str) -> None:
    module = importlib.import_module(name)
    parser = importlib.import_module("re._parser")
    named = [value for value in vars(module).values() if isinstance(value, re.Pattern)]
    for pattern in [*named, *(pattern for pattern, _ in getattr(module, "RULES", ()))]:
        assert not any(word in str(parser.parse(pattern.pattern)) for word in NEWER), pattern
