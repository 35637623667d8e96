"""The paper's ablation table, rerun. See ``__main__`` for the command and ``strategies.py`` for the rows."""
