"""Start the speech server: options, ports, model, warm-up. Until ``run_server``, nothing heavy is imported."""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.util
import logging
import os
import random
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...morph.options import LoadOptions
from ...morph.text.pronunciation import read_pronunciation
from ..api.options import KEY_VARIABLE, PORT, Access, Limits, ServerOptions, body_bytes, listed_hosts
from ..terminal.arguments import add_model, add_switch, existing_file, folder

if TYPE_CHECKING:
    from ..routes.app import App
    from ..routes.speaker import Speaker

log = logging.getLogger(__name__)

# The extra "serve" of pyproject.toml: modules, and what pip calls them.
PACKAGES = {
    "fastapi": "fastapi>=0.115.6",
    "starlette": "starlette>=0.40",
    "uvicorn": "uvicorn>=0.30",
    "websockets": "websockets>=13",
    "anyio": "anyio>=4",
    "av": "av>=14.2",
    "prometheus_client": "prometheus-client>=0.20",
}
SHUTDOWN_S = 5  # for a replica's answers to end after Ctrl+C
# The time that a thread may hold the GIL. The model's thread releases it at each of a frame's dozens of operations,
# and waits so long to get it back from a busy thread (docs/log/many-gpus.md).
SWITCH_S = 0.00002
MORE_CONNECTIONS = 200  # beside spoken and queued requests: pages, checks, metrics
BACKLOG = 16  # connections that the event loop accepts in one step: more would delay others
OWN_FILES = 80  # open files of the process, and of spare connections
# Below the ephemeral ports, of which Ray takes many while it starts.
OFFERED = range(20_000, 30_000)
MOST_DROPPED = 64  # connections per call: then the event loop continues
BROKEN_OFF = "ASGI callable returned without completing response."  # uvicorn's words


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the server's options to a command line; ``read_options`` reads them."""
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=PORT)
    add_model(parser, attention=False)
    parser.add_argument("--voices", type=folder)
    parser.add_argument("--pronunciation", type=existing_file, metavar="FILE")
    parser.add_argument("--devices", nargs="+", default=[], metavar="DEVICE")
    parser.add_argument("--warm-groups", type=int, nargs="+", default=[], metavar="N")
    parser.add_argument("--allow-origin")
    parser.add_argument("--seq-groups", type=int, default=5)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--waiting", type=int, default=64)
    parser.add_argument("--most-characters", type=int, default=Limits.characters)
    parser.add_argument("--most-seconds", type=float, default=Limits.seconds)
    parser.add_argument("--most-pause", type=float, default=Limits.pause_seconds)
    parser.add_argument("--replicas", type=int)
    for name in ("ray", "open-lists", "strict", "access-log"):
        add_switch(parser, f"--{name}")


def read_options(arguments: argparse.Namespace) -> ServerOptions:
    """Return the options of a command line and of the environment (key, hosts); ValueError for unusable ones."""
    key, words = os.environ.get(KEY_VARIABLE, ""), arguments.pronunciation
    access = Access(arguments.host, key, arguments.allow_origin, tuple(listed_hosts()), open_lists=arguments.open_lists)
    given = {name: value for name, value in vars(arguments).items() if name in ServerOptions.__dataclass_fields__}
    given |= {
        "access": access,
        "pronunciation": () if words is None else (read_pronunciation(Path(words)),),
        "adapters": tuple((Path(word), strength) for word, strength in arguments.lora),
        "devices": tuple(arguments.devices or [arguments.device]),
        "load": LoadOptions(arguments.precision, engine=arguments.engine, weights=arguments.weights),
        "warm_groups": tuple(arguments.warm_groups),
        "replicas": arguments.replicas if arguments.replicas is not None and arguments.ray else 1,
        "limits": Limits(
            characters=arguments.most_characters,
            body_bytes=body_bytes(arguments.most_characters),
            seconds=arguments.most_seconds,
            pause_seconds=arguments.most_pause,
        ),
    }
    return ServerOptions(**given)


def check_packages() -> None:
    """Raise ValueError, with the command that installs them, if packages of the extra are missing."""
    missing = [need for module, need in PACKAGES.items() if importlib.util.find_spec(module) is None]
    if missing:
        names = ", ".join(need.partition(">")[0] for need in missing)
        wanted = " ".join(f'"{need}"' for need in missing)
        raise ValueError(f"the server needs {names}: run {sys.executable} -m pip install {wanted}")


def run_server(options: ServerOptions) -> None:
    """Load the model, listen, and answer until Ctrl+C. Messages go to the log. The process ends soon after.

    Raises ValueError for missing packages or a bad checkpoint, OSError if the address is in use.
    """
    check_packages()
    sys.setswitchinterval(SWITCH_S)
    gc.disable()  # until the first line is spoken: collections take a tenth of the imports' time in vain
    try:
        from ...morph.kernels import preload

        for name in options.devices:  # GPUs are prepared beside imports and the weights
            threading.Thread(target=preload, args=(name,), name="speech warm-up", daemon=True).start()
        with bind(options.access.host, options.port) as bound:  # before the model is loaded
            app = make_app(options)
            from .uvicorn_server import UvicornServer  # not earlier: the model warms up meanwhile

            lines = options.most_lines(app.state.speaker.status.rows)
            server = UvicornServer(app, options.limits, *fit_connections(lines + MORE_CONNECTIONS))
            log.info("listening on %s port %d", *bound.getsockname()[:2])
            logging.getLogger("uvicorn.error").addFilter(is_worth_a_line)
            server.run([bound])
    finally:
        gc.enable()


def fit_connections(wanted: int) -> tuple[int, int]:
    """Return the most connections and the backlog, both within the limit of open files."""
    try:
        import resource

        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except ImportError:  # on Windows connections are not files
        files = -1
    if files < 0:  # no limit
        return wanted, BACKLOG
    backlog = max(1, min(BACKLOG, files // 4))
    connections = max(1, min(wanted, files - OWN_FILES - backlog))
    if connections < wanted:
        log.warning("at most %d connections are taken, not %d: raise the limit of open files", connections, wanted)
    return connections, backlog


def is_worth_a_line(record: logging.LogRecord) -> bool:
    """Return False for uvicorn's records that clients cause.

    These are tracebacks of answers that Ctrl+C ended and of text that is not UTF-8, WebSockets that opened or closed,
    and broken-off streams, which have their own record.
    """
    if (record.levelno <= logging.INFO and "websockets" in record.pathname) or record.msg == BROKEN_OFF:
        return False
    expected = (asyncio.CancelledError, UnicodeDecodeError)
    return record.exc_info is None or not isinstance(record.exc_info[1], expected)


def make_app(options: ServerOptions) -> App:
    """Load the model and return the application; a thread warms it up, after which ``/ready`` says so."""
    speaker = load_speaker(options)
    threading.Thread(target=_warm, args=(speaker,), name="speech warm-up", daemon=True).start()
    from ..routes.app import App  # meanwhile

    return App(speaker, options)


def load_speaker(options: ServerOptions) -> Speaker:
    from ...morph.checkpoint.find import demo_voice
    from ..routes.speaker import Speaker
    from ..terminal.engine import choose_device, load_adapted, read_adapters

    devices = [choose_device(name) for name in options.devices]
    path, adapters = options.checkpoint or demo_voice(), read_adapters(options.adapters)
    first, *others = [load_adapted(path, options.load, device, adapters) for device in devices]
    return Speaker(first, options, others)


def _warm(speaker: Any) -> None:
    from ...morph.runtime.collector import freeze_for_good

    prepare(speaker, partial(speaker.warm, freeze_for_good))
    gc.enable()
    if speaker.is_ready:
        prepare(speaker, speaker.prepare_rest)


def prepare(speaker: Any, work: Callable[[], None]) -> None:
    """Do a part of the warm-up, and log a failure."""
    from ...morph.batch.speech import BatchClosed

    try:
        work()
    except BatchClosed:
        log.info("closed before all was prepared")
    except Exception:
        result = "requests may wait for captures" if speaker.is_ready else "/ready stays false"
        log.exception("not all could be prepared: %s", result)


class ListeningSocket(socket.socket):
    """A listening socket that drops connections that were reset before they are accepted.

    Strangers can open thousands a second, and each would cost the event loop far more than this check.
    """

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection, as ``socket.accept``; BlockingIOError for none."""
        for _ in range(MOST_DROPPED):
            connection, address = super().accept()
            if not connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                return connection, address
            connection.close()
        raise BlockingIOError


def free_ports(count: int) -> list[int]:
    """Return ``count`` free ports; OSError if there are fewer."""
    found: list[int] = []
    with ExitStack() as held:  # together: they must differ
        for port in random.SystemRandom().sample(OFFERED, len(OFFERED)):
            probe = held.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind(("", port))
                found.append(port)
            if len(found) == count:
                return found
    raise OSError(f"{count} ports are needed, and of {OFFERED.start} to {OFFERED.stop - 1} too few are free")


def bind(host: str, port: int) -> ListeningSocket:
    """Return a socket bound to this address; OSError if it is in use, or not on this computer."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except UnicodeError as error:  # empty or too long between two dots
        raise socket.gaierror(socket.EAI_NONAME, "no host can have this name") from error
    bound = ListeningSocket(family, kind, protocol)
    if os.name != "nt":  # there it would let two programs listen
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound
