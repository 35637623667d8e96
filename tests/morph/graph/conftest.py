"""Every model of these tests has an alignment head, so that engines are compared in what it says, too."""

from collections.abc import Callable

import pytest
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.words.head import AlignmentHead


@pytest.fixture
def load(load: Callable[..., Model], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Model]:
    """As ``tests/morph/conftest.py``'s, with a head."""

    def get(*what: str, **named: str) -> Model:
        model = load(*what, **named)
        monkeypatch.setattr(model, "alignment", AlignmentHead(1, 3))
        return model

    return get
