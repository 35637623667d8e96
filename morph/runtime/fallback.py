"""Parts that run slower than they could, and the reason."""

from dataclasses import dataclass

# What runs instead of each part.
INSTEAD = {
    "CUDA graphs": "op by op, without CUDA graphs",
    "Triton kernels": "torch operations",
    "codec kernels": "waveforms in torch operations, slower",
}


@dataclass(frozen=True)
class Fallback:
    """A ``part`` (one of INSTEAD) that cannot run, and the reason."""

    part: str
    why: str

    def __post_init__(self) -> None:
        if self.part not in INSTEAD:
            raise ValueError(f"part is {self.part!r}: choose one of {', '.join(INSTEAD)}")

    def describe(self) -> str:
        return f"{INSTEAD[self.part]}: {self.why}"
