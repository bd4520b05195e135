"""What users call."""

from glassformer.tasks.translator import Alignment, Translation, Translator

__all__ = ["Alignment", "Translation", "Translator"]
