"""Studies that users run: compare several SEQ_GROUPS."""
