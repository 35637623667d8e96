"""A recording of what is spoken equals itself, and a code, a sample or a line that differs is found."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling

from lab.benchmarks import recorded
from lab.benchmarks.recorded import WAYS, Case, Recording, compare, record

CASE = Case("tiny", "graph", GenerateOptions(5, Sampling(max_new_tokens=5)), tuple(WAYS), 2, "base")


@pytest.fixture(scope="module")
def made() -> Recording:
    return record([CASE])


def changed(recording: Recording, part: str, change) -> Recording:
    """Return a recording with another part in the place of the first of its kind, a copy that was changed."""
    name = next(name for name in recording if name.endswith(part))
    return recording | {name: change(recording[name].copy())}


def with_another_code(codes: np.ndarray) -> np.ndarray:
    codes[1, 3] += 1
    return codes


def test_samples_may_differ_by_their_rounding_only(made) -> None:
    assert compare(made, changed(made, "samples", lambda wave: wave * np.float32(1 + 1e-5))) == []
    [found] = compare(made, changed(made, "samples", lambda wave: wave * np.float32(1.001)))
    assert found.endswith("samples: differs by -60 dB")
    [found] = compare(made, changed(made, "samples", lambda wave: wave[:-1]))
    assert "was recorded, now it is" in found


def test_a_line_that_only_one_recording_has_is_found(made) -> None:
    [name, *others] = made
    for before, after in ((others, made), (made, others)):
        found = compare({one: made[one] for one in before}, {one: made[one] for one in after})
        assert found == [f"{name}: only in one of the recordings"]


def test_the_command_compares_with_its_file(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(recorded, "cases", lambda: [replace(CASE, ways=("streams",))])
    file = str(tmp_path / "recorded.npz")
    recorded.main(["--record", file])
    recorded.main(["--compare", file])
    assert "all 6 parts of lines are as recorded" in capsys.readouterr().out
    with np.load(file) as kept:
        np.savez(file, **changed(dict(kept), "codes", with_another_code))
    with pytest.raises(SystemExit, match=r"codes: differs from index \[1, 3\]"):
        recorded.main(["--compare", file])
