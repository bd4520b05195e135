"""The Transformer as software that can be seen through: train it, prove it, translate with it."""

__version__ = "0.1.0"
