"""What users call."""

from glassformer.tasks.classifier import Classification, Classifier
from glassformer.tasks.embedder import Embedder
from glassformer.tasks.labeller import Entity, Labeller, Labelling, Word
from glassformer.tasks.translator import Alignment, Translation, Translator
from glassformer.tasks.translator_pool import TranslatorPool

__all__ = [
    "Alignment",
    "Classification",
    "Classifier",
    "Embedder",
    "Entity",
    "Labeller",
    "Labelling",
    "Translation",
    "Translator",
    "TranslatorPool",
    "Word",
]
