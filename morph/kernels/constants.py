"""Constants that several kernels share with the code that launches them."""

SUM_WIDTH = 16  # columns of the residual stream whose squares are summed together, for the next RMSNorm
