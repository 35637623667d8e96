"""Speech outside ComfyUI: the command line and the speech server."""
