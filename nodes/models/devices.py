"""Devices by ComfyUI's own option strings: default, cpu, gpu:0, gpu:1, and so on.

A device that this machine lacks becomes the default one, as in ComfyUI's own nodes, so that workflows run anywhere.
"""

import logging
import re

import comfy.model_management as management
import torch

log = logging.getLogger(__name__)

DEFAULT, CPU, ALL_GPUS = "default", "cpu", "all GPUs"
GPU = re.compile(r"gpu:(\d{1,3})")


def device_options() -> list[str]:
    """Return this machine's options; GPUs by number only if there are several."""
    gpus = gpu_options()
    return [DEFAULT, CPU, *gpus, *([ALL_GPUS] if gpus else [])]


def gpu_options() -> list[str]:
    """Return "gpu:0" and so on if ComfyUI may use several GPUs, otherwise nothing."""
    if hasattr(management, "get_gpu_device_options"):  # ComfyUI knows which GPUs its user allows
        return [option for option in management.get_gpu_device_options() if GPU.fullmatch(option)]
    count = torch.cuda.device_count() if management.get_torch_device().type == "cuda" else 0
    return [f"gpu:{number}" for number in range(count)] if count > 1 else []


def check_device_option(option: object) -> None:
    """Raise ValueError for what names no device on any machine; a GPU that is not here is accepted."""
    known = isinstance(option, str) and (option in (DEFAULT, CPU, ALL_GPUS) or GPU.fullmatch(option))
    if not known:
        raise ValueError(
            f"device is {option!r}: choose {DEFAULT}, {CPU}, gpu:0 (or another number) or {ALL_GPUS}"
        )


def find_devices(option: str) -> list[torch.device]:
    """Return the devices of an option, none if this machine lacks it; errors as ``check_device_option``."""
    check_device_option(option)
    if option == DEFAULT:
        return [management.get_torch_device()]
    if option == CPU:
        return [torch.device("cpu")]
    wanted = gpu_options() if option == ALL_GPUS else [option]
    return [device for one in wanted if (device := _find_gpu(one)) is not None]


def resolve_devices(option: str) -> list[torch.device]:
    """Return the devices of an option, or the default one, with a warning; errors as ``check_device_option``."""
    found = find_devices(option)
    if not found:
        log.warning("device %r is not on this machine: the default device is used", option)
    return found or find_devices(DEFAULT)


def _find_gpu(option: str) -> torch.device | None:
    if hasattr(management, "resolve_gpu_device_option"):
        device: torch.device | None = management.resolve_gpu_device_option(option)
        return device
    if option not in gpu_options():
        return None
    return torch.device("cuda", int(option.partition(":")[2]))
