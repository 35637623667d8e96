import re

import pytest
from qwen3_tts_morph.morph.text.scripts.script import Script, ScriptError, ScriptLine, parse_script

CAST = ["Bob", "Anna Maria", "小明"]


def only_line(text: str) -> ScriptLine:
    (line,) = parse_script(text, CAST).lines
    return line


def test_lines_pauses_comments_and_blank_lines():
    script = parse_script("# a play\n\nBob: Hello.\r\n[pause 0.5]\n  Anna Maria :  Hi there. \n#Bob: no\n", CAST)
    assert script.items == (ScriptLine(3, "Bob", "Hello."), 0.5, ScriptLine(5, "Anna Maria", "Hi there."))
    assert script.lines == (script.items[0], script.items[2])


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x85", "\u2028", "\u2029"])
def test_every_line_break_ends_a_line(end: str) -> None:
    script = parse_script(f"# a play{end}{end}Bob: Hello.{end}Anna Maria: Hi.{end}", CAST)
    assert [(line.number, line.name, line.text) for line in script.lines] == [
        (3, "Bob", "Hello."),
        (4, "Anna Maria", "Hi."),
    ]


@pytest.mark.parametrize("name", ["bob", "BOB", " Bob ", "\ufeffBob"])
def test_names_match_in_any_case_and_are_returned_as_the_cast_spells_them(name):
    assert only_line(f"{name}: Hi") == ScriptLine(1, "Bob", "Hi")


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("Bob: It is 5:30: late", "It is 5:30: late"),
        ("Bob：It is 5:30", "It is 5:30"),
        ("Bob: 时间：五点", "时间：五点"),
        ("Bob: so [laughs] funny [pauses]", "so [laughs] funny [pauses]"),
        ("Bob: one [ two", "one [ two"),
        ("Bob: one [pause 0.5] two [pause 1].", "one [pause 0.5] two [pause 1]."),
        ("Bob: # 1", "# 1"),
    ],
)
def test_the_text_is_what_follows_the_first_colon(script, text):
    assert only_line(script).text == text


def test_a_full_width_name_and_colon():
    assert only_line("小明：你好。") == ScriptLine(1, "小明", "你好。")


@pytest.mark.parametrize(
    "script",
    [
        "[seed 7][lang German] [instruct whisper, softly] Bob: Hi",
        "Bob: [seed 7] [lang German] [instruct whisper, softly] Hi",
        "[SEED 7] Bob: [ Lang  German ][instruct whisper, softly]Hi",
        "[seed 7]\n[lang German] [instruct whisper, softly]\nBob: Hi",
    ],
)
def test_tags_before_the_name_or_the_text_apply_to_the_line(script):
    line = only_line(script)
    assert (line.text, line.seed, line.language, line.instruct) == ("Hi", 7, "German", "whisper, softly")


def test_tags_of_a_line_end_with_it_and_tags_on_their_own_line_last_until_set_again():
    script = """[lang German]
        [seed 1] Bob: a
        Bob: b
        [lang French] Bob: c
        Bob: d
        [lang]
        [seed 5]
        Bob: e
        [seed] Bob: f"""
    found = [(line.text, line.seed, line.language) for line in parse_script(script, CAST).lines]
    assert found == [
        ("a", 1, "German"),
        ("b", None, "German"),
        ("c", None, "French"),
        ("d", None, "German"),
        ("e", 5, None),
        ("f", None, None),
    ]


def test_pauses_are_on_their_own_line_before_a_line_or_at_its_end():
    script = parse_script(
        "[pause 1]\n[pause .5] Bob: [pause 2] a [pause 0.25] [PAUSE 3]\n[pause 60]\nBob: b[pause 0]", CAST
    )
    seconds = [item.text if isinstance(item, ScriptLine) else item for item in script.items]
    assert seconds == [1.0, 0.5, 2.0, "a", 0.25, 3.0, 60.0, "b", 0.0]
    assert script.pauses == (3.5, 63.25, 0.0)


def test_pauses_are_one_more_than_the_lines():
    assert parse_script("Bob: a\nBob: b", CAST).pauses == (0.0, 0.0, 0.0)
    assert Script(()).pauses == (0.0,)


def test_the_largest_seed_is_read():
    assert only_line(f"[seed {2**64 - 1}] Bob: Hi").seed == 2**64 - 1


def test_languages_are_checked_where_given_and_spelled_as_the_model_does():
    languages = ["auto", "german", "english"]
    assert parse_script("[lang German] Bob: Hallo", CAST, languages).lines[0].language == "german"
    with pytest.raises(ScriptError, match="line 1: 'Klingon' is not in the languages: choose from auto, english"):
        parse_script("[lang Klingon] Bob: nuqneH", CAST, languages)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("Eve: Hi", "line 2: 'Eve' is not in the cast: choose from Anna Maria, Bob, 小明"),
        (": Hi", "line 2: '' is not in the cast"),
        ("just some words", "line 2: 'just some words' names no character: write 'NAME: text'"),
        ("[seed 7] words", "line 2: 'words' names no character"),
        ("Bob:", "line 2: Bob has nothing to say"),
        ("Bob: [seed 7]", "line 2: Bob has nothing to say"),
        ("Bob: [pause 1]", "line 2: Bob has nothing to say"),
        ("[shout] Bob: Hi", r"line 2: \[shout\] is not a tag: write \[pause SECONDS\], \[seed"),
        ("Bob: [laughs] Hi", r"line 2: \[laughs\] is not a tag"),
        ("[] Bob: Hi", r"line 2: '\[\] Bob: Hi' does not start with a complete tag"),
        ("[seed 7 Bob: Hi", "does not start with a complete tag"),
        ("[seed 7] Bob: [seed 8] Hi", r"\[seed\] is given twice"),
        ("Bob: Hi [seed 7]", r"'\[seed 7\]' is inside the text: put it before"),
        ("Bob: one [seed 1] two", r"'\[seed 1\]' is inside the text"),
        ("Bob: one [pause 1 two", r"'\[pause 1 two' is inside the text"),
        ("Bob: one [pause x] two", r"\[pause x\] is not a pause"),
        ("Bob: one [pause 60][pause x]", r"\[pause x\] is not a pause"),
        ("Bob: one [pause 1", r"'\[pause 1' is inside the text"),
        ("[pause -1]", r"\[pause -1\] is not a pause: give 0 to 60 seconds"),
        ("[pause nan]", r"\[pause nan\] is not a pause"),
        ("[pause inf]", r"\[pause inf\] is not a pause"),
        ("[pause 60.01]", r"\[pause 60.01\] is not a pause"),
        ("[pause 1e1]", r"\[pause 1e1\] is not a pause"),
        ("[pause]", r"\[pause \] is not a pause"),
        ("Bob: Hi [pause x]", r"\[pause x\] is not a pause"),
        ("[seed -1] Bob: Hi", r"\[seed -1\] is not a seed: give a whole number"),
        ("[seed 1.5] Bob: Hi", r"\[seed 1.5\] is not a seed"),
        (f"[seed {2**64}] Bob: Hi", "is not a seed"),
        ("[seed " + "9" * 5000 + "] Bob: Hi", "is not a seed"),
        ("x" * 5000, "'x{39}…' names no character"),
    ],
)
def test_a_faulty_line_is_reported_with_its_number(line, sentence):
    with pytest.raises(ValueError, match=sentence):
        parse_script(f"Bob: fine\n{line}\nBob: fine", CAST)


def test_all_faulty_lines_are_reported_at_once():
    with pytest.raises(ScriptError) as caught:
        parse_script("Eve: a\nBob: b\n[shout] Bob: c\n[pause -1]", CAST)
    assert [line.split(":")[0] for line in str(caught.value).splitlines()[1:]] == [
        "line 1",
        "line 3",
        "line 4",
    ]


def test_a_fault_stands_once_and_ten_of_them_are_shown():
    with pytest.raises(ScriptError) as caught:
        parse_script("".join(f"Eve{number}: a\nEve: b\n" for number in range(13)), CAST)
    message = str(caught.value).splitlines()
    assert len(message) == 12 and message[-1] == "and 4 more"
    assert message[2].startswith("line 2: 'Eve' is not in") and message[2].endswith("小明 (12 more lines)")


@pytest.mark.parametrize("text", ["", "\n# only a comment\n", "[pause 1]"])
def test_a_script_without_lines_is_refused(text):
    with pytest.raises(ValueError, match="script has no line to speak"):
        parse_script(text, CAST)


def test_an_empty_or_ambiguous_cast_is_refused():
    with pytest.raises(ValueError, match="cast is empty"):
        parse_script("Bob: Hi", [])
    with pytest.raises(ValueError, match=r"the same but for case, .* \(BOB, Bob\): rename one"):
        parse_script("Bob: Hi", ["Bob", "BOB"])


LOOK_ALIKE = [  # in a cast, and in a script
    ("\xc9MILIE", "E\u0301milie"),
    ("E\u0301milie", "\xc9MILIE"),
    ("Old Man", "old  man"),
    ("Old Man", "Old\xa0Man"),
    ("Anna", "An\u200bna\ufeff"),
]


@pytest.mark.parametrize(("known", "written"), LOOK_ALIKE)
def test_names_that_look_alike_are_the_same(known: str, written: str) -> None:
    script = parse_script(f"{written}: Hi.\n{written} (softly): Ho.", [known, "Bob"])
    assert [line.name for line in script.lines] == [known, known]
    with pytest.raises(ValueError, match="cast has names that are the same but for"):
        parse_script("Bob: Hi.", [known, written])


def test_the_narrator_is_known_however_it_is_written() -> None:
    assert parse_script("They went home.", ["NARRATOR\u200b"]).lines[0].name == "NARRATOR\u200b"


LONG = 100_000


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("Bob: [" + "x" * LONG, "does not start with a complete tag"),
        ("Bob: x" + " " * LONG + "[pause 1", "is inside the text"),
        ("Bob: " + "[" * LONG, "does not start with a complete tag"),
        ("[pause 1]" * (LONG // 9) + "x", "names no character"),
        ("Bob: x" + "[ " * (LONG // 2) + "]", None),
        ("Bob: x " + "[pause 1] " * (LONG // 10), None),
        ("Bob: x" + " " * LONG + "y", None),
    ],
    ids=range(7),
)
def test_a_hundred_thousand_characters_are_read_fast(script, sentence):
    """In quadratic time (a minute for the first, once) this test would take minutes."""
    if sentence is None:
        assert parse_script(script, CAST).lines
    else:
        with pytest.raises(ScriptError, match=sentence):
            parse_script(script, CAST)


@pytest.mark.parametrize(
    ("script", "sentence"), [("Bob: ...", "no letter and no digit"), ("Bob: \ud83d", "half a character")]
)
def test_a_line_with_nothing_to_speak_is_refused(script, sentence):
    with pytest.raises(ValueError, match=sentence):
        parse_script(script, CAST)


def test_a_manner_behind_the_name_is_an_instruction_for_that_line() -> None:
    script = parse_script(
        "ANNA (softly, close): Hello.\nanna: Again.\nANNA\uff08x\uff09: \u4f60\u597d",
        ["Anna", "ANNA\uff08x\uff09"],
    )
    assert [(one.name, one.instruct) for one in script.lines] == [
        ("Anna", "softly, close"), ("Anna", None), ("ANNA\uff08x\uff09", None)
    ]  # fmt: skip


def test_a_name_with_parentheses_in_the_cast_is_a_name() -> None:
    [line] = parse_script("Anna (old): Hello.", ["Anna", "Anna (old)"]).lines
    assert (line.name, line.instruct) == ("Anna (old)", None)


@pytest.mark.parametrize("written", ["ANNA (Angry)", "anna(angry)", "Anna  ( angry )"])
def test_a_mood_is_taken_where_the_cast_has_it_and_is_an_instruction_elsewhere(written: str) -> None:
    [line] = parse_script(f"{written}: Hello.", ["Anna", "Anna (angry)", "Narrator"]).lines
    assert (line.name, line.instruct) == ("Anna (angry)", None)
    [line] = parse_script(f"{written}: Hello.", ["Anna", "Anna (sad)", "Ben (angry)"]).lines
    assert line.name == "Anna" and line.instruct.lower() == "angry"
    [line] = parse_script(f"{written}: [instruct slowly] Hello.", ["Anna", "Anna (angry)"]).lines
    assert (line.name, line.instruct) == ("Anna (angry)", "slowly"), "a mood is no instruction: both may be given"


def test_a_line_without_a_name_is_the_narrators() -> None:
    text = "The door opened.\nANNA: Who is it?\n[pause 1] He said only this: a name, and no more."
    lines = parse_script(text, ["Anna", "Narrator"]).lines
    assert [(one.name, one.text) for one in lines] == [
        ("Narrator", "The door opened."),
        ("Anna", "Who is it?"),
        ("Narrator", "He said only this: a name, and no more."),
    ]


def test_a_name_that_the_cast_lacks_is_not_narrated() -> None:
    with pytest.raises(ScriptError, match="'ANA' is not in the cast"):
        parse_script("ANA: Hello.", ["Anna", "Narrator"])


def test_take_and_gain_are_read_and_reset() -> None:
    text = "[gain -3]\nANNA: [take 2] One.\nANNA: Two.\n[gain]\nANNA: [gain +1.5] Three.\nANNA: Four."
    lines = parse_script(text, ["Anna"]).lines
    assert [(one.take, one.gain_db) for one in lines] == [(2, -3), (None, -3), (None, 1.5), (None, None)]


def test_speed_and_pitch_are_read_and_reset() -> None:
    text = "[speed 1.1]\nANNA: [pitch -2] One.\nANNA: Two.\n[speed]\n[PITCH +1.5] ANNA: Three.\nANNA: Four."
    lines = parse_script(text, ["Anna"]).lines
    assert [(one.speed, one.pitch) for one in lines] == [(1.1, -2), (1.1, None), (None, 1.5), (None, None)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[speed 0.4] ANNA: Hi.", "[speed 0.4] is not a speed: give 0.5 to 2, e.g. [speed 1.1]"),
        ("[speed 2.01] ANNA: Hi.", "[speed 2.01] is not a speed"),
        ("[speed fast] ANNA: Hi.", "[speed fast] is not a speed"),
        ("[pitch 13] ANNA: Hi.", "[pitch 13] is not a pitch: give -12 to 12 semitones, e.g. [pitch -2]"),
        ("ANNA: Hi. [speed 1.1] There.", "is inside the text"),
        ("[take 0] ANNA: Hi.", "[take 0] is not a take"),
        ("[take -1] ANNA: Hi.", "[take -1] is not a take"),
        ("[gain 21] ANNA: Hi.", "[gain 21] is not a gain"),
        ("[gain loud] ANNA: Hi.", "[gain loud] is not a gain"),
        ("[gain +-3] ANNA: Hi.", "[gain +-3] is not a gain"),
        ("[gain nan] ANNA: Hi.", "[gain nan] is not a gain"),
        ("ANNA (softly): [instruct loudly] Hi.", "keep one"),
        ("ANNA: Hi. [take 2] There.", "is inside the text"),
    ],
)
def test_a_wrong_manner_take_or_gain_is_refused(line: str, message: str) -> None:
    with pytest.raises(ScriptError, match=re.escape(message)):
        parse_script(line, ["Anna"])
