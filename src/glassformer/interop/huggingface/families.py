"""The architectures that are read and written, by their `model_type`."""

from __future__ import annotations

from glassformer.interop.huggingface.architecture import Architecture
from glassformer.interop.huggingface.bart import BART
from glassformer.interop.huggingface.bert import BERT, ROBERTA
from glassformer.interop.huggingface.distilbert import DISTILBERT
from glassformer.interop.huggingface.gpt2 import GPT2
from glassformer.interop.huggingface.llama import LLAMA
from glassformer.interop.huggingface.marian import MARIAN, PEGASUS
from glassformer.interop.huggingface.t5 import T5

__all__ = ["ARCHITECTURES"]

# In the order in which an export looks for one that can hold a model.
ARCHITECTURES: dict[str, Architecture] = {
    each.model_type: each for each in (BERT, ROBERTA, DISTILBERT, GPT2, LLAMA, T5, MARIAN, PEGASUS, BART)
}
