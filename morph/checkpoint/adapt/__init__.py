"""Changes to the pack's own copy of ``qwen_tts``, so that it runs on every supported transformers."""
