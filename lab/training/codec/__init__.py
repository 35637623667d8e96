"""The speech tokenizer (codec) of the demo voice: training, export and evaluation."""
