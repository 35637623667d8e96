"""From a line to its pieces, takes and report: what is spoken, before and after the engine."""
