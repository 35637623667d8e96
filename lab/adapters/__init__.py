"""Train a LoRA adapter for one voice, and hear what it does."""
