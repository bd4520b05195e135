"""Documents that are translated: their texts, their markup, and both together again."""
