"""Models: loading one, here or on a server, ComfyUI's memory management, and what a model's lines are spoken with."""
