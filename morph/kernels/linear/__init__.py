"""Linear layers in Triton, fused with the norm before and the bias, SwiGLU or residual after them.

"Rows" are activation rows: lines times new positions per line. ``launch.project`` chooses from shapes alone
(``tiles.gemm_tile``):

    rows     weights                      kernel                      why
    1-2      any, INT8 too                gemv                        bound by reading the weights; CUDA cores
    3-32     16 bits, capability 9.0      gemm_folded                 wgmma with the weights as its 64 rows, held in
                                                                      shared memory; needs outputs and width that divide
    > 2      16 bits, capability 9.0      gemm_held                   wgmma, weights held in shared memory; if
                                                                      gemm_folded's tile does not fit, and above 32 rows
    3-64     16 bits, capability 9.0      gemm_folded, streamed       a ring of weights; if the programs of either
                                                                      would be too many to run concurrently
    > 2      all else: float32, INT8,     gemm                        tl.dot, both operands pipelined; any GPU from
             other GPUs, other shapes                                 8.0 on, and the interpreter
    > 64     all but INT8, any GPU        cuBLAS (``library``)        our tiles read the weights again for every 64
                                                                      rows; cuBLAS's time hardly grows up to 256
    65-256   16 bits, capability 9.0      gemm, split-K               narrow GEMMs added to the residual stream: cuBLAS
                                                                      has few programs for them

After split-K (``gemm`` above 32 rows, ``gemm_held``, ``gemm_folded`` with a ring, never with SwiGLU),
``reduce_split_k`` adds up the partials and applies the epilogue. One line's output projection is a GEMV inside
``attention/one_line.py``. cuBLAS computes a prefill's linear layers (``frame.PromptOps``), except a single line's short
prompt (``frame.run_prompt``).
"""
