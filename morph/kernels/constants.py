"""Numbers that several kernels and the code that launches them agree on."""

SUM_WIDTH = (
    16  # columns of a row of the residual stream whose squares are summed together, for the next RMSNorm
)
