"""The times of words are found in other processes: the server's own has one lock for all its Python, models' too."""
