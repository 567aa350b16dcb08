"""Queries as text: ``ps.sql("SELECT … FROM ads GROUP BY …", ads=stream)`` builds the graph that the verbs build."""

from penstock.sql.queries import sql

__all__ = ["sql"]
