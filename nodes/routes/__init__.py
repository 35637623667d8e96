"""The HTTP routes that the pack adds to ComfyUI's server."""
