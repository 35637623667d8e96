"""Lines, before and after the engine: pieces, takes and reports."""
