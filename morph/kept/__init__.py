"""Lines that are made once: kept lines, word checks, several devices."""
