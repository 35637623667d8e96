"""A cast in one node: names and voices belong together by their place."""

import pytest

from tests.nodes.package import load

characters = load("speaking.characters")


def test_names_are_one_per_line_and_empty_lines_do_not_count() -> None:
    assert characters.read_names(" ANNA \n\nBen\r\nNARRATOR\n") == ["ANNA", "Ben", "NARRATOR"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "names is empty: type one character's name per line"),
        (" \n\n", "names is empty: type one character's name per line"),
        ("ANNA\nBEN\nanna", "name 'anna' is already in the cast"),
        ("\xc9milie\nE\u0301MILIE", "is already in the cast"),
        ("Old Man\nOld\xa0 Man", "is already in the cast"),
        ("Anna\nAn\u200bna", "is already in the cast"),
        ("Anna\n\u200b", "name is empty"),
        ("ANNA\u2028anna", "name 'anna' is already in the cast"),
        ("ANNA\nBEN: hello", r"name 'BEN: hello' contains one of : \[ \] #"),
    ],
)
def test_names_that_no_script_could_use_are_refused(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        characters.read_names(text)


@pytest.mark.parametrize("end", ["\n", "\r", "\x0b", "\x0c", "\x85", "\u2028", "\u2029"])
def test_a_name_has_no_line_break_inside(end: str) -> None:
    assert characters.check_character(f"ANNA{end}") == "ANNA"
    with pytest.raises(ValueError, match="or a line break, which scripts reserve"):
        characters.check_character(f"ANNA{end}BEN")


def test_each_name_has_the_voice_in_its_place() -> None:
    assert characters.assign_voices(["A", "B"], {2: "second", 1: "first"}) == {"A": "first", "B": "second"}


@pytest.mark.parametrize(
    ("voices", "error"),
    [
        ({1: "x"}, "voice_2 is not connected: connect BEN's voice, or remove the name from names"),
        ({1: "x", 3: "y"}, "voice_2 is not connected"),
        ({1: "x", 2: "y", 3: "z"}, "voice_3 has no name: type the character's name as line 3 of names"),
    ],
)
def test_a_name_without_a_voice_and_a_voice_without_a_name_are_refused(voices, error) -> None:
    with pytest.raises(ValueError, match=error):
        characters.assign_voices(["ANNA", "BEN"], voices)


def test_casts_are_joined_and_a_name_that_both_have_is_refused() -> None:
    assert characters.join_casts({"ANNA": 1}, [("BEN", 2)]) == {"ANNA": 1, "BEN": 2}
    with pytest.raises(ValueError, match="name 'Anna' is already in the cast: give each character"):
        characters.join_casts({"ANNA": 1}, [("Anna", 2)])
    with pytest.raises(ValueError, match="is already in the cast: give each character"):
        characters.join_casts({"\xc9MILIE": 1}, [("E\u0301milie", 2)])
