"""Train a LoRA adapter for one voice, and judge its speech."""
