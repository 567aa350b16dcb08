"""The vocabulary of the workloads that read text."""

from itertools import product

_SYLLABLES = ("ba", "de", "fi", "go", "ku", "la", "me", "no", "ru", "ti")

VOCABULARY = ["".join(syllables) for syllables in product(_SYLLABLES, repeat=3)]
"""A thousand words of six letters."""
SENTENCE_WORDS = 10
