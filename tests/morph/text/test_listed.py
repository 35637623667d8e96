"""Lists of figures are cut into their items, and read as they are read in one piece."""

import pytest
from kitten_text_processing import normalize_text
from qwen3_tts_morph.morph.text import normalize
from qwen3_tts_morph.morph.text.normalize import Normalizer, cut_lists, write_amount


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("On 1/2/2003, 4/5/2006, 7/8/2009, or so", ["On 1/2/2003, 4/5/2006,", "7/8/2009, or so"]),
        ("5%, 6.5%; 7% 8% more", ["5%, 6.5%;", "7%", "8% more"]),
        ("$5 $6.50 \u00a31,007", ["$5", "$6.50", "\u00a31,007"]),
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
        "It cost $2, $1,234.56, $4 million.",
    ],
)
def test_the_items_are_read_as_in_their_list(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(cut_lists(text)) > 1
    said = Normalizer("en").write_out(text)
    monkeypatch.setattr(normalize, "cut_lists", lambda whole: [whole])
    assert said == Normalizer("en").write_out(text)


@pytest.mark.parametrize(
    "text",
    """
    $0 $1 $1.00 $1.01, $0.50 $0.01; $0.00 $100 $101 $999 $1,000 $1,001 $1234 $12,345.60, $100,000 $110,001 $999,999.99
    \u00a30.01 \u00a31.02 \u20ac1 \u20ac2.20,
    $1,000,000 \u00a320,000,100 $1,000,001; $145,272,509.82, \u20ac2,000,017,000
    """.split(),  # noqa: SIM905
)
def test_an_amount_is_read_as_the_library_reads_it(text: str) -> None:
    assert write_amount(text) == normalize_text(text)


@pytest.mark.parametrize("text", ["$007", "$1,000,000,000,000", "$5.5", "$5 million", "5", "$1,23"])
def test_other_amounts_are_left_to_the_library(text: str) -> None:
    assert write_amount(text) is None
