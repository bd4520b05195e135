"""See through a model: every step of its own computation, with the proof that it is the one that serves."""

from glassformer.explain.run import explain
from glassformer.explain.result import AttentionMap, Explanation, Row

__all__ = ["AttentionMap", "Explanation", "Row", "explain"]
