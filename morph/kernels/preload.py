"""Load CUDA's context, libraries and Triton's modules before the first use of a GPU."""

import logging

import torch

from . import available

log = logging.getLogger(__name__)


@torch.inference_mode()
def preload(name: str) -> None:
    """Load them for a device, or "auto", while the host does other work; failures are raised by later use."""
    try:
        device = torch.device("cuda" if name == "auto" else name)
        if device.type != "cuda" or not torch.cuda.is_available():
            return
        with torch.cuda.device(device):
            ones = torch.ones(1, 16, 16, dtype=torch.bfloat16, device=device)
            torch.matmul(ones, ones)
            torch.nn.functional.conv1d(ones, ones)
            if available(device) is None:
                # The first launch makes Triton hash its own files, for the keys of its cache.
                from . import frame  # noqa: F401
                from .codec import ops  # noqa: F401
                from .rows import RowKernels

                RowKernels().gate(ones)
    except Exception:  # of many types; later use of the device reports it
        log.debug("%s could not be preloaded", name, exc_info=True)
