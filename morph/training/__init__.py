"""Train a LoRA adapter on recordings of one voice."""
