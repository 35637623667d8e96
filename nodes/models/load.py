"""The nodes Load Model, Load LoRA and Remote Model, recognisers, and devices by ComfyUI's option strings."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import comfy.model_management as management
import torch
from comfy_api.latest import io

from ...morph.checkpoint import find
from ...morph.checkpoint.adapter_file import read_adapter
from ...morph.checkpoint.download import fetch_checkpoint
from ...morph.checkpoint.load import choose_attention, choose_dtype
from ...morph.hearing.whisper import Whisper, load_whisper
from ...morph.options import ADAPTER_STRENGTH, LoadOptions
from ...morph.setting import settings_of
from ...serve.remote.facts import ServerFacts
from ...serve.remote.servers import Server, find_server, listed_servers
from .. import inputs
from ..folders import folders
from ..inputs import ModelSocket, listed, schema
from ..page.progress import NodeProgress, show_progress
from .values import AnyModel, LoadedModel, ManagedModel, ServedModel, check_model, load_managed, shown

log = logging.getLogger(__name__)

DEFAULT, CPU, ALL_GPUS = "default", "cpu", "all GPUs"
GPU = re.compile(r"gpu:(\d{1,3})")


def device_options() -> list[str]:
    """Return this machine's options; GPUs by number only if there are several."""
    found = gpus()
    return [DEFAULT, CPU, *found, *([ALL_GPUS] if found else [])]


def gpus() -> dict[str, torch.device]:
    """Return the GPUs by their options if ComfyUI may use several, otherwise nothing."""
    newer: Any = management  # ComfyUIs that know which GPUs their user allows
    if hasattr(newer, "get_gpu_device_options"):
        names = [name for name in newer.get_gpu_device_options() if GPU.fullmatch(name)]
        return {name: newer.resolve_gpu_device_option(name) for name in names}
    count = torch.cuda.device_count() if management.get_torch_device().type == "cuda" else 0
    return {f"gpu:{number}": torch.device("cuda", number) for number in range(count)} if count > 1 else {}


def check_device_option(option: object) -> None:
    """Raise ValueError unless an option names a device; a GPU that this machine lacks is accepted."""
    if not isinstance(option, str) or not (option in (DEFAULT, CPU, ALL_GPUS) or GPU.fullmatch(option)):
        raise ValueError(f"device is {option!r}: choose {DEFAULT}, {CPU}, gpu:0 (or another number) or {ALL_GPUS}")


def find_devices(option: str) -> list[torch.device]:
    """Return the devices of an option, none if this machine lacks it; errors as ``check_device_option``."""
    check_device_option(option)
    if option == DEFAULT:
        return [management.get_torch_device()]
    if option == CPU:
        return [torch.device("cpu")]
    return [device for name, device in gpus().items() if option in (name, ALL_GPUS)]


def load_recogniser(size: str, progress: NodeProgress) -> Whisper:
    """Return a recogniser of ComfyUI's model folder; errors as ``load_whisper``."""
    progress.say(f"loading faster-whisper {size}")
    return load_whisper(size, folders().recognisers)


NO_ADAPTER = "(no adapter is there)"
SETTINGS = settings_of(LoadOptions)


class LoadModel(io.ComfyNode):
    define_schema = schema(
        "MorphTTSLoadModel",
        advanced="precision attention engine weights device",
        inputs=lambda: [
            inputs.choice("checkpoint", offered_checkpoints(), find.DEMO_VOICE),
            *(inputs.setting(name, LoadOptions, optional=name == "weights") for name in SETTINGS),
            inputs.choice("device", device_options(), DEFAULT, optional=True),
            ModelSocket.Input("more_models", optional=True),
        ],
        outputs=[ModelSocket.Output("loaded_model")],
        hidden=[io.Hidden.unique_id],
    )

    validate_inputs = inputs.validating([*SETTINGS, "device", "checkpoint"], lambda **given: judge_model(given))

    @classmethod
    def fingerprint_inputs(cls, checkpoint: str | None = None, **_: object) -> list[tuple[str, int, int]]:
        """Change with the checkpoint's files, so that ComfyUI loads it again. ``checkpoint`` is None if it is wired."""
        path = None if checkpoint is None else find.resolve_checkpoint(checkpoint, folders().checkpoints)
        return [] if path is None else find.fingerprint(path)

    @classmethod
    def execute(
        cls, checkpoint: str, device: str = DEFAULT, more_models: ManagedModel | None = None, **chosen: str
    ) -> io.NodeOutput:
        options, more = LoadOptions(**chosen), models_of(more_models)
        path = find.resolve_checkpoint(checkpoint, folders().checkpoints)
        with show_progress(cls.hidden.unique_id) as progress:
            if path is None:
                progress.say(f"downloading {checkpoint}")
                path = fetch_checkpoint(checkpoint, folders().downloads, progress)
            progress.say(f"loading {checkpoint}")
            check_same(path, options, more)
            # If a device is missing here, a chain of nodes must not load the default one twice.
            loaded = [] if device == CPU else [one.origin.device for one in more]
            if not (found := find_devices(device)):
                log.warning("device %r is not on this machine: the default device is used", device)
            devices = [one for one in found or find_devices(DEFAULT) if one not in loaded]
            models = [load_managed(path, options, one) for one in devices] + more
        return io.NodeOutput(ManagedModel(models))


def offered_checkpoints() -> list[str]:
    failed = f"cannot list the model folders; still offered are {find.DEMO_VOICE} and the published checkpoints"
    found = listed(failed, lambda: find.list_checkpoints(folders().checkpoints))
    return [find.DEMO_VOICE, *found, *find.PUBLISHED]


def judge_model(given: Mapping[str, Any]) -> bool | str:
    """Return whether a model can be loaded with these inputs, before anything runs or is downloaded."""
    device, precision = given.get("device"), given.get("precision")
    verdict = inputs.judge(
        **{name: (one.check, given.get(name)) for name, one in SETTINGS.items()},
        device=(check_device_option, device),
        checkpoint=(lambda name: find.resolve_checkpoint(name, folders().checkpoints), given.get("checkpoint")),
    )
    if verdict is not True or not isinstance(precision, str):  # wired, or a broken link
        return verdict

    def check_on_devices(attention: str) -> None:
        for one in find_devices(device or DEFAULT) or find_devices(DEFAULT):
            choose_attention(attention, one, choose_dtype(precision, one))

    return inputs.judge(
        precision=(lambda _: check_on_devices("auto"), precision),
        attention=(check_on_devices, given.get("attention")),
    )


def models_of(value: object) -> list[LoadedModel]:
    """Return the models of a model socket, none if it is not connected; ValueError for anything else."""
    if value is None:
        return []
    if isinstance(value, ManagedModel):
        return list(value.models)
    what = "a server" if isinstance(value, ServedModel) else shown(value)
    raise ValueError(f"more_models is {what}: connect another Load Qwen3-TTS Model")


def check_same(path: Path, options: LoadOptions, more: Sequence[LoadedModel]) -> None:
    """Raise ValueError if a model of ``more_models`` has another source or other settings."""
    for one in more:
        title, theirs = one.synthesizer.model.title, one.origin
        if one.synthesizer.model.adapters:
            fix = "connect Load LoRA after this node, to all devices at once"
            raise ValueError(f"more_models is {title}, which has an adapter: {fix}")
        if theirs.path != path:
            what = f"more_models has the checkpoint {theirs.path.name}, and this node {path.name}"
            raise ValueError(f"{what}: choose the same one")
        if theirs.options != options:
            old, new = (
                ", ".join(f"{name} {value}" for name, value in asdict(chosen).items())
                for chosen in (theirs.options, options)
            )
            what = f"more_models was loaded with {old}, and this node has {new}"
            raise ValueError(f"{what}: choose the same settings")


class LoadLora(io.ComfyNode):
    define_schema = schema(
        "MorphTTSLoadLora",
        inputs=lambda: [
            ModelSocket.Input("model"),
            inputs.choice("adapter", listed("cannot list the adapters", list_adapters, NO_ADAPTER)),
            inputs.number("strength", 1.0, (ADAPTER_STRENGTH.low, ADAPTER_STRENGTH.high, 0.05)),
        ],
        outputs=[ModelSocket.Output("adapted_model")],
        hidden=[io.Hidden.unique_id],
    )

    validate_inputs = inputs.judged(adapter=lambda name: find_adapter(name))

    # ComfyUI loads the adapter again if its files have changed.
    fingerprint_inputs = inputs.changing("adapter", lambda name: find.fingerprint(find_adapter(name)))

    @classmethod
    def execute(cls, model: AnyModel, adapter: str, strength: float) -> io.NodeOutput:
        check_model(model)
        path = find_adapter(adapter)
        with show_progress(cls.hidden.unique_id) as progress:
            progress.say(f"loading {adapter}")
            return io.NodeOutput(model.with_adapter(read_adapter(path), strength))


def list_adapters() -> dict[str, Path]:
    return find.list_adapters(folders().adapters)


def find_adapter(name: str) -> Path:
    """Return an adapter's folder by its label in the list; ValueError for another name."""
    if name == NO_ADAPTER:
        places = " or ".join(f"models/{folder}" for folder in find.ADAPTER_FOLDERS)
        raise ValueError(f"adapter is {name!r}: copy the folder that peft wrote into {places} and press R")
    found = list_adapters()
    if not isinstance(name, str) or name not in found:  # ComfyUI's API accepts any JSON value
        raise ValueError(f"adapter is {name!r}, which is not there: press R to reload the list and choose another")
    return found[name]


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
