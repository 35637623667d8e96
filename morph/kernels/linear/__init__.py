"""Linear layers in Triton, with the norm before them and the bias, SwiGLU or residual after them fused in.

"Rows" are activation rows: lines times new positions per line. ``launch.project`` chooses by this table, from shapes
alone (``tiles.gemm_tile``):

    rows     weights                      kernel                      why
    1-2      any, INT8 too                gemv                        bound by reading the weights; CUDA cores
    3-32     16 bits, capability 9.0      gemm_folded                 wgmma with the weights as its 64 rows, held in
                                                                      shared memory; needs outputs and width that divide
    > 2      16 bits, capability 9.0      gemm_held                   wgmma, weights held in shared memory; where
                                                                      gemm_folded's tile does not fit, and above 32 rows
    3-64     16 bits, capability 9.0      gemm_folded, streamed       a ring of weights; where the programs of either
                                                                      would be too many to hold theirs at once
    > 2      all else: float32, INT8,     gemm                        tl.dot, both operands pipelined; any GPU from
             other GPUs, other shapes                                 8.0 on, and the interpreter
    > 64     all but INT8, any GPU        cuBLAS (``library``)        our tiles read the weights again for every 64
                                                                      rows; cuBLAS's time hardly grows up to 256
    65-256   16 bits, capability 9.0      gemm, split-K               narrow products that are added to the residual
                                                                      stream: cuBLAS has few programs for them

With split-K (``gemm`` above 32 rows, ``gemm_held``, ``gemm_folded`` with a ring, never with SwiGLU) a second kernel,
``reduce_split_k``, adds up the partials and applies the epilogue.

The output projection of one line's attention is a GEMV inside the attention kernel: ``attention/one_line.py``.
A prefill's linear layers are cuBLAS's (``prefill.py``), but for a single line's short prompt, whose positions are rows
here (``frame.run_prompt``).
"""
