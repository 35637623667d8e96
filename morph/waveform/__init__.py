"""The batch codec: codes of many lines to waveforms, offline or streamed."""
