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
    "64 columns": {"wide_columns": 64},
    "64 KB early": {"wide_bytes": 65536},
    "attention in blocks of 64": {"split_block": 64},
}
