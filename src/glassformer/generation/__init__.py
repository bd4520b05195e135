"""Search and sampling over any model that is decoded step by step."""

from glassformer.generation.decoding import Decoding
from glassformer.generation.hypothesis import Hypothesis, LengthPenalty
from glassformer.generation.search import generate

__all__ = ["Decoding", "Hypothesis", "LengthPenalty", "generate"]
