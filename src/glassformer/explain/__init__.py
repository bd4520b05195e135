"""See through a model: every step of its own computation, with the proof that it is the one that serves."""

from glassformer.explain.result import AttentionMap, Explanation, Row
from glassformer.explain.run import explain

__all__ = ["AttentionMap", "Explanation", "Row", "explain"]
