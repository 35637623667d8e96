"""Kernels compiled ahead of a pass: none is launched, none is left to compile for the pass, no state changes."""

import copy
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton", reason="not run: the kernels need triton")

import triton
from qwen3_tts_morph.morph.kernels import compile_passes, precompile
from qwen3_tts_morph.morph.kernels.frame import decode_frame
from qwen3_tts_morph.morph.kernels.plan import Plan
from qwen3_tts_morph.morph.kernels.precompile import compile_in_parallel, compile_only, run
from qwen3_tts_morph.morph.options import Sampling

from lab.benchmarks.random_weights import SHAPES, random_slots, random_weights

needs_mode = pytest.mark.skipif(
    not hasattr(triton, "AsyncCompileMode"), reason="this Triton cannot compile in parallel"
)


class Kernel:
    """A fake kernel that records its calls."""

    def __init__(self):
        self.calls: list[tuple] = []

    def __getitem__(self, grid):
        return lambda *arguments, **options: self.calls.append(("run", grid, arguments, options))

    def warmup(self, *arguments, grid, **options):
        self.calls.append(("compile", grid, arguments, options))


def test_a_kernel_is_launched_or_compiled_with_the_same_arguments():
    kernel = Kernel()
    run(kernel, (3, 2), 7, WIDTH=5)
    compile_only(kernel, (3, 2), 7, WIDTH=5)
    assert kernel.calls == [("run", (3, 2), (7,), {"WIDTH": 5}), ("compile", (3, 2), (7,), {"WIDTH": 5})]


def test_one_kernel_is_launched_at_a_time():
    """Two threads that load launchers may get each other's."""
    running, most = [], []

    class Slow(Kernel):
        def __getitem__(self, grid):
            running.append(self)
            most.append(len(running))
            time.sleep(0.01)
            return lambda: running.remove(self)

    with ThreadPoolExecutor() as threads:
        for launched in [threads.submit(run, Slow(), (1,)) for _ in range(4)]:
            launched.result()
    assert most == [1] * 4


def test_launchers_are_built_where_triton_looks_for_them(monkeypatch, tmp_path):
    from triton.backends.nvidia import driver
    from triton.runtime import build

    if not hasattr(driver, "make_launcher"):
        pytest.skip("this Triton has one launcher for all kernels")
    built = []

    def build_file(name: str, source: str, folder: str, *_: object) -> str:
        built.append(Path(source).read_text())
        made = Path(folder, "launcher.so")
        made.write_bytes(b"launcher")
        return str(made)

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(build, "_build", build_file)
    monkeypatch.setattr(driver, "library_dirs", lambda: [])
    monkeypatch.setattr(
        build, "_load_module_from_path", lambda name, path: SimpleNamespace(launch=Path(path).read_bytes())
    )
    signature = {"x": "*fp32", "count": "i32", "WIDTH": "constexpr"}
    precompile.build_launcher(signature, None)
    precompile.build_launcher(signature, None)
    metadata = dict.fromkeys(("global_scratch_size", "global_scratch_align"), 0)
    metadata |= dict.fromkeys(("profile_scratch_size", "profile_scratch_align"), 0)
    metadata |= {"launch_cooperative_grid": False, "launch_pdl": False, "cluster_dims": (1, 1, 1)}
    loaded = driver.CudaLauncher(SimpleNamespace(signature=signature), SimpleNamespace(**metadata))
    assert loaded.launch == b"launcher" and len(built) == 1


def test_an_older_triton_compiles_at_the_first_launch(monkeypatch):
    monkeypatch.delattr(triton, "AsyncCompileMode", raising=False)
    compile_in_parallel(lambda: pytest.fail("the pass ran"))


@needs_mode
@pytest.mark.parametrize("cold_s, passes", [(60, ["needed"]), (-1, ["needed", "later"])])
def test_kernels_that_are_needed_later_are_compiled_ahead_only_if_the_machine_is_new(monkeypatch, cold_s, passes):
    from triton.runtime import _async_compile

    ran, kept = [], list[str]()

    def run_pass(name: str) -> None:
        ran.append(name)
        _async_compile.active_mode.get().submit(name, lambda: name, kept.append)

    monkeypatch.setattr(precompile, "COLD_S", cold_s)
    compile_in_parallel(partial(run_pass, "needed"), partial(run_pass, "later"))
    assert ran == kept == passes
    assert _async_compile.active_mode.get() is None


@pytest.mark.parametrize("shape, batch", [("tiny", 1), ("tiny-1.7B", 4)])
@torch.inference_mode()
def test_compiling_a_frame_launches_nothing_and_changes_no_line(device, shape, batch):
    torch.manual_seed(0)
    weights = random_weights(SHAPES[shape], device, torch.float32)
    slots = random_slots(SHAPES[shape], weights, batch, 64, [40, 3, 17, 62][:batch], Sampling())
    before, kernels = copy.deepcopy(slots), []
    decode_frame(weights, slots, 5, 64, Plan(start=lambda kernel, *_, **__: kernels.append(kernel.__name__)))
    assert {"sample_codes", "embed_frame", "sample_first"} <= set(kernels)
    for name, part in vars(before.state).items():
        assert torch.equal(getattr(slots.state, name), part), name
    for cache, other in ((slots.cache, before.cache), (slots.frame_cache, before.frame_cache)):
        assert torch.equal(cache.keys, other.keys) and torch.equal(cache.values, other.values)


@pytest.mark.gpu
@needs_mode
@torch.inference_mode()
def test_a_frame_finds_all_its_kernels_compiled(tmp_path, monkeypatch):
    """With a separate cache, and a shape that no earlier test compiled."""
    from triton import knobs

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    device, compiled = torch.device("cuda"), []
    weights = random_weights(SHAPES["tiny-1.7B"], device, torch.bfloat16)
    slots = random_slots(SHAPES["tiny-1.7B"], weights, 3, 64, [40, 3, 17], Sampling())
    monkeypatch.setattr(knobs.runtime, "jit_post_compile_hook", lambda **given: compiled.append(given["key"]))
    compile_passes(device, partial(decode_frame, weights, slots, 6, 64))
    ahead = len(compiled)
    decode_frame(weights, slots, 6, 64)
    torch.cuda.synchronize()
    assert len(compiled) == ahead > 0
