"""The same encoder-decoder in torch.nn, transformers and x-transformers: a module and how it gives logits."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import safetensors.torch
import torch
from torch import Tensor, nn

from glassformer.config import ModelConfig

if TYPE_CHECKING:
    from glassformer.data.batches import Batch
    from glassformer.model import Attention, EncoderDecoder

WEIGHTS = "model.safetensors"
MAX_POSITIONS = 4096

Logits = Callable[["Batch"], Tensor]  # batch -> [B, T, V]


class TorchTransformer(nn.Module):
    """nn.Transformer between one token table and the same as projection."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pad_id = config.pad_id
        self.scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        self.tokens = nn.Parameter(torch.empty(config.vocab_size, config.d_model))
        self.register_buffer("positions", torch.empty(MAX_POSITIONS, config.d_model))
        options = {
            "dim_feedforward": config.d_ff,
            "dropout": config.dropout,
            "norm_first": True,
            "batch_first": True,
            "layer_norm_eps": config.norm_eps,
        }
        layer = nn.TransformerEncoderLayer(config.d_model, config.n_heads, **options)
        norm = nn.LayerNorm(config.d_model, eps=config.norm_eps)
        self.transformer = nn.Transformer(
            config.d_model,
            config.n_heads,
            num_decoder_layers=config.n_decoder_layers,
            custom_encoder=nn.TransformerEncoder(layer, config.n_encoder_layers, norm, enable_nested_tensor=False),
            **options,
        )

    def forward(self, batch: Batch) -> Tensor:
        pads, n = batch.src == self.pad_id, batch.tgt_in.shape[1]
        out = self.transformer(
            self._embedded(batch.src),
            self._embedded(batch.tgt_in),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(n, device=batch.src.device),
            src_key_padding_mask=pads,
            memory_key_padding_mask=pads,
            tgt_is_causal=True,
        )
        return out @ self.tokens.t()

    def _embedded(self, ids: Tensor) -> Tensor:
        return nn.functional.embedding(ids, self.tokens) * self.scale + self.positions[: ids.shape[1]]

    @torch.no_grad()
    def copy(self, ours: EncoderDecoder) -> None:
        """Takes the weights of the product."""
        positions = ours.decoder.embedding.positions
        assert positions is not None
        table = positions(torch.arange(MAX_POSITIONS), n_positions=MAX_POSITIONS, dtype=torch.float32)
        self.get_buffer("positions").copy_(table)
        self.tokens.copy_(ours.decoder.embedding.tokens.weight)
        stacks = ((self.transformer.encoder, ours.encoder.stack), (self.transformer.decoder, ours.decoder.stack))
        for theirs, stack in stacks:
            _copy_norm(theirs.norm, stack.norm)
            for layer, block in zip(theirs.layers, stack.blocks, strict=True):
                _copy_attention(layer.self_attn, block.self_attention)
                norms = [block.self_residual.norm, block.ffn_residual.norm]
                if block.cross_attention is not None:
                    _copy_attention(layer.multihead_attn, block.cross_attention)
                    norms.insert(1, block.cross_residual.norm)
                for number, norm in enumerate(norms, start=1):
                    _copy_norm(getattr(layer, f"norm{number}"), norm)
                for linear, own in ((layer.linear1, block.feed_forward.w_1), (layer.linear2, block.feed_forward.w_2)):
                    linear.weight.copy_(own.weight)
                    linear.bias.copy_(own.bias)


def _copy_attention(theirs: nn.MultiheadAttention, ours: Attention) -> None:
    """Their biases, which ours does not have, are zeros."""
    theirs.in_proj_weight.copy_(torch.cat([ours.w_q.weight, ours.w_k.weight, ours.w_v.weight]))
    theirs.out_proj.weight.copy_(ours.w_o.weight)
    theirs.in_proj_bias.zero_()
    theirs.out_proj.bias.zero_()


def _copy_norm(theirs: nn.LayerNorm, ours: nn.Module) -> None:
    theirs.weight.copy_(ours.gamma)
    theirs.bias.copy_(ours.beta)


def write_torch_nn(ours: EncoderDecoder, out: Path) -> None:
    """The weights of the product as those of `TorchTransformer`, in a folder."""
    model = TorchTransformer(ours.config)
    model.copy(ours)
    safetensors.torch.save_model(model, str(out / WEIGHTS))


def torch_nn(path: Path, config: ModelConfig) -> tuple[nn.Module, Logits]:
    model = TorchTransformer(config)
    safetensors.torch.load_model(model, path / WEIGHTS)
    return model, model


def transformers_model(path: Path, pad_id: int) -> tuple[nn.Module, Logits]:
    """The exported weights, in the architecture of transformers that computes the same."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(path, dtype=torch.float32)

    def logits(batch: Batch) -> Tensor:
        mask = (batch.src != pad_id).long()
        out: Tensor = model(
            input_ids=batch.src, attention_mask=mask, decoder_input_ids=batch.tgt_in, use_cache=False
        ).logits
        return out

    return model, logits


class XTransformer(nn.Module):
    """Encoder and decoder of x-transformers around one token table; its own XTransformer cannot tie the projection."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        from x_transformers import Decoder, Encoder, TransformerWrapper

        self.pad_id = config.pad_id
        layers = {
            "dim": config.d_model,
            "heads": config.n_heads,
            "attn_dim_head": config.head_width,
            "attn_flash": True,
            "ff_mult": config.d_ff / config.d_model,
            "ff_custom_activation": nn.ReLU(),
        }
        side = {"num_tokens": config.vocab_size, "max_seq_len": MAX_POSITIONS}
        encoder = Encoder(depth=config.n_encoder_layers, **layers)
        decoder = Decoder(depth=config.n_decoder_layers, cross_attend=True, **layers)
        self.encoder = TransformerWrapper(**side, attn_layers=encoder, return_only_embed=True)
        table = self.encoder.token_emb
        self.decoder = TransformerWrapper(**side, attn_layers=decoder, token_emb=table, tie_embedding=True)

    def forward(self, batch: Batch) -> Tensor:
        mask = batch.src != self.pad_id
        memory = self.encoder(batch.src, mask=mask)
        out: Tensor = self.decoder(batch.tgt_in, context=memory, context_mask=mask)
        return out


def x_transformers_model(config: ModelConfig) -> tuple[nn.Module, Logits]:
    """The same sizes with fresh weights of its own; its positions are learned, and its activation is set to ReLU."""
    model = XTransformer(config)
    return model, model
