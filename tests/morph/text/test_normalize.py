"""Figures, dates, prices and capitals as English words, and texts that stay as they are."""

from __future__ import annotations

import sys

import pytest
from qwen3_tts_morph.morph.text.normalize import LONGEST_INPUT, Normalizer

ENGLISH = Normalizer("en")


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("Meet me at 10:30.", "Meet me at ten thirty."),
        ("It costs $45.", "It costs forty five dollars."),
        ("In 1998 we moved to Boston.", "In nineteen ninety eight we moved to Boston."),
        ("The 2nd of May is a holiday.", "The second of May is a holiday."),
        ("About 3.5 percent of them agree.", "About three point five percent of them agree."),
        ("NASA launched it on 05/12/2023.", "Nasa launched it on May twelfth twenty twenty three."),
        ("Call 555-1234 now.", "Call five five five, one two three four now."),
        ("We are open 24/7.", "We are open twenty four seven."),
        ("He is 6'2\" tall.", "He is six foot two tall."),
        ("He's 5' tall.", "He's five feet tall."),
        ("He ran 100 m in 9.58 s.", "He ran one hundred meters in nine point five eight seconds."),
        ("The 1990s were loud.", "The nineteen nineties were loud."),
        ("It is 21 mm long and 1 m wide.", "It is twenty one millimeters long and one meter wide."),
        ("At 1.1 m/s or 100 km/h.", "At one point one meters per second or one hundred kilometers per hour."),
        ("It has 16GB and needs 12 V.", "It has sixteen gigabytes and needs twelve volts."),
        ("King Henry VIII had six wives.", "King Henry the eighth had six wives."),
        ("Chapter IV begins here.", "Chapter four begins here."),
        ("The score was 3-2.", "The score was three to two."),
        ("We met on Jan. 5th.", "We met on January fifth."),
        ("See you on Mon., at 9 a.m.", "See you on Monday, at nine ay em."),
        ("THIS IS VERY IMPORTANT.", "This is very important."),
        ("I do NOT agree.", "I do not agree."),
        ("The BBC said so.", "The bee bee see said so."),
        ("HELLO WORLD, THE BBC IS ON AIR.", "Hello world, the bee bee see is on air."),
        ("Dr. Smith came.", "Doctor Smith came."),
        ("It is -5\u00b0C here.", "It is minus five degrees Celsius here."),
        ("It\u2019s 50% off\u2014really \U0001f642!", "It's fifty percent off, really !"),
    ],
)
def test_it_is_written_out_as_people_read_it(text, spoken) -> None:
    assert ENGLISH.write_out(text).text == spoken


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        # I is a pronoun more often than a numeral
        ("Type II errors, but part IV.", "Type two errors, but part four."),
        ("See Part I. Then Act I, Scene II.", "See Part one. Then Act one, Scene two."),
        ("World War I began in 1914.", "World War one began in nineteen fourteen."),
        ("It was James I.", "It was James the first."),
        ("King James I was tall.", "King James the first was tall."),
        ("Elizabeth I's reign.", "Elizabeth the first's reign."),
        ("Read Part I and Part II of it.", "Read Part one and Part two of it."),
        ("James I of England and I.", "James the first of England and I."),
        ("Pope John Paul II and Pope John XXIII", "Pope John Paul the second and Pope John the twenty third"),
        ("Senator William V. Roth, George I. Smith", "Senator William V. Roth, George I. Smith"),
        ("It was George V. He left.", "It was George the fifth. He left."),
        ("Rocky II and Final Fantasy VII", "Rocky two and Final Fantasy seven"),
        ("Super Bowl XX, Super Bowl LVIII", "Super Bowl twenty, Super Bowl fifty eight"),
        ("An IV, the VIX, XXX, Malcolm X", "An eye vee, the vee eye ex, ex ex ex, Malcolm X"),
        # capitals with apostrophes and dots
        ("The U.S. is big.", "The you ess is big."),
        ("He lives in D.C.", "He lives in dee see."),
        ("At 9 A.M. sharp.", "At nine ay em sharp."),
        ("DON'T GO", "Don't go"),
        ("I'LL GO", "I'll go"),
        ("WE'RE HERE", "We're Here"),
        ("YOU\u2019VE WON", "You've won"),
        ("It is NASA'S and the BBC'S.", "It is Nasa's and the bee bee see's."),
        ("He left at 5 p.m. She stayed.", "He left at five pee em. She stayed."),
        ("He left at 5 p.m. Monday.", "He left at five pee em Monday."),
        ("He lives in the U.S. She does not.", "He lives in the you ess. She does not."),
        # the numbers of notes
        ("Born in 1920.[1] It was,[2][13] he said, 5.", "Born in nineteen twenty. It was, he said, five."),
        ("See [1] and a[1].", "See [one] and a[one]."),
        # feet and quotation marks
        ("Press '1' to continue.", "Press 'one' to continue."),
        ("Press \u20185\u2019 or '10'.", "Press 'five' or 'ten'."),
        ("He said 'give me 5' and left.", "He said 'give me five' and left."),
        ("In the '90s he was 6' tall.", "In the nineties he was six feet tall."),
        # quotations that end in a figure, and inches
        ('Press "1" to continue.', 'Press "one" to continue.'),
        ("\u201cApollo 13\u201d is a film.", '"Apollo thirteen" is a film.'),
        ('The film "1984" is old.', 'The film "nineteen eighty four" is old.'),
        ('"1", and "2" too', '"one", and "two" too'),
        ('He said "give me 5" and left.', 'He said "give me five" and left.'),
        ('The "Part II" film', 'The "Part two" film'),
        ('A 27" screen, 5\' 10" wide.', "A twenty seven inch screen, five foot ten wide."),
        ('He said, "A 27" screen is here."', 'He said, "A twenty seven inch screen is here."'),
        ('A "big" 2" x 4" board', 'A "big" two inches by four inches board'),
        # fractions and powers
        ("1\xbd cups", "One and a half cups"),
        ("\xbd cup", "One half cup"),
        ("1/4-inch", "One quarter inch"),
        ("2\xbd-inch", "Two and a half inch"),
        ("10\xb2 is 100.", "Ten squared is one hundred."),
        (
            "2\xb3, 10\u2076 and 10\u207b\xb3",
            "Two cubed, ten to the power of six and ten to the power of minus three",
        ),
        ("x\xb2y", "X squared y"),
        ("5 m\xb2", "Five square meters"),
        ("9.8 m/s\xb2", "Nine point eight meters per second squared"),
        # below zero, and ranges
        ("It is \u221212 \xb0C.", "It is minus twelve degrees Celsius."),
        ("It fell \u22123.5%.", "It fell minus three point five percent."),
        ("5 \u2212 3 = 2", "Five minus three equals two"),
        ("He owes -$5 or \u2212\u20ac300.", "He owes minus five dollars or minus three hundred euros."),
        ("It costs $5-$10.", "It costs five dollars to ten dollars."),
        # long numbers, which count or name something
        ("10000 people took 86400 s.", "Ten thousand people took eighty six thousand four hundred seconds."),
        (
            "12345 votes, 1500000 in all.",
            "Twelve thousand three hundred and forty five votes, one million five hundred thousand in all.",
        ),
        ("She lives in IL 60600.", "She lives in eye ell six zero six zero zero."),
        ("Room 20100, code 48291.", "Room two zero one zero zero, code four eight two nine one."),
        ("His ZIP code is 10000.", "His zip code is one zero zero zero zero."),
        ("Call 12345 67800.", "Call one two three four five six seven eight zero zero."),
        ("Error 12345 occurs.", "Error one two three four five occurs."),
        ("10000+ users", "Ten thousand plus users"),
        # continental numbers
        ("\u20ac1.000,50 or \u20ac10.000.", "One thousand euros fifty cents or ten thousand euros."),
        (
            "1.000.000,8 or 10.000 \u20ac",
            "One million point eight or ten thousand euros",
        ),
        ("10\xa0000,50 \u20ac", "Ten thousand euros fifty cents"),
        (
            "\u20ac1.459 per liter, 10.000 s",
            "One point four five nine euros per liter, ten point zero zero zero seconds",
        ),
        ("At 10.0.0.1", "At one zero dot zero dot zero dot one"),
        # what looks like a fraction
        ("9/11 and a 50/50 or 60/40 split", "Nine eleven and a fifty fifty or sixty forty split"),
        (
            "9/11/2001 or 9/11 of 3/4",
            "September eleventh two thousand one or nine elevenths of three quarters",
        ),
        # telephone numbers
        ("100-2000 people", "One hundred to two thousand people"),
        ("123.4567 grams", "One hundred and twenty three point four five six seven grams"),
        ("Call 212.555.1234.", "Call two one two, five five five, one two three four."),
        # money and units
        ("$5-10, \xa31,000-2,000", "Five to ten dollars, one thousand to two thousand pounds"),
        ("$5.50-6.50", "Five dollars fifty cents to six dollars fifty cents"),
        ("$5-10k or \u20ac5\u201310 million", "Five to ten thousand dollars or five to ten million euros"),
        ("\xa33m", "Three million pounds"),
        ("$2.5m and \u20ac3bn", "Two point five million dollars and three billion euros"),
        ("$3k", "Three thousand dollars"),
        ("In 1990 W. Smith came.", "In nineteen ninety W. Smith came."),
        ("It needs 12 V. It is warm.", "It needs twelve volts. It is warm."),
        # short forms before lower-case words and numbers
        ("Sat. at 5", "Saturday at five"),
        ("Mar. 5", "March fifth"),
        ("Mon. and Tue. evenings", "Monday and Tuesday evenings"),
        ("No. 5", "Number five"),
        ("See p. 7 and pp. 8.", "See page seven and pages eight."),
        ("We sat. It was in the sun. He said no. So.", "We sat. It was in the sun. He said no. So."),
        # lines, white space and emoji
        ("Buy:\n1. Eggs\n2. Milk", "Buy. One. Eggs. Two. Milk"),
        ("one\rline\fof\vfive\x85words\u2028here", "One line of five words here"),
        ("I \u2764\ufe0f you", "I you"),
        ("\U0001f44d\U0001f3fd Yes, \U0001f468\u200d\U0001f469 ok", "Yes, ok"),
        ("1\ufe0f\u20e3", "One"),
        # signs
        ("AT&T", "Ay tee and tee"),
        ("Q&A, R&D, salt&pepper", "Q and A, R and D, salt and pepper"),
        ("~5 of \u2248 10 km", "About five of about ten kilometers"),
        ("iOS 17.4.1", "Eye oh ess seventeen point four point one"),
        ("Python 3.11.2.", "Python three point eleven point two."),
        (
            "Qwen3.5 by USB3.0, v2.0.",
            "Qwen three point five by you ess bee three point zero, v two point zero.",
        ),
        ("Windows\u2122 or Mac\u2120", "Windows or Mac"),
        ("On 17.4.2024.", "On the seventeenth of april twenty twenty four."),
        ("10\xa0000 people", "Ten thousand people"),
        ("1\u202f000\u2009000", "One million"),
    ],
)
def test_what_was_read_wrongly_is_read_as_people_do(text, spoken) -> None:
    assert ENGLISH.write_out(text).text == spoken


@pytest.mark.parametrize(
    "text",
    [
        "This is the part I love most.",
        "The book I read.",
        "Type i error.",
        "In the Chapter I wrote.",
        "James I think so.",
        "Don't, won't, it's I'm.",
        '"Stop!" he said.',
        "Well... I don't know.",
        "Was anybody listening?",
        "I am. So is A.",
    ],
)
def test_plain_words_stay_as_they_are(text) -> None:
    assert ENGLISH.write_out(text).text == text


def test_sentences_are_written_out_one_by_one_and_kept_in_order() -> None:
    written = ENGLISH.write_out("We came at 5:15. Nobody was there!\nIt was 1 p.m. when he came.")
    assert written.text == "We came at five fifteen. Nobody was there! It was one pee em when he came."


@pytest.mark.parametrize(
    ("piece", "closed"),
    [
        ("When I asked her why,", "When I asked her why."),
        ("like a letter:", "like a letter."),
        ("and then", "and then."),
        ("Really?", "Really?"),
        ('He said "no."', 'He said "no."'),
        ("(yes)", "(yes)."),
    ],
)
def test_a_piece_ends_as_a_sentence(piece, closed) -> None:
    assert ENGLISH.close(piece) == closed and Normalizer("").close(piece) == piece


def test_a_text_in_another_language_or_for_another_checkpoint_stays() -> None:
    assert ENGLISH.write_out("Es kostet 45 Euro.", "german").text == "Es kostet 45 Euro."
    assert Normalizer("").write_out("It costs $45 \U0001f642.").text == "It costs $45 \U0001f642."


def test_letters_that_are_not_latin_are_reported() -> None:
    [note] = ENGLISH.write_out("Hello \u4f60\u597d there.").notes
    assert note.startswith("2 letters are not Latin")
    assert ENGLISH.write_out("Caf\u00e9 Zo\u00eb.").notes == ()


def test_without_the_library_figures_are_read_digit_by_digit_with_a_note(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "kitten_text_processing", None)
    written = ENGLISH.write_out("Room 42.")
    assert written.text == "Room four two ." and "kitten-text-processing is not installed" in written.notes[0]


def test_what_the_library_cannot_read_is_spoken_as_it_is_with_a_note(monkeypatch) -> None:
    import kitten_text_processing

    def fail(text: str) -> str:
        raise ValueError("no path")

    monkeypatch.setattr(kitten_text_processing, "normalize_text", fail)
    written = ENGLISH.write_out("Room 42.")
    assert "'Room 42.' could not be written out" in written.notes[0] and "four two" in written.text


def test_it_can_be_cancelled_between_two_sentences() -> None:
    seen = []

    def cancel() -> None:
        seen.append(1)
        if len(seen) == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        Normalizer("en", cancel).write_out("One. Two. Three.")


def test_it_can_be_cancelled_within_a_long_sentence(monkeypatch) -> None:
    import kitten_text_processing

    seen = []
    monkeypatch.setattr(kitten_text_processing, "normalize_text", lambda text: text)
    Normalizer("en", lambda: seen.append(1)).write_out("It is 7 and " * 100)
    assert len(seen) > 1200 / LONGEST_INPUT


ROWS = ["A", "9' ", "IV ", "555-", "(555", "1.", "Mon.", "$", "won 1-", "a1", "\u2014", "BBC "]
ROWS += [
    "'",
    "the part ",
    "A&",
    "1.1.1",
    "\xa0111",
    "1\xbd",
    "x\xb2",
    "$1",
    "DON'T ",
    "a'1' ",
    "'a 1' ",
    "A.",
    "1/4-",
    "p. 1 ",
    '"1',
    ' "a1',
    '"1" ',
    "-$1",
    ".[1]",
    ".000",
    "$1-1 ",
    "$1,1-",
    "a1.",
    "a1.1 ",
    "50/50 ",
    "9/11 ",
    "a II ",
    "Super Bowl XX ",
    "Peter V. ",
    "1.000,5",
    "10000 ",
    "pin 10000 ",
    "12345 a",
    "[1]",
    "\u22121",
    "1-1 ",
    "1-",
    "1:1 ",
    "a/b",
    "a.a",
    "/a.",
    "C:\\a",
    "a_a",
    "1 x 1=",
    "1x",
    "\u221a1",
    "IV, ",
    "I-",
    "a St. ",
    "5 lb. ",
    "5 ft 5 ",
    "code ",
    "call 911 ",
    "+1 1",
    "on 1/1 ",
    "1/10 ",
    "H2O",
    "AB ",
    "AB-",
    "a $1 ",
    "a 1 m ",
    "US$1 ",
    "1 CHF",
    "#1",
    "MCM",
    "1990s ",
    "1-1-",
    "at 1.11 ",
    "Main 1 A ",
    "w/",
]


@pytest.mark.parametrize("row", ROWS)
def test_our_rules_are_fast_on_long_texts(row, monkeypatch) -> None:
    """In quadratic time this test would take minutes; the library itself, which takes longer, is left out."""
    monkeypatch.setitem(sys.modules, "kitten_text_processing", None)
    assert ENGLISH.write_out(row * (10_000 // len(row))).text
