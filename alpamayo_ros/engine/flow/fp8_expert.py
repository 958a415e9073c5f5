"""The action expert for a GPU with FP8 layers: weights and activations, token by token; attention stays bfloat16.

One trajectory is bound by the weights' bytes, which are half of bfloat16's; many trajectories by arithmetic, which
runs at twice its rate.
"""

from __future__ import annotations

from torch import Tensor, nn

from alpamayo_ros.engine.flow.fused_expert import FusedLayer, attend
from alpamayo_ros.engine.fp8 import Fp8Rows
from alpamayo_ros.engine.fp8_product import stored
from alpamayo_ros.engine.kernels.between_products import add_and_norm
from alpamayo_ros.engine.kernels.fp8_layer import add_product, gated_product, product
from alpamayo_ros.engine.kernels.fp8_rows import norm_and_quantize, quantize
from alpamayo_ros.model.expert import Context, Expert, ExpertLayer


class Fp8Expert:
    """`Expert.forward`, nearly.

    Args:
        expert: Its layers are taken out of it one by one, so that no more than one of them is in memory twice.
    """

    def __init__(self, expert: Expert) -> None:
        self.geometry = expert.geometry
        self._layers: list[FusedLayer[Fp8Rows]] = []
        for index, layer in enumerate(expert.layers):
            assert isinstance(layer, ExpertLayer)
            self._layers.append(FusedLayer.of(layer, stored))
            expert.layers[index] = nn.Identity()
        self._norm = expert.norm.weight.detach()
        self._eps = expert.norm.eps

    def __call__(self, embeddings: Tensor, context: Context) -> Tensor:
        """Hidden states after the final norm: [R G, N, hidden_size] in and out."""
        hidden = embeddings.flatten(0, 1) * 1  # a copy by a kernel, which the next can follow early
        for index, layer in enumerate(self._layers):
            normed = norm_and_quantize(hidden, layer.first_norm, self._eps)
            parts = product(normed, layer.qkv, hidden.dtype)[None]
            mixed = attend(index, layer.head_norms, layer.kv_heads, parts, context)
            add_product(hidden, quantize(mixed), layer.out)
            normed = norm_and_quantize(hidden, layer.second_norm, self._eps)
            add_product(hidden, gated_product(normed, layer.gate_up, hidden.dtype), layer.down)
        return add_and_norm(hidden, None, self._norm, self._eps).view(embeddings.shape)
