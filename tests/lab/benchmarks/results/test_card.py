"""The demo voice's model card: figures are those of the rows, shapes and sizes those of the files."""

from tests.lab.benchmarks.results.test_readme import ROOT, check_cell, read_rows, table

CARD = "demo_voice/README.md"
# The columns after the number of lines, and their fields in a row.
COLUMNS = {
    "word errors %": "wrong_words_percent",
    "voice identified %": "identified_percent",
    "similarity to references": "similarity_to_references",
    "similarity to the original": "similarity_to_original",
    "DistillMOS": "distillmos",
    "DNSMOS": "dnsmos",
}


def test_the_figures_are_those_of_the_rows() -> None:
    rows = {row["row"]: row for row in read_rows("demo_voice_card")}
    cells = table(CARD, "", "lines", *COLUMNS, "ended by themselves %", "RTF")
    assert [line[0] for line in cells] == list(rows)
    for name, lines, *figures, ended, rtf in cells:
        row = rows[name]
        check_cell(lines, row["lines"])
        for cell, field in zip(figures, COLUMNS.values(), strict=True):
            check_cell(cell, *(row[field] or [None]))
        check_cell(ended, row["ended_percent"])
        check_cell(rtf, row["rtf"], row["batch"])
        assert row["date"] in (ROOT / CARD).read_text(encoding="utf-8")
        assert row["commit"] and row["command"]
