"""Studies that users run: SEQ_GROUPS compared."""
