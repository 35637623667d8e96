"""Numbers that several kernels and the code that launches them agree on."""

SUM_WIDTH = 16  # columns of the residual stream whose squares are summed together, for the next RMSNorm
