"""What is spoken, before and after the engine: lines, pieces, takes and reports."""
