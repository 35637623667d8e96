"""Speech to train on, from nothing: texts, a teacher's voices, and shards of what they say."""
