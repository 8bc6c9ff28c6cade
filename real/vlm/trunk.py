"""``Trunk``: the forward pass of transformers' Qwen-VL classes, module by module.

Weights and modules are those of the transformers class (including LoRA layers); only the order of calls is ours. That
saves time: one attention call for all pictures of a size instead of one a picture and window, no mask and no position
search per call, logits only where they are needed, and a cache of plain tensors. Tests compare it with the class's own
forward pass.

Shapes: N pictures, S patches of a picture, B rows, L tokens of a row, D width, K cached tokens, H heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name
from torch.utils.checkpoint import checkpoint

from dartsim.real.vlm.images import ImageRules

Grid = tuple[int, int]
Cache = list[tuple[Tensor, Tensor]]
"""Keys and values of each layer, [B, H, K, head]."""
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Returns the attention [B, H, L, head] of a layer's queries to its keys and values, of those or cached ones."""


class Seen(NamedTuple):
    """Pictures as token embeddings: [N * tokens, D], and for Qwen3-VL the additions after the first layers."""

    tokens: Tensor
    deep: tuple[Tensor, ...]

    @staticmethod
    def join(parts: Sequence[Seen]) -> Seen:
        """Concatenate the tokens of several groups of pictures."""
        if len(parts) == 1:
            return parts[0]
        deep = tuple(torch.cat(layer) for layer in zip(*(part.deep for part in parts), strict=True))
        return Seen(torch.cat([part.tokens for part in parts]), deep)


class Trunk(nn.Module):
    """Runs a Qwen2.5-VL or Qwen3-VL model."""

    def __init__(self, model: nn.Module, rules: ImageRules) -> None:
        super().__init__()
        inner: Any = model
        self._visual = [inner.model.visual]  # in lists: the modules belong to the model, not to this one
        self._text = [inner.model.language_model]
        self._head = [inner.lm_head]
        self._deepstack = hasattr(inner.model.visual, "deepstack_merger_list")
        self._merge = rules.merge_size
        config = inner.config.vision_config
        self._window = 0 if self._deepstack else config.window_size // config.patch_size // self._merge
        self.register_buffer("_scale", 1.0 / (255.0 * torch.tensor(rules.std)), persistent=False)
        self.register_buffer("_shift", torch.tensor(rules.mean) / torch.tensor(rules.std), persistent=False)
        self.checkpointing = False
        self._layout = cache(self._make_layout)

    def see(self, patches_NSP: Tensor, grid: Grid) -> Seen:
        """Return the embeddings of pictures of one size, uint8 [N, S, 3 * patch * patch]."""
        visual: Any = self._visual[0]
        layout = self._layout(grid)
        x = self._embed_patches(visual.patch_embed.proj, patches_NSP)
        if self._deepstack:
            x = x + (visual.pos_embed(layout.taps) * layout.tap_weights[:, :, None]).sum(1).to(x.dtype)
        if layout.order is not None:
            x = x[:, layout.order]
        deep = []
        cos, sin = _angles(visual.rotary_pos_emb, layout.places)
        for number, block in enumerate(visual.blocks):
            whole = layout.windows is None or number in visual.fullatt_block_indexes
            run = _run(self._vision_block, self.checkpointing)
            x = run(block, x, cos, sin, None if whole else layout.windows)
            if self._deepstack and number in visual.deepstack_visual_indexes:
                index = visual.deepstack_visual_indexes.index(number)
                deep.append(visual.deepstack_merger_list[index](x))
        merged = visual.merger(x)
        if layout.back is not None:
            count = layout.back.shape[0]
            merged = merged.view(-1, count, merged.shape[-1])[:, layout.back].flatten(0, 1)
        return Seen(merged, tuple(deep))

    def see_all(self, pictures: Sequence[tuple[Grid, Tensor]]) -> Seen | None:
        """Return the embeddings of pictures of several sizes, each with its patches, in this order."""
        parts = [self.see(patches, grid) for grid, patches in pictures]
        return Seen.join(parts) if parts else None

    def _embed_patches(self, projection: Any, patches_NSP: Tensor) -> Tensor:
        """A still picture fills both frames of the patch convolution: one product with the sum over frames."""
        weight = projection.weight.sum(2).flatten(1)
        pixels = patches_NSP.to(torch.float32).view(*patches_NSP.shape[:-1], 3, -1)
        pixels = pixels * self._scale[:, None] - self._shift[:, None]  # type: ignore[index]
        return F.linear(pixels.flatten(-2).to(weight.dtype), weight, projection.bias)

    def _vision_block(self, block: Any, x: Tensor, cos: Tensor, sin: Tensor, windows: Any) -> Tensor:
        attention = block.attn
        pictures, patches, width = x.shape
        qkv = attention.qkv(norm(block.norm1, x)).view(pictures, patches, 3, attention.num_heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
        mixed = F.scaled_dot_product_attention(q, k, v) if windows is None else _windowed(q, k, v, *windows)
        x = x + attention.proj(mixed.transpose(1, 2).reshape(pictures, patches, width))
        after: Tensor = block.mlp(norm(block.norm2, x))
        return x + after

    @torch.inference_mode(False)  # training uses the cached layout too
    def _make_layout(self, grid: Grid) -> _Layout:
        return _Layout(grid, self._merge, self._window, self._side(), self._scale.device)  # type: ignore[arg-type]

    def _side(self) -> int:
        visual: Any = self._visual[0]
        return int(visual.num_grid_per_side) if self._deepstack else 0

    def embed(self, ids_BL: Tensor, seen: Seen | None, at: Tensor, take: Tensor) -> tuple[Tensor, Any]:
        """Return token embeddings, with picture tokens at their positions.

        Args:
            ids_BL: Tokens.
            seen: Pictures.
            at: Positions of picture tokens in the flattened [B * L].
            take: Which token of ``seen`` each of them is.
        """
        x = self._text[0].embed_tokens(ids_BL)
        if seen is None:
            return x, None
        flat = x.flatten(0, 1).index_copy(0, at, seen.tokens[take].to(x.dtype))
        deep = [(at, layer[take].to(x.dtype)) for layer in seen.deep]
        return flat.view_as(x), deep

    def rotary(self, x: Tensor, positions_3BL: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosine and sine [B, 1, L, head] of multimodal positions."""
        text: Any = self._text[0]
        cos, sin = text.rotary_emb(x, positions_3BL)
        return cos.unsqueeze(1), sin.unsqueeze(1)

    def layers(self, x: Tensor, rotary: tuple[Tensor, Tensor], attend: Attend, *, deep: Any = None) -> Tensor:
        """Run the language model's layers over embeddings [B, L, D].

        Args:
            x: Embeddings.
            rotary: What ``rotary`` returned.
            attend: Who attends to whom.
            deep: What ``embed`` returned.
        """
        text: Any = self._text[0]
        run = _run(self._text_layer, self.checkpointing)
        for number, layer in enumerate(text.layers):
            x = run(layer, x, rotary, attend, number)
            if deep and number < len(deep):
                at, added = deep[number]
                x = x.flatten(0, 1).index_add(0, at, added).view_as(x)
        return norm(text.norm, x)

    def _text_layer(self, layer: Any, x: Tensor, rotary: Any, attend: Attend, number: int) -> Tensor:
        module = layer.self_attn
        rows, length, _ = x.shape
        shape = (rows, length, -1, module.head_dim)
        h = norm(layer.input_layernorm, x)
        q, k, v = module.q_proj(h).view(shape), module.k_proj(h).view(shape), module.v_proj(h).view(shape)
        if self._deepstack:
            q, k = norm(module.q_norm, q), norm(module.k_norm, k)
        cos, sin = rotary
        q, k, v = _rotate(q.transpose(1, 2), cos, sin), _rotate(k.transpose(1, 2), cos, sin), v.transpose(1, 2)
        mixed = attend(number, q, k, v)
        x = x + module.o_proj(mixed.transpose(1, 2).reshape(rows, length, -1))
        after: Tensor = layer.mlp(norm(layer.post_attention_layernorm, x))
        return x + after

    def logits(self, hidden: Tensor) -> Tensor:
        """Return float32 logits of hidden states [..., D]."""
        head: Any = self._head[0]
        return head(hidden).float()  # type: ignore[no-any-return]

    @property
    def num_outputs(self) -> int:
        """Width of the logits, at least the size of the vocabulary."""
        head: Any = self._head[0]
        return int(head.out_features)


class _Layout:
    """The layout of a picture of one size in a vision transformer.

    Attributes:
        places: [2, S] row and column of each patch, in the order of the blocks.
        order: [S] the patches in window order, or None if that is their order.
        back: The merged tokens back in order, or None.
        windows: For windowed attention ([windows, longest] patches, bool mask or None, [S] way back), or None
            if one window holds the picture.
        taps, tap_weights: [S, 4] where the learned position table is read (Qwen3-VL).
    """

    order: Tensor | None = None
    back: Tensor | None = None
    windows: tuple[Tensor, Tensor | None, Tensor] | None = None

    def __init__(self, grid: Grid, merge: int, window: int, side: int, device: torch.device) -> None:
        rows, columns = grid
        row = torch.arange(rows).view(rows // merge, merge, 1, 1).expand(-1, -1, columns // merge, merge)
        column = torch.arange(columns).view(1, 1, columns // merge, merge).expand(rows // merge, merge, -1, -1)
        row, column = row.permute(0, 2, 1, 3).flatten(), column.permute(0, 2, 1, 3).flatten()
        if side:
            self.taps, self.tap_weights = (t.to(device) for t in _taps(row, column, rows, columns, side))
        if window:
            self._cut_windows(row[:: merge * merge] // merge, column[:: merge * merge] // merge, window, merge, device)
        places = torch.stack([row, column])
        self.places = (places if self.order is None else places[:, self.order.cpu()]).to(device)

    def _cut_windows(self, row: Tensor, column: Tensor, window: int, merge: int, device: torch.device) -> None:
        number = row // window * (int(column.max()) // window + 1) + column // window
        if not number.any():
            return
        units = torch.argsort(number, stable=True)
        size = merge * merge
        if not torch.equal(units, torch.arange(len(units))):
            self.order = (units[:, None] * size + torch.arange(size)).flatten().to(device)
            self.back = torch.argsort(units).to(device)
        lengths = torch.bincount(number) * size
        longest = int(lengths.max())
        starts = torch.cumsum(lengths, 0) - lengths
        offsets = torch.arange(longest)
        inside = offsets < lengths[:, None]
        gather = torch.where(inside, starts[:, None] + offsets, starts[:, None])
        mask = None if bool(inside.all()) else inside[:, None, None, :].to(device)
        self.windows = (gather.to(device), mask, torch.nonzero(inside.flatten()).flatten().to(device))


def attention(q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
    """Return the attention of queries [B, H, L, head]; heads may share keys and values.

    Args:
        q: Queries.
        k: Keys [B, heads, K, head].
        v: Values likewise.
        mask: bool [L, K] or with more dimensions in front, true where attention is allowed; None: everywhere.
        is_causal: Each token attends to itself and those before it.
    """
    shared = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal, enable_gqa=shared)


def causal(number: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend as ``Attend`` says: each token to itself and those before it."""
    return attention(q, k, v, is_causal=True)


def norm(module: Any, x: Tensor) -> Tensor:
    """Apply a norm. Root-mean-square norms use plain products: torch's own takes three times as long on short rows."""
    epsilon = getattr(module, "variance_epsilon", None)
    if epsilon is None:
        return module(x)  # type: ignore[no-any-return]
    weight: Tensor = module.weight
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)).to(weight.dtype)


def _run(function: Callable[..., Tensor], checkpointing: bool) -> Callable[..., Tensor]:
    if not (checkpointing and torch.is_grad_enabled()):
        return function
    return lambda *values: checkpoint(function, *values, use_reentrant=False)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return (x * cos + turned * sin).to(x.dtype)


def _angles(module: Any, places_2S: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosine and sine [S, head] of an axial rotary embedding."""
    angle = (places_2S[..., None].float() * module.inv_freq.float()).permute(1, 0, 2).flatten(1)
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos(), angle.sin()


def _windowed(q: Tensor, k: Tensor, v: Tensor, gather: Tensor, mask: Tensor | None, inverse: Tensor) -> Tensor:
    """Attend inside windows: [N, H, S, head] cut to [N * windows, H, longest, head] and back."""
    pictures, heads, _, head = q.shape
    windows, longest = gather.shape

    def cut(x: Tensor) -> Tensor:
        parts = x[:, :, gather.flatten()].view(pictures, heads, windows, longest, head)
        return parts.transpose(1, 2).flatten(0, 1)

    where = None if mask is None else mask.repeat(pictures, 1, 1, 1)
    mixed = F.scaled_dot_product_attention(cut(q), cut(k), cut(v), attn_mask=where)
    mixed = mixed.view(pictures, windows, heads, longest, head).transpose(1, 2).flatten(2, 3)
    return mixed[:, :, inverse]


def _taps(row: Tensor, column: Tensor, rows: int, columns: int, side: int) -> tuple[Tensor, Tensor]:
    """Bilinear reading of a [side, side] table at each patch, corners aligned: 4 places and weights each."""

    def axis(index: Tensor, size: int) -> tuple[Tensor, Tensor]:
        at = index.float() * (side - 1) / max(size - 1, 1)
        low = at.floor()
        places = (low.long()[:, None] + torch.arange(2)).clamp(0, side - 1)
        return places, torch.stack([1 - (at - low), at - low], dim=1)

    (high, high_weight), (wide, wide_weight) = axis(row, rows), axis(column, columns)
    places = (high[:, :, None] * side + wide[:, None, :]).flatten(1)
    return places, (high_weight[:, :, None] * wide_weight[:, None, :]).flatten(1)
