"""How long a test waits for what must happen: only a test that fails waits so long, on however busy a machine."""

PATIENCE = 600.0  # seconds
