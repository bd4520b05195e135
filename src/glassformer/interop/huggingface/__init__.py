"""Weights of the Hugging Face world, in and out."""

from glassformer.interop.huggingface.reading import ImportReport, import_huggingface
from glassformer.interop.huggingface.writing import export_huggingface

__all__ = ["ImportReport", "export_huggingface", "import_huggingface"]
