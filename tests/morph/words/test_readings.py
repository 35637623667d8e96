"""Words of texts in which some are read as others: the words that are shown have the times of what was said."""

import pytest
from qwen3_tts_morph.morph.text.pronunciation import find_readings, parse_pronunciation, read_text
from qwen3_tts_morph.morph.words.timing import PiecePath, WordTime, line_words, shown_words
from qwen3_tts_morph.morph.words.written import find_read_words

LISTS = [parse_pronunciation("Xiaomi = shao me\nDr. Who = doctor hoo\n→ = leads to")]


def pairs(text: str) -> list[tuple[str, list[str]]]:
    """Return each written word with what is said for it."""
    found = find_read_words(text, find_readings(text, LISTS))
    said = [[] for _ in found.written]
    for word, owner in zip(found.read, found.owners, strict=True):
        said[owner].append(word.text)
    return [(word.text, own) for word, own in zip(found.written, said, strict=True)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("I like Xiaomi, yes.", [("I", ["I"]), ("like", ["like"]), ("Xiaomi,", ["shao", "me,"]), ("yes.", ["yes."])]),
        ("Dr. Who!", [("Dr.", ["doctor"]), ("Who!", ["hoo!"])]),
        ("<SQL|s q l>'s", [("SQL's", ["s", "q", "l's"])]),
        ("a → b", [("a →", ["a", "leads", "to"]), ("b", ["b"])]),
        ("(<Dr. No|doctor>) [pause 0.3] yes", [("(Dr.", ["(doctor)"]), ("No)", []), ("yes", ["yes"])]),
        ("<行|hang>了", [("行", ["hang"]), ("了", ["了"])]),
    ],
)  # fmt: skip
def test_each_spoken_word_belongs_to_the_word_that_it_is_read_for(text: str, wanted: list) -> None:
    assert pairs(text) == wanted


def test_places_are_those_in_the_text_and_include_marks() -> None:
    text = "Ask <Dr. No|doctor no>, Xiaomi."
    words = find_read_words(text, find_readings(text, LISTS)).written
    assert [text[word.first : word.last] for word in words] == ["Ask", "<Dr.", "No|doctor no>,", "Xiaomi."]


def test_a_text_of_signs_alone_has_no_words() -> None:
    text = "<→|arrow>"
    assert find_read_words(text, find_readings(text)).owners == []
    path = PiecePath("arrow", ((0, 5),), (0, 0))
    assert line_words(text, [path], 1.0, readings=find_readings(text)) == ()


def test_times_are_those_of_what_was_said() -> None:
    text = "A Xiaomi phone"
    readings = find_readings(text, LISTS)
    piece = PiecePath("A shao me phone", ((0, 1), (1, 6), (6, 9), (9, 15)), (0, 1, 1, 2, 3, 3))
    words = line_words(text, [piece], 1.0, readings=readings)
    assert [(word.text, round(word.start_s, 2), round(word.end_s, 2)) for word in words] == [
        ("A", 0.0, 0.08), ("Xiaomi", 0.08, 0.32), ("phone", 0.32, 0.48),
    ]  # fmt: skip
    read = read_text(text, readings)
    told = [WordTime(one, at, at + 0.1, read.index(one), read.index(one) + len(one)) for at, one in
            ((0.0, "A"), (0.2, "shao"), (0.4, "me"), (0.6, "phone"))]  # fmt: skip
    ours = shown_words(text, readings, told)
    assert [(one.text, one.start_s, round(one.end_s, 2), text[one.first_char : one.last_char]) for one in ours] == [
        ("A", 0.0, 0.1, "A"), ("Xiaomi", 0.2, 0.5, "Xiaomi"), ("phone", 0.6, 0.7, "phone"),
    ]  # fmt: skip
    assert shown_words("A", (), told[:1]) == (told[0],)
