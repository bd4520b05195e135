"""The three families, as compositions of one encoder and one decoder."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.model.cache import CrossCache, KVCache, LayerCache
from glassformer.model.embedding import InputEmbedding, TokenEmbedding
from glassformer.model.heads import LabelHead, MaskedLMHead, OutputProjection, Pooler, pool
from glassformer.model.masks import check_mask, document_positions, padding_mask, positions_of
from glassformer.model.positions import LearnedPositions, RelativeBias
from glassformer.model.stack import Stack

__all__ = ["Decoder", "DecoderOnly", "Encoder", "EncoderDecoder", "EncoderOnly", "Model", "build_model"]


def _real_tokens(ids: Tensor, mask: Tensor | None, pad_id: int | None) -> Tensor | None:
    """The given mask, checked, or the one that the padding id implies."""
    return padding_mask(ids, pad_id) if mask is None else check_mask(mask)


class Encoder(nn.Module):
    """Embeddings and N bidirectional blocks: ids [B, S] -> memory [B, S, D], a context map of the source."""

    def __init__(self, config: ModelConfig, *, tokens: TokenEmbedding) -> None:
        super().__init__()
        self.pad_id = config.pad_id
        self.embedding = InputEmbedding(config, tokens=tokens, n_segments=config.n_segments)
        self.stack = Stack(config, n_layers=config.n_encoder_layers, is_causal=False, has_cross_attention=False)

    def forward(self, ids: Tensor, *, mask: Tensor | None = None, segment_ids: Tensor | None = None) -> Tensor:
        """Args: ids [B, S]; mask bool [B, S], True at real tokens, from pad_id when left out; segment_ids [B, S]."""
        mask = _real_tokens(ids, mask, self.pad_id)
        positions = positions_of(mask, n_tokens=ids.shape[1], device=ids.device)
        x = self.embedding(ids, positions, n_positions=_count(positions, ids), segment_ids=segment_ids)
        out: Tensor = self.stack(x, positions, key_mask=mask)
        return out


class Decoder(nn.Module):
    """Embeddings, N causal blocks (with cross-attention in an encoder-decoder) and the output projection."""

    def __init__(self, config: ModelConfig, *, tokens: TokenEmbedding, has_cross_attention: bool) -> None:
        super().__init__()
        self.config = config
        self.embedding = InputEmbedding(config, tokens=tokens, n_segments=0)
        self.stack = Stack(
            config, n_layers=config.n_decoder_layers, is_causal=True, has_cross_attention=has_cross_attention
        )
        self.projection = OutputProjection(
            vocab_size=config.vocab_size,
            d_model=config.d_model,
            tied=tokens if config.is_output_tied else None,
            use_bias=config.use_output_bias,
            scale=config.d_model**-0.5 if config.scale_logits else 1.0,
        )

    def forward(
        self,
        ids: Tensor,
        *,
        mask: Tensor | None = None,
        documents: Tensor | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Features before the projection: ids [B, T] -> [B, T, D]. With a cache, ids are the next chunk of each row.

        Rows that hold several documents come with `documents`, int64 [B, T]: a token attends only to tokens with its
        own number, and positions begin anew for each. Pads have a number of their own, such as 0, and need no mask.
        """
        if cache is not None and len(ids) != cache.n_rows:
            raise ValueError(
                f"ids has {len(ids)} rows and the cache {cache.n_rows}. Each row continues its own text. "
                "Bring the cache to the same rows with `cache.select`."
            )
        n_rows, n_tokens = ids.shape
        if documents is not None:
            if mask is not None or cache is not None:
                raise ValueError(
                    "documents was given with a mask or a cache. Packed rows are read whole, and their pads are a "
                    "document of their own. Leave the other out."
                )
            positions = document_positions(documents)
            n_positions = int(positions.max()) + 1
        else:
            if cache is None or cache.width == 1 or n_tokens > 1:  # a branch that is read always has a token
                mask = self._real_tokens(ids, mask)
            positions = positions_of(mask, n_tokens=n_tokens, device=ids.device)
            n_positions = _count(positions, ids)
        if cache is not None:
            if n_tokens > 1 or mask is not None:
                cache.separate()
            positions = positions + cache.next_positions
            n_positions = cache.advance_positions(n_tokens, mask)
            memory_mask = cache.memory_mask
            if cache.width > 1:  # the branches of a text are read side by side
                ids, positions = ids.view(-1, cache.width), positions.expand(-1, cache.width)
        x = self.embedding(ids, positions, n_positions=n_positions)
        key_mask = mask
        if cache is not None and cache.branches is None:
            key_mask = cache.extend_key_mask(mask, ids)
        out: Tensor = self.stack(
            x,
            positions,
            key_mask=key_mask,
            documents=documents,
            memory=memory,
            memory_mask=memory_mask,
            cache=cache,
        )
        if cache is not None:
            cache.length += ids.shape[1]
        return out.view(n_rows, n_tokens, out.shape[-1])

    def _real_tokens(self, ids: Tensor, mask: Tensor | None) -> Tensor | None:
        """As the function; but a pad id that also starts texts (T5, GPT-2) is a token here.

        Pads on the right then need no mask, because no real token sees what comes after it.
        """
        pad_id = self.config.pad_id
        if mask is not None or pad_id != self.config.bos_id:
            return _real_tokens(ids, mask, pad_id)
        is_pad = ids == pad_id
        if bool((is_pad[:, :2].all(1) & ~is_pad.all(1)).any()):
            raise ValueError(
                f"A row of ids starts with several {pad_id}, and pad_id = bos_id = {pad_id}. "
                "Which of them are padding cannot be told. Give the mask, True at real tokens."
            )
        return None

    def new_cache(
        self,
        n_rows: int,
        max_length: int,
        *,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> KVCache:
        """An empty cache for n_rows texts of at most max_length tokens, with the keys and values of their memory."""
        config, weight = self.config, self.embedding.tokens.weight
        shape = (n_rows, config.kv_heads, max_length, config.head_width)
        blocks = self.stack.blocks
        layers = [LayerCache(weight.new_empty(shape), weight.new_empty(shape)) for _ in blocks]
        cross = []
        if memory is not None:
            both = [block.cross_attention.keys_values(memory) for block in blocks]  # type: ignore[operator, union-attr]
            cross = [CrossCache(k.contiguous(), v.contiguous()) for k, v in both]  # head by head, as they are read
        return KVCache(
            layers=layers,
            cross=cross,
            memory_mask=memory_mask,
            sources=torch.arange(n_rows, device=weight.device),
            max_length=max_length,
        )


class EncoderDecoder(nn.Module):
    """The original: an encoder gives the memory, a decoder reads it while it writes the target word by word.

    Shape: src [B, S], tgt [B, T] -> logits [B, T, V].

    Source: Vaswani et al. 2017, figure 1.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        tgt_tokens = _token_table(config, config.vocab_size)
        src_tokens = tgt_tokens if config.is_source_tied else _token_table(config, config.source_vocab_size)
        self.encoder = Encoder(config, tokens=src_tokens)
        self.decoder = Decoder(config, tokens=tgt_tokens, has_cross_attention=True)
        _initialise(self, config)

    def encode(self, src: Tensor, src_mask: Tensor | None = None) -> Tensor:
        """The memory: [B, S] -> [B, S, D]."""
        out: Tensor = self.encoder(src, mask=src_mask)
        return out

    def features(
        self, src: Tensor, tgt: Tensor, *, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None
    ) -> Tensor:
        """Decoder output before the projection, [B, T, D]."""
        src_mask = _real_tokens(src, src_mask, self.config.pad_id)
        memory = self.encoder(src, mask=src_mask)
        out: Tensor = self.decoder(tgt, mask=tgt_mask, memory=memory, memory_mask=src_mask)
        return out

    def forward(
        self, src: Tensor, tgt: Tensor, *, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None
    ) -> Tensor:
        """Logits of the token after each target token. Masks: bool, True at real tokens, from pad_id when left out."""
        return self.project(self.features(src, tgt, src_mask=src_mask, tgt_mask=tgt_mask))

    def project(self, features: Tensor) -> Tensor:
        """[B, T, D] -> logits [B, T, V]."""
        out: Tensor = self.decoder.projection(features)
        return out

    def new_cache(self, src: Tensor, max_length: int, *, src_mask: Tensor | None = None) -> KVCache:
        """Encodes the sources [B, S] and makes the cache for decoding at most max_length target tokens of each."""
        src_mask = _real_tokens(src, src_mask, self.config.pad_id)
        memory = self.encoder(src, mask=src_mask)
        return self.decoder.new_cache(len(src), max_length, memory=memory, memory_mask=src_mask)

    def decode_step(self, tgt: Tensor, cache: KVCache, *, tgt_mask: Tensor | None = None) -> Tensor:
        """The next chunk of target tokens, [B, T] -> logits [B, T, V]; the cache grows by it."""
        return self.project(self.decoder(tgt, mask=tgt_mask, cache=cache))


class DecoderOnly(nn.Module):
    """A causal language model (GPT): ids [B, T] -> logits of the next token [B, T, V]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        tokens = _token_table(config, config.vocab_size)
        self.decoder = Decoder(config, tokens=tokens, has_cross_attention=False)
        _initialise(self, config)

    def features(self, ids: Tensor, *, mask: Tensor | None = None, documents: Tensor | None = None) -> Tensor:
        """Decoder output before the projection, [B, T, D]."""
        out: Tensor = self.decoder(ids, mask=mask, documents=documents)
        return out

    def forward(self, ids: Tensor, *, mask: Tensor | None = None, documents: Tensor | None = None) -> Tensor:
        """Logits of the token after each token.

        Args:
            ids: [B, T].
            mask: bool [B, T], True at real tokens (pads on either side), from pad_id when left out.
            documents: int64 [B, T], for rows that hold several texts; see `Decoder.forward`.
        """
        return self.project(self.features(ids, mask=mask, documents=documents))

    def project(self, features: Tensor) -> Tensor:
        """[B, T, D] -> logits [B, T, V]."""
        out: Tensor = self.decoder.projection(features)
        return out

    def new_cache(self, n_rows: int, max_length: int) -> KVCache:
        """An empty cache for n_rows texts of at most max_length tokens."""
        return self.decoder.new_cache(n_rows, max_length)

    def decode_step(self, ids: Tensor, cache: KVCache, *, mask: Tensor | None = None) -> Tensor:
        """The next chunk of tokens, [B, T] -> logits [B, T, V]; the cache grows by it."""
        return self.project(self.decoder(ids, mask=mask, cache=cache))


class EncoderOnly(nn.Module):
    """A bidirectional encoder (BERT): ids [B, T] -> features [B, T, D]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        tokens = _token_table(config, config.vocab_size)
        self.encoder = Encoder(config, tokens=tokens)
        self.pooler = Pooler(d_model=config.d_model) if config.use_pooler else None
        self.mlm_head = MaskedLMHead(config, tied=tokens) if config.use_mlm_head else None
        self.label_head = None
        if config.head != "none":
            self.label_head = LabelHead(d_model=config.d_model, n_labels=config.n_labels, dropout=config.dropout)
        _initialise(self, config)

    def forward(self, ids: Tensor, *, mask: Tensor | None = None, segment_ids: Tensor | None = None) -> Tensor:
        """Args: ids [B, T]; mask bool [B, T], True at real tokens, from pad_id when left out; segment_ids [B, T]."""
        out: Tensor = self.encoder(ids, mask=mask, segment_ids=segment_ids)
        return out

    def embed(self, ids: Tensor, *, mask: Tensor | None = None, segment_ids: Tensor | None = None) -> Tensor:
        """One vector for each text, [B, T] -> [B, D]: pooled features, of length 1 where the config says so."""
        mask = _real_tokens(ids, mask, self.config.pad_id)
        return self.pooled(self(ids, mask=mask, segment_ids=segment_ids), mask)

    def pooled(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """The same of features x [B, T, D] and their mask [B, T]; in float32 at least, so that a length of 1 is one."""
        x = pool(x.to(torch.promote_types(x.dtype, torch.float32)), mask, how=self.config.pooling)
        return nn.functional.normalize(x, dim=-1) if self.config.is_normalized else x

    def label_logits(self, ids: Tensor, *, mask: Tensor | None = None, segment_ids: Tensor | None = None) -> Tensor:
        """Votes for labels: of each token [B, T, L] (head `label`), or of each text [B, L] (head `classify`).

        A text's vector is the pooler's where the model has one, else the pooled features.
        """
        mask = _real_tokens(ids, mask, self.config.pad_id)
        return self.votes(self(ids, mask=mask, segment_ids=segment_ids), mask)

    def votes(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """The same of features x [B, T, D] and their mask [B, T]."""
        assert self.label_head is not None, "the config has no head"
        if self.config.head == "classify":
            x = pool(x, mask, how=self.config.pooling) if self.pooler is None else self.pooler(x)
        out: Tensor = self.label_head(x)
        return out


Model = EncoderDecoder | DecoderOnly | EncoderOnly


def build_model(config: ModelConfig) -> Model:
    """The model that the config describes, with fresh weights from torch's global generator."""
    if config.family == "encoder-decoder":
        return EncoderDecoder(config)
    if config.family == "decoder-only":
        return DecoderOnly(config)
    return EncoderOnly(config)


def _token_table(config: ModelConfig, vocab_size: int) -> TokenEmbedding:
    return TokenEmbedding(vocab_size=vocab_size, d_model=config.d_model, is_scaled=config.scale_embedding)


def _count(positions: Tensor, ids: Tensor) -> int:
    """How many positions are needed: known without a look at the numbers when rows share them."""
    return ids.shape[1] if len(positions) == 1 else int(positions.max()) + 1


def _initialise(model: nn.Module, config: ModelConfig) -> None:
    """Fresh weights: tables normal with variance 1/D (so that sqrt(D) brings them to 1), matrices Xavier-uniform.

    Without embedding scale, tables have a standard deviation of 0.02 (GPT-2, BERT). Norms stay at 1 and 0,
    biases at 0.
    """
    std = config.d_model**-0.5 if config.scale_embedding else 0.02
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, TokenEmbedding | OutputProjection):
            nn.init.normal_(module.weight, std=std)
        elif isinstance(module, LearnedPositions | RelativeBias):
            nn.init.normal_(module.weight, std=0.02)
        elif isinstance(module, InputEmbedding) and module.segments is not None:
            nn.init.normal_(module.segments, std=0.02)
