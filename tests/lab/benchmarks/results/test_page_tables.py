"""More tables of docs/ hold the figures of lab/benchmarks/results. Figures that a page calls copied are left out."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from tests.lab.benchmarks.results.test_readme import (
    BENCHMARKS,
    NUMBER,
    RESULTS,
    ROOT,
    check_cell,
    read_rows,
    table,
    value,
)

H200, H100 = "nvidia-h200", "nvidia-h100-80gb-hbm3"
ENGINES = {"Ray": "ray", "`serve": "server"}
STREAMING, SERVER, KNOB = "docs/log/streaming.md", "docs/log/server.md", "docs/log/knob.md"
CAPACITY = "docs/capacity.md"
VOICES = {"x-vector": "x_vector", "preset": "preset", "ICL": "icl"}


def find(name: str, **wanted: Any) -> list[dict[str, Any]]:
    """Return a file's rows with these values, in its order."""
    return [row for row in read_rows(name) if all(row.get(key) == one for key, one in wanted.items())]


def only(name: str, **wanted: Any) -> dict[str, Any]:
    """Return a file's only row with these values."""
    rows = find(name, **wanted)
    assert len(rows) == 1, (wanted, len(rows))
    return rows[0]


def tables(page: str, *titles: str) -> list[list[list[str]]]:
    """Return the cells of all tables of a page with these titles."""
    title = f"| {' | '.join(titles)} |"
    text = (ROOT / page).read_text(encoding="utf-8")
    bodies = re.findall(re.escape(title) + r"\n\|[-:|]+\n((?:\|.*\n)+)", text)
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines()]
        for body in bodies
    ]


def case_of(label: str) -> dict[str, Any]:
    """Return what a row's label says: "x-vector voice, 0.6B, S = 15", of one line."""
    voice = next(kind for name, kind in VOICES.items() if label.startswith(name))
    case: dict[str, Any] = {"system": "morph", "table": "stream", "lines": 1, "voice": voice, "model": "0.6B"}
    if found := re.search(r"S = (\d+)", label):
        case["seq_groups"] = int(found[1])
    if found := re.search(r"(\d+) tokens", label):
        case["characters"] = int(found[1])
    return case | ({"model": "1.7B"} if "1.7B" in label else {})


def check_firsts(cell: str, rows: Sequence[dict[str, Any]]) -> None:
    """Check the times to first samples in a cell, one per row."""
    check_cell(cell, *(row["first_playable_ms"] for row in rows))


def test_first_samples_over_four_commits() -> None:
    commits = ("664b6d8", "9e0400c", "4638794", "1664e04")
    cells = table(STREAMING, "first samples, ms (median)", *commits)
    for label, *line in cells:
        if label == "32 lines at once, S = 15":
            many = {"table": "stream", "lines": 32, "seq_groups": 15}
            check_firsts(line[0], [only(H200, commit=commits[0], **many)])
            row = only(H200, commit=commits[1], **many)
            figures = re.sub(r"p\d+ ", "", line[1])
            check_cell(figures, row["first_playable_ms"], 20, row["arrival_p50_ms"], row["arrival_p95_ms"])
            continue
        for cell, commit in zip(line, commits, strict=True):
            check_firsts(cell, find(H200, commit=commit, **case_of(label)))


def test_first_samples_before_and_after_short_prompts() -> None:
    for label, *line in table(STREAMING, "first samples, ms", "before", "after"):
        for cell, commit in zip(line, ("8884548", "before 5093951"), strict=True):
            rows = find(H200, commit=commit, **{"characters": 77, **case_of(label)})
            assert len(rows) == 2
            check_firsts(cell, rows)


def test_first_samples_of_all_voices() -> None:
    for label, *line in table(STREAMING, "first samples, ms", "x-vector", "preset", "ICL of 10 s"):
        for cell, voice in zip(line, VOICES, strict=True):
            check_firsts(cell, [only(H200, commit="fb2d18f", **case_of(f"{voice} voice, {label}"))])


def test_first_samples_of_two_leases() -> None:
    for label, _, one, other in table(STREAMING, "first samples, ms", "bar", "f3eb5c7", "1d78a06"):
        case = {**case_of(label), "characters": 18}
        check_firsts(one, [only(H200, commit="f3eb5c7", **case)])
        if (
            case["model"] == "0.6B"
        ):  # of two figures the first, and those of 1.7B, were copied from the console
            check_firsts(other.split(", ")[-1], [only(H200, commit="1d78a06", **case)])


def test_first_samples_on_an_h100() -> None:
    for label, *line in table(
        STREAMING, "first samples, ms, on an H100", "x-vector", "preset", "ICL of 10 s"
    ):
        for cell, voice in zip(line, VOICES, strict=True):
            check_firsts(cell, [only(H100, commit="073737a", **case_of(f"{voice} voice, {label}"))])


def check_many(line: Sequence[str], row: dict[str, Any]) -> None:
    """Check arrivals, and what those that arrive and those that play hear."""
    first, arrivals, times, ms = line
    check_firsts(first, [row])
    check_cell(arrivals, row["arrivals"])
    check_cell(times, row["arrival_p50_ms"], row["arrival_p95_ms"])
    check_cell(ms, row["ms_per_frame"])


def test_many_lines_at_once() -> None:
    lines = table(STREAMING, "lines at once", "commit", "first samples, ms", "arrivals",
                  "their first samples, p50 and p95", "ms per frame", "underruns", "silence of a line, ms")  # fmt: skip
    for count, commit, *line, underruns, silence in lines:
        row = only(H200, table="stream", commit=commit, lines=int(count))
        check_many(line, row)
        check_cell(NUMBER.findall(underruns)[0], row["underruns"])
        check_cell(silence, row["gap_ms"] or None)


def test_many_lines_of_today() -> None:
    lines = table(STREAMING, "lines at once", "ms per frame", "first samples, ms", "arrivals",
                  "their first samples, p50 and p95", "underruns")  # fmt: skip
    for count, ms, first, arrivals, times, underruns in lines:
        row = only(H200, table="stream", commit="1d78a06", lines=int(count))
        check_many((first, arrivals, times, ms), row)
        check_cell(NUMBER.findall(underruns)[0], row["underruns"])


# Of the guide's table: the files and commits of its devices.
STREAMED = {"H200": (H200, {"commit": "1d78a06", "voice": "x_vector"}),
            "H100": (H100, {"commit": "073737a", "voice": "x_vector"}),
            "two CPU cores": ("intel-r-xeon-r-processor-2-threads", {"voice": "preset"})}  # fmt: skip


def test_how_many_lines_at_once() -> None:
    titles = ("device, model", "S", "lines at once", "first samples, ms",
              "of a line that comes later, p50, p95", "ms per frame", "gaps")  # fmt: skip
    for label, groups, count, first, later, ms, gaps in table("docs/streaming.md", *titles):
        device, model = label.split(", ")
        name, wanted = STREAMED[device]
        model = model.removesuffix(" voice")
        row = find(name, table="stream", model=model, seq_groups=int(groups), lines=int(count), **wanted)[0]
        check_firsts(first, [row])
        check_cell(later, row["arrival_p50_ms"], row["arrival_p95_ms"])
        check_cell(ms, row["ms_per_frame"])
        check_cell(gaps, row["underruns"])


def test_a_stream_of_its_own_for_the_codec() -> None:
    lines = table(STREAMING, "12 frames of all lines, ms", "S", "frames", "codec", "one after the other",
                  "at the same time", "saved")  # fmt: skip
    for label, groups, *cells, saved in lines:
        case = {"batch": int(label.split()[0]), "engine": "step" if "streams" in label else "rows"}
        row = only(H200, table="two_streams", seq_groups=int(groups), **case)
        for cell, field in zip(cells, ("frames_ms", "codec_ms", "behind_ms", "beside_ms"), strict=True):
            check_cell(cell, row[field])
        check_cell(saved, 100 * (1 - row["beside_ms"] / row["behind_ms"]))


@pytest.mark.parametrize(
    ("index", "name", "commit"), [(0, H200, ""), (1, H200, "f3eb5c7"), (2, H100, "931d6c0")]
)
def test_the_server(index: int, name: str, commit: str) -> None:
    titles = ("model", "requests a second, rows", "lines", "p50, p95, ms", "aim", "underruns, lost, refused")
    for label, asked, lines, times, _, wrong in tables(SERVER, *titles)[index]:
        model, *words = label.split(", ")
        rate, rows = map(int, asked.split(", "))
        case = {"commit": next((word for word in words if word != "ten minutes"), commit), "model": model}
        found = find(name, table="server", rate=rate, rows=rows, **case)
        [row] = [one for one in found if (one["seconds"] == 600) == ("ten minutes" in words)]
        check_cell(lines, row["lines"])
        check_cell(times, row["p50_ms"], row["p95_ms"])
        check_cell(wrong, row["underruns"], row["lost"], row["refused"])


def test_the_server_on_two_h100s() -> None:
    titles = ("model, requests a second, rows", "host", "lines", "p50, p95, p99, ms", "underruns, longest")
    for label, host, lines, times, wrong in table(SERVER, *titles):
        model, rate, rows, *commit = label.split(", ")
        lease = f"lease {('first', 'second').index(host) + 1}, 2026-11-28"
        made = commit[0] if commit else {"first": "9290b9e", "second": "9290b9e, traced"}[host]
        row = only(H100, table="server", model=model, rate=int(rate), rows=int(rows), host=lease, commit=made)
        check_cell(lines, row["lines"])
        check_cell(times, row["p50_ms"], row["p95_ms"], row["p99_ms"])
        check_cell(wrong, row["underruns"], row["gap_ms"] or None)


# Of the guide's table: rows of the log, (file, commit), by model and lines a second; on an H100 with gaps elsewhere.
ON_H200 = {("0.6B", 1): "8228a35", ("0.6B", 20): "8228a35", ("0.6B", 100): "cf61777",
           ("1.7B", 1): "88a9a13", ("1.7B", 20): "88a9a13"}  # fmt: skip
ON_H100 = {("0.6B", 1): (H100, "62b5e97"), ("0.6B", 20): (H100, "073737a"),
           ("0.6B", 100): (H100, "9290b9e, traced"), ("1.7B", 20): (H100, "931d6c0"),
           ("1.7B", 50): (H100, "9290b9e, traced")}  # fmt: skip


def longest(name: str, **wanted: Any) -> dict[str, Any]:
    """Return the row of the longest run with these values."""
    return max(find(name, **wanted), key=lambda row: row["seconds"])


def test_how_many_rows_for_how_many_listeners() -> None:
    lines = table("docs/server.md", "model", "lines a second", "listeners", "`--rows`", "GPU memory, GiB",
                  "H200: first sound, ms", "H100: first sound, ms")  # fmt: skip
    for model, rate, listeners, batch, memory, *times in lines:
        key = (model, int(rate))
        wanted = {"table": "server", "model": model, "rate": int(rate), "rows": int(batch)}
        on_h200, on_h100 = ON_H200.get(key), ON_H100.get(key)
        rows = [on_h200 and longest(H200, commit=on_h200, **wanted),
                on_h100 and longest(on_h100[0], commit=on_h100[1], **wanted)]  # fmt: skip
        assert all(bool(cell) == bool(row) for cell, row in zip(times, rows, strict=True))
        measured = [row for row in rows if row]
        check_cell(listeners, measured[0]["audio_seconds_per_second"])
        check_cell(memory, measured[0]["gpu_mib_end"] / 1024)
        for cell, row in zip(filter(None, times), measured, strict=True):
            check_cell(cell, row["p50_ms"], row["p95_ms"])
            assert (row["underruns"], row["lost"], row["refused"]) == (0, 0, 0)


def test_many_gpus() -> None:
    lines = table("docs/log/many-gpus.md", "", "GPUs", "one, s of sound a second", "both", "times")
    for label, gpu, one, both, times in lines:
        engine = next((name for start, name in ENGINES.items() if label.startswith(start)), "shared")
        commit = label.split(", ")[1]
        wanted = {"table": "many", "engine": engine, "commit": commit}
        if found := re.search(r"(\d+) rows", label):
            wanted["batch"] = int(found[1])
        name = H200 if gpu == "H200" else H100
        first, *others = find(name, **wanted)[:2]
        check_cell(one, first["audio_seconds_per_second"])
        assert bool(others) == bool(both) == bool(times), f"{label}: how many devices were measured?"
        for second in others:
            check_cell(both, second["audio_seconds_per_second"])
            check_cell(times, second["times_one"])


# Of the guide's table, by way and GPU: the engine, commit and rows of the log's.
WAYS = {("`device` *all GPUs*", "H200"): ("shared", "8d0a24bb", 64),
        ("`serve --devices`", "H200"): ("server", "8d0a24bb", 64), ("`serve --ray`, 64 rows", "H100"):
        ("ray", "62b5e97", 64), ("`serve --ray`, 32 rows", "H100"): ("ray", "62b5e97", 32)}  # fmt: skip


def test_which_way_to_use_several_gpus() -> None:
    titles = ("you want", "way", "GPUs", "one, s of sound a second", "two", "times")
    for _, way, gpu, one, two, times in table("docs/many-gpus.md", *titles):
        if gpu == "not measured":
            assert (one, two, times) == ("", "", "")
            continue
        engine, commit, batch = WAYS[way, gpu]
        wanted = {"table": "many", "engine": engine, "commit": commit, "batch": batch}
        name = H200 if gpu == "H200" else H100
        first, second = find(name, **wanted)
        check_cell(one, first["audio_seconds_per_second"])
        check_cell(two, second["audio_seconds_per_second"])
        check_cell(times, second["times_one"])


def test_prompts_and_frames_of_a_large_model() -> None:
    lines = table(
        "docs/kernels.md", "1.7B, ms (H200, 2026-11-24)", "held", "ring of 108 KB", "ring of 216 KB"
    )
    for label, *cells in lines:
        for cell, kind in zip(cells, ("held", "default", "216 KB"), strict=True):
            if label.startswith("pass"):
                row = only(H200, commit="fb2d18f", table="pass", what=f"32 positions, {kind}")
                check_cell(cell, row["ms"])
            else:
                names = (f"S={groups}, batch {label.split()[1]}" for groups in (15, 5))
                rows = (only(H200, commit="fb2d18f", table="frame", what=name) for name in names)
                check_cell(cell, *(row[f"{kind}_ms"] for row in rows))


def test_frames_of_many_lines() -> None:
    lines = table("docs/kernels.md", "lines: frame in ms, s of audio a second", *(
        f"S={groups}, {products}" for groups in (15, 5) for products in ("ours", "cuBLAS")
    ))  # fmt: skip
    for batch, *cells in lines:
        settings = [(groups, products) for groups in (15, 5) for products in ("ours", "cuBLAS")]
        for cell, (groups, products) in zip(cells, settings, strict=True):
            what = f"S={groups}, batch {batch}, {products}"
            row = only(H100, commit="449b61b", table="frame", what=what)
            check_cell(cell, row["ms"], row["audio_s_per_s"])


def test_prefill() -> None:
    lines = table(BENCHMARKS, "ms", "1 line", "4 lines", "16 lines", "64 lines")
    for (_, *cells), engine in zip(lines, ("kernels", "graph"), strict=True):
        for cell, batch in zip(cells, (1, 4, 16, 64), strict=True):
            check_cell(cell, value(H200, "ms", table="prefill", model="0.6B", engine=engine, batch=batch))


def test_memory() -> None:
    for model, weights, *peaks in table(BENCHMARKS, "GB", "weights", "1 line", "64 lines"):
        for cell, batch in zip(peaks, (1, 64), strict=True):
            wanted = {"table": "memory", "model": model, "batch": batch, "precision": "bfloat16"}
            check_cell(cell, value(H200, "peak_gb", **wanted))
            check_cell(weights, value(H200, "weights_gb", **wanted))


def test_slabs_of_a_codecs_step() -> None:
    engines = ("one slab per line, 24 frames in every block",
               *(f"newest frames, slabs of {frames}" for frames in (12, 48, 192, 768)))  # fmt: skip
    lines = table("docs/codec.md", "lines", "24 frames, a slab per line", "newest frames, slabs of 12 new frames",
                  "48", "192 (in use)", "one slab")  # fmt: skip
    for count, *cells in lines:
        for cell, engine in zip(cells, engines, strict=True):
            check_cell(cell, only(H100, table="codec_step", engine=engine, batch=int(count))["ms"])


def test_the_papers_table() -> None:
    rows = {(row["strategy"], row["seq_groups"]): row for row in read_rows("ablation_demo_50")}
    keys = (("upstream", 15), ("tight-loop", 15), ("crossbar", 15), ("compiled", 15), ("chunked", 5))
    for (label, ms), key in zip(table(KNOB, "row", "ms per frame"), keys, strict=True):
        check_cell(ms, rows[key]["eager_ms_per_frame"][0])
        if "DistillMOS" in label:
            check_cell(label, *rows[key]["against_exact"]["mos"])


def after(page: str, words: str) -> str:
    """Return a page's text behind the only place with these words, on one line."""
    text = re.sub(r"\s+", " ", (ROOT / page).read_text(encoding="utf-8"))
    assert text.count(words) == 1, (words, text.count(words))
    return text.partition(words)[2]


def test_what_the_knob_says_of_200_lines() -> None:
    rows = {
        (row["strategy"], row["seq_groups"]): row["against_exact"]["mos"] for row in read_rows("quality_demo")
    }
    said = after(KNOB, "quality_demo.json`, DistillMOS): S = 5 with stock heads")
    keys = (("crossbar", 5), ("trained", 5), ("lossless", 1), ("lossless-trained", 1))
    figures = [NUMBER.findall(said)[3 * place : 3 * place + 3] for place in range(len(keys))]
    for cell, key in zip(figures, keys, strict=True):
        check_cell(" ".join(cell), *rows[key])
    stock, *others = ([float(figure) for figure in cell] for cell in figures)
    assert all(figure < 0 for figure in stock), "0 is outside of the interval, and is printed so"
    assert all(low < 0 < high for _, low, high in others), "the page says that these lose nothing measurable"


def test_what_the_knob_says_was_better_by_chance() -> None:
    better = [
        [scale * one for one in change]
        for metric, scale in (("mos", 1), ("similarity", 1), ("wer", 100))
        for row in read_rows("quality_demo_50")
        if (change := row["against_exact"][metric]) and (change[2] < 0 if metric == "wer" else change[1] > 0)
    ]
    said = after(KNOB, "so some intervals exclude 0 by chance.").partition("No setting can be better")[0]
    in_brackets = " ".join(re.findall(r"\((.*?)\)", said))
    check_cell(in_brackets, *(one for change in better for one in change))


def test_how_many_gpus() -> None:
    kept = json.loads((RESULTS / "capacity.json").read_text(encoding="utf-8"))
    plans = {(plan["listeners"], plan["target_ms"]): plan for plan in kept["plans"]}
    targets = (25, 50, 100, 250)
    titles = ("listeners", *(f"{target} ms" for target in targets), "audio hour, 100 ms")
    for listeners, *cells, cost in table(CAPACITY, *titles):
        count = int(listeners.replace(",", ""))
        for cell, target in zip(cells, targets, strict=True):
            check_cell(cell, plans[count, target]["gpus"])
        check_cell(cost, plans[count, 100]["cost"])
    spread = table(CAPACITY, "100,000 listeners, target", "GPUs", "rows of each", "p95 of five runs, ms")
    for target, gpus, rows, runs in spread:
        plan = plans[100_000, float(target.removesuffix(" ms"))]
        check_cell(f"{gpus} {rows}", plan["gpus"], plan["rows"])
        check_cell(runs, plan["least_p95_ms"], plan["p95_ms"])
    for (what, *cells), one in zip(table(CAPACITY, "", "measured", "simulated"), kept["checks"], strict=True):
        assert what == one["what"]
        check_cell(" ".join(cells), one["measured_ms"], one["simulated_ms"])


def test_libraries_for_speed_and_pitch() -> None:
    titles = ("library", "speed", "pitch", "similarity", "DistillMOS", "length off by, ms", "ms per s")
    for line, row in zip(table("docs/timing.md", *titles), read_rows("stretch"), strict=True):
        assert line[0] == row["library"]
        shown = re.sub(r"(?<=\d)-", " ", " ".join(line[1:]))
        check_cell(shown, row["speed"], row["semitones"], row["similarity"][0], *row["distillmos"],
                   row["length_error_ms"], 1000 * row["cost"])  # fmt: skip


def test_wrong_words_before_and_after_the_word_check() -> None:
    names = ("whisper base", "whisper tiny.en", "pocketsphinx")
    titles = ("`most_errors` %", "`retakes`", "lines made again", "work")
    lines = table("docs/log/everyday.md", *titles, *(f"{name}, before and after" for name in names))
    for most, retakes, again, work, *cells in lines:
        wanted = {"most_errors": int(most) / 100, "retakes": int(retakes)}
        rows = find("word_check", **wanted)
        assert len(rows) == 200
        check_cell(again, sum(row["takes"] > 1 for row in rows))
        frames = [sum(row["frames"][kept] for row in rows) for kept in (0, 1)]
        check_cell(work, frames[1] / frames[0])
        words = sum(row["words"] for row in rows)
        for cell, name in zip(cells, names, strict=True):
            wrong = (sum(row[when][name] for row in rows) for when in ("before", "after"))
            check_cell(cell, *(100 * one / words for one in wrong))
