"""The files that Save Voice wrote since ComfyUI started: they do not count as changed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web

from ...morph.runtime.atomic_file import FileState, file_state

Fingerprint = FileState | tuple[FileState, FileState]


class SavedVoices:
    def __init__(self) -> None:
        # The state of each file as it was written, and the fingerprint of the run that wrote it.
        self._saved: dict[Path, tuple[FileState, Fingerprint]] = {}

    def fingerprint(self, path: Path) -> Fingerprint:
        """Return what changes when a file is deleted or replaced, but not when it is saved where there was none."""
        state, saved = file_state(path), self._saved.get(path)
        if saved is None:
            return state
        return saved[1] if state == saved[0] else (state, saved[0])

    @contextmanager
    def saving(self, path: Path) -> Iterator[None]:
        """Record the file that the ``with`` block writes; nothing if it raises."""
        was_there, before = path.exists(), self.fingerprint(path)
        yield
        state = file_state(path)
        # A voice that was replaced counts as changed: the workflow that saved it may run again.
        self._saved[path] = (state, state if was_there else before)


APP_KEY = web.AppKey("qwen3_tts_morph.saved_voices", SavedVoices)  # where the server's application keeps it


def saved_voices() -> SavedVoices:
    """Return the record of this process; an empty one without a server."""
    from server import PromptServer

    server = getattr(PromptServer, "instance", None)
    return SavedVoices() if server is None else server.app.get(APP_KEY) or SavedVoices()
