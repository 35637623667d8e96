"""The page's player beside a simulated source: one that is slower than real time is heard later, and without gaps."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

PLAYER = Path(__file__).resolve().parents[3] / "web" / "js" / "player.js"
RATE = 1000  # Hz: the simulated sound's
SIMULATE = """
const { StreamPlayer } = await import(process.argv[1])
const { speed, before, likely, length, rate } = JSON.parse(process.argv[2])
const context = {
  currentTime: 0, sources: [],
  createBuffer: (_, samples) => ({ samples, copyToChannel() {} }),
  createBufferSource: () => ({
    connect() {}, stop() {}, start(at) { context.sources.push([at, this.buffer.samples / rate]) },
  }),
}
const player = new StreamPlayer(context, {}, rate, before ? { speed: before, end: 0 } : undefined)
if (likely) player.expected = likely
for (let chunk = 0; chunk < 10 * length; chunk++) {
  context.currentTime = 5 + chunk / 10 / speed
  player.push(new Uint8Array(2 * 0.1 * rate))
}
player.finish()
const gaps = context.sources.filter(([at], n, all) => n && at > all[n - 1][0] + all[n - 1][1] + 1e-6).length
const heard = context.sources.reduce((sum, [, seconds]) => sum + seconds, 0)
console.log(JSON.stringify({ begins: context.sources[0][0] - 5, gaps, heard, underruns: player.underruns }))
"""


def simulate(speed: float, before: float = 0, likely: float = 0, length: float = 10) -> dict[str, Any]:
    """Return when the sound begins after its first chunk, how many gaps it has, and how much is heard."""
    if (node := shutil.which("node")) is None:
        pytest.skip("not run: no node is installed")
    given = json.dumps({"speed": speed, "before": before, "likely": likely, "length": length, "rate": RATE})
    command = [node, "--input-type=module", "-e", SIMULATE, PLAYER.as_uri(), given]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.parametrize("likely", [8, 10, 12])
@pytest.mark.parametrize("before", [0, 0.5, 3])
def test_a_slow_source_is_heard_later_and_has_no_gaps(before: float, likely: float) -> None:
    said = simulate(0.5, before, likely)
    # Where a run before was fast, its speed is believed until the first gap. What is longer than is likely has a few.
    assert said["gaps"] <= (before > 1) + 2 * (likely < 10) and said["heard"] == pytest.approx(10)
    assert before > 1 or said["begins"] >= 0.5 * likely


@pytest.mark.parametrize(("before", "begins"), [(3, 0.08), (0, 0.08 + 0.1 / 3)])
def test_a_fast_source_is_heard_at_once(before: float, begins: float) -> None:
    """After the first chunk where the speed is known, after the second where it is not."""
    said = simulate(3, before, 10)
    assert said["begins"] == pytest.approx(begins) and said["gaps"] == 0 and said["heard"] == pytest.approx(10)


def test_where_the_length_is_not_known_nothing_waits() -> None:
    said = simulate(0.5)
    assert said["begins"] == pytest.approx(0.08) and said["gaps"] > 10
