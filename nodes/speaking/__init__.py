"""Speaking: the nodes for one text, a script, captions and a sweep, and the settings and casts that these take."""
