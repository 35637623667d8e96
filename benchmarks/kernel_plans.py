"""Other plans than the default that ``benchmarks.kernels`` tries: a label, and the fields of ``Plan`` that differ."""

from __future__ import annotations

from typing import Any

VARIANTS: dict[str, dict[str, Any]] = {
    "no dependent launch": {"pdl": False},
    "4 KB a warp": {"register_bytes": 4096},
    "16 KB a warp": {"register_bytes": 16384},
    "8 warps": {"warps": 8},
    "4 warps where parts are summed": {"gated_warps": 4},
    "104 registers": {"registers": 104},
    "no eviction hint": {"evict": ""},
    "tensor cores at one line": {"few": 0},
    "attention in blocks of 16": {"split_block": 16},
    "o-proj in 8 parts": {"parts": 8},
    "o-proj in 2 parts": {"parts": 2},
}
WIDE_VARIANTS: dict[str, dict[str, Any]] = {
    "no dependent launch": {"pdl": False},
    "no prefetch": {"wide_prefetch": False},
    "16 columns": {"wide_columns": 16},
    "32 columns": {"wide_columns": 32},
    "128 columns": {"wide_columns": 128, "wide_shared": 200000},
    "programs as many as fit": {"wide_programs": 128},
    "few programs": {"wide_programs": 32},
    "segments of 64": {"wide_segment": 64},
    "segments of 64, 32 columns": {"wide_segment": 64, "wide_columns": 32},
    "segments of 256, 32 columns": {"wide_segment": 256, "wide_columns": 32, "wide_shared": 200000},
    "3 stages": {"wide_stages": 3},
    "200 KB of stages": {"wide_shared": 200000},
    "200 KB of stages, segments of 64": {"wide_shared": 200000, "wide_segment": 64, "wide_stages": 12},
    "64 KB of stages, segments of 64": {"wide_shared": 65536, "wide_segment": 64},
    "4 warps": {"wide_warps": 4},
    "4 warps, 32 columns": {"wide_warps": 4, "wide_columns": 32},
    "128 rows": {"wide_rows": 128},
    "held": {"wide_held": True},
    "held, 32 columns": {"wide_held": True, "wide_columns": 32},
    "held, 16 columns": {"wide_held": True, "wide_columns": 16},
    "held, 4 warps": {"wide_held": True, "wide_warps": 4},
    "held, 4 stages": {"wide_held": True, "wide_stages": 4},
    "held, segments of 64": {"wide_held": True, "wide_segment": 64, "wide_stages": 12},
    "held, segments of 256": {"wide_held": True, "wide_segment": 256},
    "held, no dependent launch": {"wide_held": True, "pdl": False},
    "attention as of few lines": {"attend_many": False},
    "attention in blocks of 16": {"attend_block": 16},
    "attention in blocks of 64": {"attend_block": 64},
    "attention with 2 warps": {"attend_warps": 2},
    "attention in 2 stages": {"attend_stages": 2},
    "attention in 5 stages": {"attend_stages": 5},
}
