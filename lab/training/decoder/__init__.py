"""Training the codec's decoder further, on the codes that the shipped codec has for recordings."""
