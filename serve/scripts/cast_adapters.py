"""Characters of a script who have LoRA adapters of their own (``--cast-lora``)."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...morph.batch.batch import Batch
from ...morph.batch.by_voice import ByVoice
from ...morph.batch.speaks import Speaks
from ...morph.model.adapter import Adapter
from ...morph.synthesizer import Synthesizer
from ...morph.voice.cast import Cast
from ..terminal.engine import find_adapters, folders_of, read_adapters


@dataclass(frozen=True)
class CastAdapters:
    """Adapters and their strengths by the names of characters, as the command line spells them."""

    given: Mapping[str, tuple[Adapter, float]]

    @classmethod
    def read(cls, options: argparse.Namespace) -> CastAdapters:
        """Return those of a command; ValueError for a name that is there twice, and as ``read_adapter``."""
        names = [name for name, _, _ in options.cast_lora]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"--cast-lora has {name!r} twice: keep one")
        found = find_adapters(
            [(word, strength) for _, word, strength in options.cast_lora], folders_of(options)
        )
        return cls(dict(zip(names, read_adapters(found), strict=True)))

    def mark(self, cast: Cast) -> Cast:
        """Return a cast whose voices, with their moods, say which adapter speaks them; ValueError for other names."""
        for name in self.given:
            if cast.spelled(name) is None:
                raise ValueError(
                    f"--cast-lora names {name!r}, who is not in the cast: add --cast {name}=VOICE"
                )
        return cast.spoken_by({name: name for name in self.given})

    def facts(self) -> dict[str, Any]:
        """Return, as JSON's values, what decides the sound of these characters."""
        return {
            "cast_adapters": {name: [one.digest, strength] for name, (one, strength) in self.given.items()}
        }

    @contextmanager
    def speaking(self, synthesizer: Synthesizer, path: Path, rows: int) -> Iterator[Speaks]:
        """Yield what speaks all lines, up to ``rows`` at once; ``path``: of the checkpoint; errors as ``adapt``."""
        with ExitStack() as opened:
            main = opened.enter_context(Batch(synthesizer, rows, linger_s=None))
            others: dict[str, Speaks] = {}
            for name, (adapter, strength) in self.given.items():
                own = synthesizer.with_adapter(adapter, strength, path)
                others[name] = opened.enter_context(Batch(own, rows, linger_s=None))
            yield ByVoice(main, others) if others else main
