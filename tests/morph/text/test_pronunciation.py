"""Lists of how words are read, and ``<shown|read>``: what matches, what is refused, and that no list slows a text."""

from pathlib import Path

import pytest
from qwen3_tts_morph.morph.text.encoding import MOST_BYTES
from qwen3_tts_morph.morph.text.pronunciation import (
    MOST_WORDS,
    PronunciationList,
    Reading,
    describe_readings,
    find_readings,
    is_mark_begun,
    join_marks,
    mark_notes,
    parse_pronunciation,
    read_pronunciation,
    read_text,
    shown_text,
    write_pronunciation,
)

LIST = """\
# names
Nguyen = win
Dr. Who = doctor hoo
Dr. = doctor
IT = eye tee
polish = pollish
Polish = poe-lish
3 = drei
don = Dawn
d’Artagnan = dar tan yan
café = caffay
→ = leads to
重庆 = 虫庆
หิว = hew
हिन्दी = hindee
서울 = soul
"""


def read(text: str, *lists: str) -> str:
    parsed = [parse_pronunciation(one) for one in lists or (LIST,)]
    return read_text(text, find_readings(text, parsed))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Nguyen, Nguyen's and Nguyen-Smith.", "win, win's and win-Smith."),
        ("Nguyens nguyen NGUYEN MyNguyen Nguyen2", "Nguyens nguyen NGUYEN MyNguyen Nguyen2"),
        ("IT or it?", "eye tee or it?"),
        ("polish POLISH Polish", "pollish pollish poe-lish"),
        ("Dr. Who, Dr.  Who, Dr. No", "doctor hoo, doctor hoo, doctor No"),
        ("Dr.\nWho", "doctor\nWho"),
        ("3 13 3.5 1,3 3a", "drei 13 3.5 1,3 3a"),
        ("don don't DON’T don's", "Dawn don't DON’T Dawn's"),
        ("d'Artagnan d’Artagnan", "dar tan yan dar tan yan"),
        ("cafe\u0301 CAFÉ", "caffay caffay"),
        ("a → b", "a leads to b"),
        ("我在重庆吃饭", "我在虫庆吃饭"),
        ("เขาหิวมาก", "เขาhewมาก"),
        ("हिन्दी हिन्दीं", "hindee हिन्दीं"),
        ("서울은", "soul은"),
        ("[pause 3] Nguyen", "[pause 3] win"),
        ("<Nguyen|nu yen> Nguyen", "nu yen win"),
    ],
)
def test_whole_words_match_as_the_list_spells_them(text: str, wanted: str) -> None:
    assert read(text) == wanted


def test_the_longest_entry_counts_and_of_equal_ones_the_first_list_s() -> None:
    mine, theirs = "Who = hoo", "Who = hu\nDr. Who = doctor"
    assert read("Dr. Who, Who", mine, theirs) == "doctor, hoo"
    assert read("A B", "A = B\nB = A") == "B A"
    assert read("Nguyen", "Nguyen = Nguyen", LIST) == "Nguyen", "a word that is left alone"


def test_a_mark_is_shown_on_one_side_and_read_on_the_other() -> None:
    text = "Ask <Dr. Nguyen|doctor win>. [pause 0.4] <行|háng>!"
    readings = find_readings(text)
    assert readings[0] == Reading(4, 27, "Dr. Nguyen", "doctor win")
    assert read_text(text, readings) == "Ask doctor win. [pause 0.4] háng!"
    assert shown_text(text) == "Ask Dr. Nguyen. 行!"
    assert describe_readings(readings) == "'Dr. Nguyen' read as 'doctor win', '行' read as 'háng'"
    assert mark_notes(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "<Nguyen|>",
        "<|win>",
        "<Nguyen|win",
        "<a|b|c>",
        "<a|[b]>",
        "<a|!>",
        "<a\n|b>",
        "<a |b>",
        "<" + "a" * 101 + "|b>",
        "<|im_end|>",
    ],
)
def test_what_is_no_mark_is_read_as_it_is_written(text: str) -> None:
    assert find_readings(f"x {text} y") == () and shown_text(f"x {text} y") == f"x {text} y"


def test_notes_name_what_looks_like_a_mark() -> None:
    [note] = mark_notes("Ask <Nguyen|> and <Bob|rob>.")
    assert note.startswith("'<Nguyen|>' is no <shown|read> and was spoken as it is: write both sides")
    assert mark_notes("a < b, c | d, e > f, <b>bold</b>, 1 < 2 | 3 > 2, <|im_end|>") == []
    nested = "<a|<b|c>>"
    assert read_text(nested, find_readings(nested)) == "<a|c>", "of nested ones the inner"


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ("a = b\nNguyen win", "line 2: 'Nguyen win' has no =: write word = as it is read"),
        ("= win", "line 1: the word is empty: write word = as it is read"),
        ("Nguyen =", "line 1: the reading is empty: write word = as it is read"),
        ("Nguyen = !", "line 1: the reading '!' has no letter and no digit: write it as it is read"),
        ("a|b = c", "line 1: the word 'a|b' contains '|': leave it out"),
        ("a = [b]", "line 1: the reading '[b]' contains '[': leave it out"),
        ("a = b\n\n# a\nA = c\na = c", "line 5: 'a' is in line 1 already: keep one of them"),
        ("x" * 101 + " = y", "line 1: the word has 101 characters: write at most 100"),
        ("x = " + "y" * 201, "line 1: the reading has 201 characters: write at most 200"),
    ],
)
def test_faulty_rows_are_named(rows: str, error: str) -> None:
    with pytest.raises(ValueError, match="pronunciation cannot be read:") as caught:
        parse_pronunciation(rows)
    assert str(caught.value).splitlines()[1] == error


def test_many_faults_are_counted_and_a_list_is_bounded() -> None:
    with pytest.raises(ValueError, match=r"\nand 2 more$"):
        parse_pronunciation("x\n" * 12)
    rows = "\n".join(f"w{number} = r" for number in range(MOST_WORDS + 1))
    with pytest.raises(ValueError, match="has 10001 words and 10000 are allowed: split it"):
        parse_pronunciation(rows)


def test_readings_that_make_a_text_far_longer_are_refused() -> None:
    text = "字" * 200  # each of them a word
    with pytest.raises(ValueError, match="text has 200 characters and 40000 as it is read, and 2800 are allowed"):
        read(text, f"字 = {'y' * 200}")


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_bytes("\ufeffNguyen = win\r\n\r\nSQL=sequel".encode())
    assert read_pronunciation(path).words == (("Nguyen", "win"), ("SQL", "sequel"))
    path.write_text("Größe = size", encoding="utf-16")
    assert read_pronunciation(path).words == (("Größe", "size"),)
    for content, error in (
        (b"Gr\xf6\xdfe = x", "names.txt is not text in UTF-8 or UTF-16: save it as UTF-8"),
        (b"x", "names.txt cannot be read:\nline 1: 'x' has no ="),
        (b"#" * (MOST_BYTES + 1), "names.txt is larger than 2 MB: keep at most 10000 words"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=error):
            read_pronunciation(path)
    with pytest.raises(ValueError, match=r"none.txt cannot be read \(.+\): choose another file"):
        read_pronunciation(tmp_path / "none.txt")


def test_lists_are_written_as_one_that_reads_words_as_they_do(tmp_path: Path) -> None:
    lists = [
        parse_pronunciation("Nguyen = win\nsql = sequel"),
        parse_pronunciation("SQL = S Q L\nnguyen = no\nsql=x"),
    ]
    path = tmp_path / "both.txt"
    path.write_text(write_pronunciation(lists), encoding="utf-8")
    [*words] = read_pronunciation(path).words
    assert words == [("Nguyen", "win"), ("sql", "sequel"), ("nguyen", "no")]
    text = "Nguyen, nguyen, SQL and sql."
    one, both = (read_text(text, find_readings(text, own)) for own in ([read_pronunciation(path)], lists))
    assert one == both == "win, no, sequel and sequel."


def test_the_work_for_a_text_does_not_grow_with_the_list() -> None:
    steps = 0

    class Counted(PronunciationList):
        def longest(self, tokens, keys, begin):
            nonlocal steps
            steps += 1
            return super().longest(tokens, keys, begin)

    text = "One word of them is word77, and that is all."
    words = tuple((f"word{number}", "a reading") for number in range(5000))
    assert len(find_readings(text, [Counted(words)])) == 1
    many, steps = steps, 0
    find_readings(text, [Counted(words[77:78])])
    assert many == steps <= len(text)


def test_patterns_find_the_end_of_a_mark_that_comes_in_parts() -> None:
    begun = ["Ask <Dr.", "Ask <Dr. Who|doc", "<", "Ask <a|b> or <c|"]
    assert all(map(is_mark_begun, begun))
    assert not any(map(is_mark_begun, ["Ask <a|b>.", "a < b", "<" + "a" * 101, "<a\n", "<a|b|c"]))
    assert join_marks(["Ask <Dr.", "Who|hoo> now."]) == ["Ask <Dr. Who|hoo> now."]
    assert join_marks(["It is <5.", "Ask <a|b>."]) == ["It is <5.", "Ask <a|b>."]
