"""Upstream (``qwen_tts``) for comparisons: imported on every supported transformers, over our tensors."""
