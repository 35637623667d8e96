"""Models: load one here or on a server, ComfyUI's memory management, and speech with a model."""
