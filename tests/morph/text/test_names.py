"""Names that users type: which are the same, and which are safe for files on every system."""

import unicodedata

import pytest
from qwen3_tts_morph.morph.text import names


@pytest.mark.parametrize("name", ["Anna", "Anna K.2", "a-b_c", "名前", "Übername", "x" * 80, "CONrad", "COM10"])
def test_good_names_are_unchanged(name: str) -> None:
    assert names.check_name(f" {name} ") == name


@pytest.mark.parametrize("name", ["สมชาย ที่บ้าน", "हिन्दी की आवाज़", "Nguyễn", "עִבְרִית", "x\u0302\u0323"])
def test_names_with_combining_marks_are_accepted_and_composed(name: str) -> None:
    decomposed = unicodedata.normalize("NFD", name)
    assert any(unicodedata.category(char).startswith("M") for char in decomposed)
    assert names.check_name(decomposed) == names.check_name(name) == unicodedata.normalize("NFC", name)


def test_a_decomposed_accent_is_composed() -> None:
    assert names.check_name("Rene\u0301") == "Ren\u00e9"


def test_a_voice_may_have_its_mood_in_parentheses() -> None:
    assert names.check_name("Anna (angry)", names.OF_VOICES) == "Anna (angry)"
    with pytest.raises(ValueError, match=r"contains '\(' '\)': use only letters, digits, spaces and - _ \.$"):
        names.check_name("Anna (angry)")
    with pytest.raises(ValueError, match=r"contains ':': use only letters, digits, spaces and - _ \. \( \)$"):
        names.check_name("Anna: (angry)", names.OF_VOICES)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("x" * 81, "longer"),
        ("名" * 80, "longer than 200 bytes"),
        ("../x", "'/'"),
        ("a\\b", "letters"),
        ("a:b", "':'"),
        ("a\nb", "letters"),
        ("a%date%", "'%'"),
        (".hidden", "dot"),
        ("..", "dot"),
        ("end.", "dot"),
        ("con", "reserved"),
        ("NUL.txt", "reserved"),
        ("LPT\u00b9", "reserved"),
        ("aux .x", "reserved"),
        ("x" * 100_000, "longer than 80 characters"),
        ("\u0301", "letters"),
        ("a \u0301b", "letters"),
        ("half \ud83d", "letters"),
        ("a\u202eb", "letters"),
    ],
)
def test_bad_names_are_rejected_with_a_reason(name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        names.check_name(name)


def test_names_that_look_alike_have_one_key() -> None:
    alike = ["\xc9milie K", "E\u0301MILIE  k", "\u200b\xc9milie\xa0K\ufeff ", " e\u0301milie\tK"]
    assert {names.name_key(name) for name in alike} == {"\xe9milie k"}
    assert names.name_key("Stra\xdfe") == names.name_key("STRASSE") and names.name_key("\u200b ") == ""
