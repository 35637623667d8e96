"""The training corpus, made from scratch: texts, a teacher's voices, and shards of its speech."""
