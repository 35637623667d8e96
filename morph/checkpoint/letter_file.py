"""Load ``letters.safetensors``, a checkpoint's letter table, which finds wrong words."""

from pathlib import Path

from safetensors import SafetensorError

from ..runtime.atomic_file import TooLarge, read_limited
from ..words.guard import LETTERS, LetterTable
from .tensor_file import unpack_tensors

LETTER_FILE = "letters.safetensors"
MOST_BYTES = 100_000_000


def load_letters(path: Path, codes: int) -> LetterTable:
    """Read a table; raise ValueError for a file that is damaged, or not of ``codes`` codes."""
    try:
        tensors, _ = unpack_tensors(read_limited(path, MOST_BYTES))
        table = LetterTable(**{name: one.float().numpy() for name, one in tensors.items()})
        if table.weights.shape != (3, codes + 1, 3, LETTERS) or table.prior.shape != (3, LETTERS):
            raise ValueError(f"its shapes are {table.weights.shape} and {table.prior.shape}")
    except (SafetensorError, OSError, TooLarge, TypeError, ValueError) as error:
        raise ValueError(
            f"{path.name} of {path.parent.name} is damaged or of another checkpoint ({error}): delete it, or make it "
            "again with `python -m lab.words letters`"
        ) from error
    return table
