"""What runs inside the engines' own environments, where Penstock is not installed.

This directory alone is put on their path, so nothing here imports Penstock, and nothing else can get in the way.
"""
