"""transformers' ``AutoModel`` for the pack's own copy of ``qwen_tts``, with the classes of this copy alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..json_file import read_object

FOR_MODEL = ("dtype", "attn_implementation")  # arguments that the config would keep to itself


class OwnAutoModel:
    """Loads checkpoints with the classes that this copy registered for their types.

    ``AutoModel`` has one registry for all packs. In transformers 5.4 to 5.11 it also drops ``dtype``: upstream's codec
    was then loaded in the dtype of its files.
    """

    def __init__(self) -> None:
        self._classes: dict[str, tuple[Any, Any]] = {}

    def register(self, config_class: Any, model_class: Any) -> None:
        self._classes[config_class.model_type] = config_class, model_class

    def from_pretrained(self, path: str, **kwargs: Any) -> Any:
        """Load a folder by the ``model_type`` in its config.json; ValueError for a type that is not registered."""
        kind = read_object(Path(path) / "config.json").get("model_type")
        if kind not in self._classes:
            raise ValueError(
                f"model_type in config.json is {kind!r}: it must be {' or '.join(self._classes)}"
            )
        config_class, model_class = self._classes[kind]
        for_model = {name: kwargs.pop(name) for name in FOR_MODEL if name in kwargs}
        config, rest = config_class.from_pretrained(path, return_unused_kwargs=True, **kwargs)
        return model_class.from_pretrained(path, config=config, **for_model, **rest)
