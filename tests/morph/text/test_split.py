import random

import pytest
from qwen3_tts_morph.morph.text.pieces import split_text
from qwen3_tts_morph.morph.text.split import check_text, split_sentences

# Abbreviations in which there is a space, and dots before a lower-case word or a number.
SHORT_FORMS = [
    "Wir kommen bald, d. h. am Montag.|Er auch.",
    "Er starb 44 v. Chr. in Rom.|Das war spät.",
    "Das kostet 3 Mio. Euro.|Oder 2 Mrd. Euro?",
    "Il y en a, p. ex. ici.|Et ailleurs.",
    "p. ex. ceci.|Et cela.",
    "Hay muchos, p. ej. este.|Y otros.",
    "Vive en EE. UU. desde ayer.|Le gusta.",
    "Яблоки, груши и т. д. лежат тут.|Вот они.",
    "Завтра, т. е. в среду.|Потом нет.",
    "Это сделал я.|Потом ушёл.",
    "See p. 7 of it.|Then pp. 8 and 9.",
    "We meet Sat. at 5, or on Mar. 5, Thurs. 6, at home.|Bring No. 5.",
    "He said no.|Then we sat.|There was sun.|It is on mar.|So it was.",
    "I can't.|Allons-y.|Il l'a.|OK.",
    "He lives near Abb. the river.|Yes.",
    "He left at 5 p.m.|She stayed until 6 P.M. Monday.|He came at 9 a.m.|It was early.",
    "He lives in the U.S.|She is in the U.S. Army in D.C.|They met.",
    "He is in the U.S.|“It is big,” he said of the U.S. Open.",
    "Ask J.R.R. Tolkien, a.k.a. The Author, e.g. In Oxford.|Or J. R. R. Allen, or A. A. Milne.",
    "She got her Ph.D.|He met the U.S. No. 1 and the U.S. Inspector.",
    "Das ist z.B. In Ordnung, d.h. So ist es.|Und gut.",
    '"i went home.|it was late.|Then I slept."',
    # A number of one or two digits, or a letter, at a sentence's end, and where it is an ordinal or an initial.
    "He was 25.|She was 30.|They met in 1999.|It rained.",
    "His house on the road was 87.|His wife is 5.|Mary is 7.|We sold 12 or 13.|Bob paid 5.",
    "The last train leaves at 10:30.|Ann paid $25.|Bob paid nothing.",
    "We need a plan B.|We go.|So do I.|He left.|So did I.|Mary stayed.",
    "Take vitamin C.|Bob did.|She got an A.|He got a C.",
    "J. K. Rowling met Samuel L. Jackson, No. 5 and George W. Bush.|Then we left on page 5.|It was late.",
    "1. The eggs\n|2. The milk\n|A. The end\n|10. She slept.",
    "Wir kamen am 3. Mai, am 12. Juni und am 24. Dezember.|Dann nicht mehr.",
    "We have milk, eggs, etc.|You can drive to Acme Inc.|She is on Main St.|It is near.",
    "See Eq. 5, Nos. 3 and 4, at most max. 5 kg, with Sen. Lee, Rep. Fox and Ft. Worth.|I met Max.|It was late.",
]


@pytest.mark.parametrize(
    "marked",
    [
        "One is here now.|Two is here now!|Three is here?|Four is here…|Five is here.",
        "Dr. Smith met Mrs. Jones at 3.14 p.m. today.|They talked about it for hours.",
        "She lives in the U.S. and likes it there.|He does not live there yet.",
        "Use tools, e.g. a hammer, i.e. something hard.|Then go home and have a rest.",
        "J. R. Smith wrote this book long ago.|Nobody ever read the book.",
        'He said: "Go away from here."|Then he left us standing.',
        '"Stop right there!" he said to us.|We stopped at once, all.',
        "(It was very late at night.)|We all went home to bed.",
        "What is it now?!|I do not know...|Well, go on.",
        "Er kam am 3. Mai zu uns, z. B. mit dem Zug.|»Komm herein«, sagte sie zu ihm.",
        "« Il fait beau. »|Elle sourit à tous.|« Oui ! »|« Non ! »",
        "»Halt!«|»Warum?«|»Weil ich muss.«|Sie gingen.",
        "»Halt!« rief er, ›halt!‹ und ging.|›Ja.‹|»Nein, was?«, fragte er.",
        "Born in 1920.[1]|Moved in 1930,[2] to Rome.[3][12]|See a[1].[5] and so on.",
        "今天天气很好。|我们去公园玩吧！|你觉得怎么样呢？|好的好的……|那么走吧。",
        "他说：“今天天气很好。”|我们都同意他说的话。",
        "「今日は天気がいい。」|と彼は言いました。",
        "네.|알겠습니다 그렇게.|내일 다시 오겠습니다.",
        "The first line of two\n|The second line of two",
        "It costs 3.50 at shop.com today.|That is not so much at all.",
        *SHORT_FORMS,
    ],
)
def test_sentences_end_where_a_reader_would_end_them(marked):
    sentences = [part.strip() for part in marked.split("|")]
    assert split_sentences(marked.replace("|", " ")) == sentences


def test_pieces_end_at_sentence_ends_and_not_after_abbreviations():
    text = "We saw Mr. Lee. Then Dr. Smith came."
    assert split_text(text, 25) == ["We saw Mr. Lee.", "Then Dr. Smith came."]


def test_sentences_end_without_a_space_in_chinese_and_korean_yes_is_a_sentence():
    assert split_text("你好。再见！走吧", 3) == ["你好。", "再见！", "走吧"]
    assert split_text("你好!今天怎么样?!好!”约翰.史密斯", 8) == [
        "你好!",
        "今天怎么样?!",
        "好!”",
        "约翰.史密斯",
    ]
    assert split_sentences("是A!是B!왜?라고 했다") == ["是A!是B!왜?라고 했다"]
    assert split_text("네. 그래요.", 5) == ["네.", "그래요."]


def test_pieces_take_as_many_sentences_as_fit():
    text = "One two.  Three four. Five six. Seven."
    assert split_text(text, 21) == ["One two.  Three four.", "Five six. Seven."]
    assert split_text(text, 20) == ["One two.", "Three four.", "Five six. Seven."]


def test_a_long_sentence_is_cut_at_commas_then_spaces_then_anywhere():
    assert split_text("alpha beta gamma, delta epsilon zeta; eta theta", 20) == [
        "alpha beta gamma,",
        "delta epsilon zeta;",
        "eta theta",
    ]
    assert split_text("alpha beta gamma delta", 11) == ["alpha beta", "gamma delta"]
    assert split_text("abcdefghij", 4) == ["abcd", "efgh", "ij"]
    assert split_text("今天天气很好，我们去公园玩、好吗", 8) == ["今天天气很好，", "我们去公园玩、", "好吗"]
    assert split_text("今天天气很好我们去", 4) == ["今天天气", "很好我们", "去"]


def test_numbers_and_times_are_not_cut_at_their_comma_or_colon():
    assert split_text("it was 1,000 at 5:30 sharp", 12) == ["it was 1,000", "at 5:30", "sharp"]


def test_inner_white_space_stays_and_edges_go():
    assert split_text("  one \n two\t ") == ["one \n two"]


def test_zero_never_splits():
    text = "One. " * 1000
    assert split_text(text, 0) == [text.strip()]


@pytest.mark.parametrize("text", ["", " ", "\n\t\u3000"])
def test_an_empty_text_is_refused(text):
    with pytest.raises(ValueError, match="text is empty: type what is to be spoken"):
        split_text(text)


def test_a_negative_limit_is_refused():
    with pytest.raises(ValueError, match="max_chars is -1"):
        split_text("Hello.", -1)


def test_a_text_without_capitals_is_cut_at_its_dots():
    assert split_sentences("i went home. it was late. ok") == ["i went home.", "it was late.", "ok"]


def test_no_character_is_lost_and_no_piece_is_too_long():
    rng = random.Random(3)
    alphabet = "aB3 .,;:!?…。！？，、」»«[1]\"')(\n\t—Dr. U.S. 网网"
    for _ in range(3000):
        text = "".join(rng.choices(alphabet, k=rng.randint(1, 80)))
        if not text.strip():
            continue
        limit = rng.randint(1, 40)
        pieces = split_text(text, limit)
        assert "".join("".join(pieces).split()) == "".join(text.split())
        assert all(piece and piece == piece.strip() and len(piece) <= limit for piece in pieces)
        assert all(piece in text for piece in pieces)


LONG = 100_000
ROWS = [
    "!", "…", "!)", ",", ")", " x", "x", "Dr. ", ". »", "a.b", "a, ", "Hi! ", "U.S. I ", "a.b.  ", "![1]", "!«",
    "你!", "你!“",
]  # fmt: skip


@pytest.mark.parametrize("text", [row * (LONG // len(row)) + "x" for row in ROWS], ids=ROWS)
def test_a_hundred_thousand_characters_are_split_fast(text):
    """In quadratic time (a quarter of an hour for the first, once) this test would not end."""
    pieces = split_text(text, 100)
    assert "".join("".join(pieces).split()) == "".join(text.split())


def test_a_sentence_that_is_too_long_is_cut_evenly_between_words():
    text = " ".join(["word"] * 25)  # 124 characters
    assert [len(piece) for piece in split_text(text, 100)] == [69, 54]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "text is empty"),
        (" \n", "text is empty"),
        ("...", "no letter and no digit"),
        ("🙂 !!!", "no letter and no digit"),
        ("\u200b", "no letter and no digit"),
        ("\ufeff", "no letter and no digit"),
        ("Hi \ud83d there", "half a character .* at position 4"),
    ],
)
def test_a_text_without_anything_to_speak_is_refused(text, sentence):
    with pytest.raises(ValueError, match=sentence):
        check_text(text)


@pytest.mark.parametrize("text", ["A", "7", "你好", "สวัสดี", "नमस्ते", "🙂 ok"])
def test_any_letter_or_digit_can_be_spoken(text):
    assert check_text(text) == text
