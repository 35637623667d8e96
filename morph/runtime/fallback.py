"""Parts that run slower than they could, and the reason."""

from dataclasses import dataclass

# Slower replacements by part.
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

    def describe(self) -> str:
        return f"{INSTEAD[self.part]}: {self.why}"
