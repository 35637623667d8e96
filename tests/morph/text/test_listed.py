"""Lists of figures are cut into their items, and read as they are read in one piece."""

from __future__ import annotations

import pytest
from qwen3_tts_morph.morph.text import normalize
from qwen3_tts_morph.morph.text.listed import cut_lists
from qwen3_tts_morph.morph.text.normalize import Normalizer


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("On 1/2/2003, 4/5/2006, 7/8/2009, or so", ["On 1/2/2003, 4/5/2006,", "7/8/2009, or so"]),
        ("5%, 6.5%; 7% 8% more", ["5%, 6.5%;", "7%", "8% more"]),
        ("$5 $6.50 \u00a37", ["$5 $6.50", "\u00a37"]),
        ("1, 2, 3, 4 and 5 people", ["1, 2,", "3, 4 and 5 people"]),
        ("It was May 5, 2020, 2021, too", ["It was May 5, 2020,", "2021, too"]),
        ("Call 555 0123 4567 or 10 5 3", ["Call 555 0123 4567 or 10 5 3"]),
        ("5, or 6, or 7, or 8", ["5, or 6, or 7, or 8"]),
        ("", [""]),
    ],
)
def test_a_list_is_cut_before_each_item_but_the_first_ones(text: str, parts: list[str]) -> None:
    assert cut_lists(text) == parts


@pytest.mark.parametrize(
    "text",
    [
        "On May 5, 2020, 2021, 2022, and 12 more.",
        "At 5:30, 6:45, 7:05 it rang; 31/12/1999, 2/3/2004, 1/1/2050!",
        "We had 5%, 0.5% 12.25%; $5, $0.50 \u00a31 and 3 others.",
    ],
)
def test_the_items_are_read_as_in_their_list(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(cut_lists(text)) > 1
    said = Normalizer("en").write_out(text)
    monkeypatch.setattr(normalize, "cut_lists", lambda whole: [whole])
    assert said == Normalizer("en").write_out(text)
