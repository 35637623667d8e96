"""What torch and Triton load when a GPU is first used: the driver's context, libraries, modules."""

import logging

import torch

from . import available

log = logging.getLogger(__name__)


@torch.inference_mode()
def wake(name: str) -> None:
    """Load it all for a device (or "auto"), beside other work of the host; what fails is reported when it is needed."""
    try:
        device = torch.device("cuda" if name == "auto" else name)
        if device.type != "cuda" or not torch.cuda.is_available():
            return
        with torch.cuda.device(device):
            ones = torch.ones(1, 16, 16, dtype=torch.bfloat16, device=device)
            torch.matmul(ones, ones)
            torch.nn.functional.conv1d(ones, ones)
            if available(device) is None:
                # Others import these too. The first launch has Triton read all of itself, for keys of its cache.
                from . import frame  # noqa: F401
                from .codec import ops  # noqa: F401
                from .rows import gate

                gate(ones)
    except Exception:  # of many types, and of no use to anybody yet
        log.debug("%s could not be used ahead", name, exc_info=True)
