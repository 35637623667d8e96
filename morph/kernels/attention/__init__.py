"""Attention over the static KV cache in Triton: RMSNorm and RoPE of queries and keys, cache write, softmax.

``launch.attend`` chooses:
    lines    new positions  context                     kernels
    1        1-2            a frame's (<= 32)           attend_o_proj: attention and output projection in one
    1        1              long                        attend_line, then combine_o_proj (flash-decoding; the
                                                        output projection combines the splits)
    more     1              not split                   attend_batch
    any      2              none: positions 0 and 1     attend_pair
    any      1              split                       attend_split and combine_splits
The last three leave the heads' values for a linear layer to project.
"""
