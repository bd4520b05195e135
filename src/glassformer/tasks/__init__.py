"""What users call."""

from glassformer.tasks.embedder import Embedder
from glassformer.tasks.translator import Alignment, Translation, Translator

__all__ = ["Alignment", "Embedder", "Translation", "Translator"]
