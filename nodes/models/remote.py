"""The Remote Model node: a speech server in place of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from comfy_api.latest import io

from ...morph.voice.recording import Recording
from ...morph.voice.voice import Voice, check_design
from ...serve.remote.servers import Server, find_server, listed_servers
from .. import inputs
from ..page.progress import NodeProgress, show_progress
from ..schema import ModelSocket, listed, schema

if TYPE_CHECKING:
    from ...morph.batch.speech import Speaks
    from ...serve.remote.facts import ServerFacts

NO_SERVER = "(no server is listed)"


class RemoteModel(io.ComfyNode):
    define_schema = schema(
        "MorphTTSRemoteModel",
        inputs=lambda: [
            inputs.choice("server", listed("no remote server can be used", listed_servers, NO_SERVER)),
            io.Boolean.Input("voice_consent", default=False),
        ],
        outputs=[ModelSocket.Output("remote_model")],
        hidden=[io.Hidden.unique_id],
    )

    validate_inputs = inputs.judged(server=find_server)

    @classmethod
    def fingerprint_inputs(cls, server: str, **_: bool) -> str:
        """Change with the server's facts; an error is shown when the node runs."""
        try:
            return repr(ask(find_server(server)))
        except (ConnectionError, ValueError) as error:
            return str(error)

    @classmethod
    def execute(cls, server: str, voice_consent: bool = False) -> io.NodeOutput:
        with show_progress(cls.hidden.unique_id) as progress:
            progress.say(f"asking {server}")
            return io.NodeOutput(ServedModel(ask(find_server(server), progress), voice_consent))


def ask(server: Server, progress: NodeProgress | None = None) -> ServerFacts:
    """Return a server's facts; a user who cancels ends the request."""
    from ...serve.remote.connection import ask_server

    return ask_server(server, (lambda: progress(0, 1)) if progress else lambda: None)


@dataclass(frozen=True)
class ServedModel:
    """The value of the model socket for a server; see ``ManagedModel``. ``consent``: cloned voices may be sent."""

    facts: ServerFacts
    consent: bool = False

    @contextmanager
    def open(self, rows: int, cast: Mapping[str, Voice] | None = None) -> Iterator[Speaks]:
        """Yield the server's backend; ConnectionError if it is gone, ValueError for a character's own model."""
        from ...serve.remote.connection import ServerGone
        from ...serve.remote.speaks import RemoteSpeaks

        if own := [name for name, voice in (cast or {}).items() if voice.by is not None]:
            raise ValueError(
                f"{own[0]} has a model of its own, and model is server {self.facts}, which speaks all lines: "
                "disconnect that model from Cast"
            )
        try:
            with RemoteSpeaks(self.facts, self.consent, rows) as speaks:
                yield speaks
        except ServerGone as error:  # the page shows other than built-in types with their module's path
            raise ConnectionError(str(error)) from error

    def use(self) -> NoReturn:
        raise ValueError(
            f"model is server {self.facts}, and this node needs one of this computer: connect Load Qwen3-TTS Model"
        )

    def with_adapter(self, *_: object) -> NoReturn:
        raise ValueError(
            f"model is server {self.facts}, which speaks with the adapter that it was started with: start it with "
            "--lora, and connect it without this node"
        )

    def speakers(self) -> list[str]:
        return list(self.facts.voices)

    def clone_recording(self, recording: Recording) -> NoReturn:
        raise ValueError(
            f"voice {recording.name!r} is a recording, and model is server {self.facts}: clone and save it on this "
            "computer first, with Clone Voice and Save Voice"
        )

    def preset_voice(self, speaker: str, instruct: str) -> Voice:
        """Return one of the server's voices; ValueError if it does not have it."""
        name = self.facts.speaker(speaker)
        return Voice("preset", self.facts.size, name=name, speaker=name, instruct=instruct.strip() or None)

    def design_voice(self, description: str) -> Voice:
        """Return a voice from a description, which the server reads with each line."""
        instruct = check_design(description)
        return Voice("design", self.facts.size, name="designed voice", instruct=instruct)
