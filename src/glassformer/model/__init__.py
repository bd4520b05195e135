"""The architecture: one file per component of the lesson, torch only."""

from glassformer.model.attention import Attention, attention, fused_attention
from glassformer.model.block import Block, Residual
from glassformer.model.cache import KVCache
from glassformer.model.feedforward import FeedForward
from glassformer.model.norm import LayerNorm, RMSNorm
from glassformer.model.stack import Stack
from glassformer.model.transformer import Decoder, DecoderOnly, Encoder, EncoderDecoder, EncoderOnly, Model, build_model
from glassformer.model.twin import attention_maps, twin

__all__ = [
    "Attention",
    "Block",
    "Decoder",
    "DecoderOnly",
    "Encoder",
    "EncoderDecoder",
    "EncoderOnly",
    "FeedForward",
    "KVCache",
    "LayerNorm",
    "Model",
    "RMSNorm",
    "Residual",
    "Stack",
    "attention",
    "attention_maps",
    "build_model",
    "fused_attention",
    "twin",
]
