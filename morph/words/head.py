"""The attention head that follows the text: a property of the checkpoint. Needs no package: a command line reads it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class AlignmentHead:
    """A query head of the talker that attends to the text token being spoken; ValueError names a wrong field."""

    layer: int
    head: int
    lead_s: float = 0.0  # seconds from the frame that names a token to its sound

    def __post_init__(self) -> None:
        for name in ("layer", "head"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise ValueError(f"{name} is {value!r}: choose a whole number from 0 on")
        if type(self.lead_s) not in (int, float) or not -1 <= self.lead_s <= 1:
            raise ValueError(f"lead_s is {self.lead_s!r}: choose -1 to 1 second")


@dataclass(frozen=True)
class TalkerShape:
    """The shape that identifies a published talker: hidden size, layers, and query heads of a layer."""

    width: int
    layers: int
    heads: int


# As others have published them, not tried by us: the 1.7B's and the 0.6B's.
PUBLISHED_HEADS = {
    TalkerShape(2048, 28, 16): AlignmentHead(3, 0),
    TalkerShape(1024, 28, 16): AlignmentHead(6, 5),
}


def no_word_times(name: str) -> str:
    """Return the error text for a checkpoint without an alignment head."""
    return (
        f"{name} has no attention head that is known to follow the text, so its words have no times: find one with "
        "python -m lab.check --alignment in a clone of the repository and write the line that it prints into the "
        "checkpoint's morph.json, choose another checkpoint, or do without them"
    )
