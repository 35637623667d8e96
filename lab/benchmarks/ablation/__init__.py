"""The paper's ablation table, repeated. See ``__main__`` for the command and ``quality/paper_strategies.py``."""
