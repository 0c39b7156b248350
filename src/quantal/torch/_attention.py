"""torch's functions of attention with QSD on the attention weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own habit
from torch import Tensor

from quantal._errors import wrong_value
from quantal.dilution import Dilution
from quantal.torch._blocks import in_blocks
from quantal.torch._functional import dilute
from quantal.torch._fused import multiply_by_seed
from quantal.torch._tables import tables

__all__ = ["multi_head_attention_forward", "scaled_dot_product_attention"]


def scaled_dot_product_attention(
    alpha: float,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Do what torch's function of this name does, with QSD for its dropout."""
    if dropout_p == 0:  # nothing to draw, so torch may take its fused kernels
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if is_causal and attn_mask is not None:
        raise wrong_value("attn_mask", "None with is_causal=True, as in torch", attn_mask)
    if enable_gqa:  # keys and values may have different numbers of heads
        heads = query.shape[-3]
        key, value = (x.repeat_interleave(heads // x.shape[-3], dim=-3) for x in (key, value))
    masks = () if attn_mask is None else (attn_mask,)
    how = _Attention(dropout_p, alpha, scale=scale, causal=is_causal, allowing=True)
    return in_blocks(how.output, query, key, value, masks)


def multi_head_attention_forward(
    alpha: float,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: None = None,
    static_v: None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Do what torch's function of this name does, with QSD for its dropout."""
    if static_k is not None or static_v is not None:
        raise NotImplementedError("static_k and static_v: expected None where QSD is on")
    batched = query.dim() == 3
    if not batched:
        query, key, value = (x.unsqueeze(1) for x in (query, key, value))
    batch = query.shape[1]
    if use_separate_proj_weight:
        matrices: Any = (q_proj_weight, k_proj_weight, v_proj_weight)
    else:
        matrices = in_proj_weight.chunk(3)
    biases = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
    q, k, v = map(F.linear, (query, key, value), matrices, biases)
    if bias_k is not None and bias_v is not None:
        k, v = (torch.cat([x, b.expand(-1, batch, -1)]) for x, b in ((k, bias_k), (v, bias_v)))
    q, k, v = (x.unflatten(-1, (num_heads, -1)).permute(1, 2, 0, 3) for x in (q, k, v))
    if add_zero_attn:
        k, v = (F.pad(x, (0, 0, 0, 1)) for x in (k, v))

    # As torch does: where no weights are wanted and nothing is padded, is_causal replaces the mask.
    causal = is_causal and key_padding_mask is None and not need_weights
    masks = []
    if attn_mask is not None and not causal:
        masks += [attn_mask.unflatten(0, (batch, num_heads)) if attn_mask.dim() == 3 else attn_mask]
    if key_padding_mask is not None:
        masks += [key_padding_mask.view(batch, 1, 1, -1)]

    # All queries may look at the keys that were added.
    if added := k.shape[-2] - key.shape[0]:
        masks = [F.pad(mask, (0, added)) for mask in masks]
    how = _Attention(dropout_p, alpha, training, causal=causal)
    if need_weights:
        weights = how.weights(q, k, masks)
        output = weights @ v
    else:
        output = in_blocks(how.output, q, k, v, masks)
    output = F.linear(output.permute(2, 0, 1, 3).flatten(2), out_proj_weight, out_proj_bias)
    output = output if batched else output.squeeze(1)
    if not need_weights:
        return output, None
    weights = weights if batched else weights.squeeze(0)
    return output, weights.mean(dim=-3) if average_attn_weights else weights


@dataclass(frozen=True)
class _Attention:
    """Attention with QSD on its weights: all of it that is not a tensor.

    ``allowing`` says that boolean masks are true where queries may look, not where they may not.
    """

    rate: float
    alpha: float
    training: bool = True
    scale: float | None = None
    causal: bool = False
    allowing: bool = False

    def output(
        self,
        seed: Tensor | None,
        first: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *masks: Tensor,
    ) -> Tensor:
        """Return the output for queries of which the first has that number."""
        return self.weights(query, key, masks, seed, first) @ value

    def weights(
        self,
        query: Tensor,
        key: Tensor,
        masks: Sequence[Tensor],
        seed: Tensor | None = None,
        first: int = 0,
    ) -> Tensor:
        """Return the weights after dilution, drawn from a seed or from torch's own stream."""
        weights = _weights(query, key, self._added(query, key, masks, first), self.scale)
        if seed is None or not self.training or self.rate in (0, 1):
            return dilute(weights, self.rate, self.alpha, training=self.training)
        looked_up = tables(Dilution(self.rate, self.alpha), False, weights.device)
        return multiply_by_seed(weights, looked_up, weights.shape, seed)

    def _added(
        self, query: Tensor, key: Tensor, masks: Sequence[Tensor], first: int
    ) -> Tensor | None:
        """Return one mask, to be added to the scores."""
        total = None
        if self.causal:
            shape = query.shape[-2], key.shape[-2]
            later = torch.ones(shape, dtype=torch.bool, device=query.device).triu(first + 1)
            total = _forbidding(later, query.dtype)
        for mask in masks:
            if mask.dtype == torch.bool:
                mask = _forbidding(~mask if self.allowing else mask, query.dtype)
            total = mask if total is None else total + mask
        return total


def _forbidding(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask that is added to the scores, from one that says where not to look."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -torch.inf)


def _weights(query: Tensor, key: Tensor, mask: Tensor | None, scale: float | None = None) -> Tensor:
    """Return the attention weights; zeros for a query that may look nowhere, as in torch."""
    scores = (query * (query.shape[-1] ** -0.5 if scale is None else scale)) @ key.mT
    exact = torch.promote_types(scores.dtype, torch.float32)
    if mask is None:
        return scores.softmax(-1, dtype=exact).to(scores.dtype)
    scores = scores + mask
    nowhere = scores == -torch.inf
    # A row of -inf would have a gradient of NaN.
    scores = scores.masked_fill(nowhere, torch.finfo(scores.dtype).min)
    return scores.softmax(-1, dtype=exact).masked_fill(nowhere, 0).to(query.dtype)
