"""Credentials are seen nowhere."""

from __future__ import annotations

import pytest

from penstock.connectors.secrets import HIDDEN, one_line, redacted


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://user:pa:ss@host:5432/db?x=1", f"postgresql://{HIDDEN}@host:5432/db?x=1"),
        ("redis://:secret@host/0 and rediss://user@h", f"redis://{HIDDEN}@host/0 and rediss://{HIDDEN}@h"),
        ("http://host/path@here", "http://host/path@here"),
        ("host=h password=secret dbname=d", f"host=h password={HIDDEN} dbname=d"),
        ("password = 'two words' user=u", f"password = {HIDDEN} user=u"),
        ("sasl.password: secret, x=1", f"sasl.password: {HIDDEN}, x=1"),
        ("https://h/p?api_key=abc&n=1", f"https://h/p?api_key={HIDDEN}&n=1"),
        ("TOKEN=abc; rest", f"TOKEN={HIDDEN}; rest"),
        ('password authentication failed for user "bob"', 'password authentication failed for user "bob"'),
    ],
)
def test_credentials_are_hidden_where_they_usually_stand(text: str, shown: str) -> None:
    assert redacted(text) == shown


def test_given_secrets_are_hidden_wherever_they_stand() -> None:
    assert redacted("it was hunter2, or hunter22", "hunter2", "hunter22", None, "") == f"it was {HIDDEN}, or {HIDDEN}"
    assert redacted("abcab ab c", "ab") == f"abcab {HIDDEN} c", "a short one only as a word"
    assert one_line("first\n  second.\n", "second") == f"first {HIDDEN}"
