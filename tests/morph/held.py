"""What graph decoders have allocated, without keeping it alive."""

import weakref

import pytest
from qwen3_tts_morph.morph.frame.buffers import Buffers
from torch.multiprocessing.reductions import StorageWeakRef


class Held:
    """The buffers of one decoder: their rows, and whether their memory has been released."""

    def __init__(self, buffers: Buffers):
        self.buffers, self.rows = weakref.ref(buffers), len(buffers.state.tokens)
        tensors = (buffers.cache.keys, buffers.text, buffers.angles.cos, buffers.state.tokens)
        self._storages = [StorageWeakRef(one.untyped_storage()) for one in tensors]

    @property
    def is_released(self) -> bool:
        return self.buffers() is None and all(one.expired() for one in self._storages)


def note_buffers(monkeypatch: pytest.MonkeyPatch) -> list[Held]:
    """Return a list, to which all buffers are added that are allocated from now on."""
    allocate, held = Buffers.allocate, list[Held]()

    def note(*given: object) -> Buffers:
        buffers = allocate(*given)
        held.append(Held(buffers))
        return buffers

    monkeypatch.setattr(Buffers, "allocate", note)
    return held
