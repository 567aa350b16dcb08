"""Credentials are seen nowhere."""

from __future__ import annotations

from time import process_time

import pytest
from pyspark import cloudpickle

from penstock import redaction
from penstock.connectors.secrets import HIDDEN, Secret, one_line, redacted
from penstock.errors import BadRecord


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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("{'user': 'u', 'password': 'two \\' words', 'n': 1}", f"{{'user': 'u', 'password': {HIDDEN}, 'n': 1}}"),
        ('{"api_key":"abc"}', f'{{"api_key":{HIDDEN}}}'),
        ("aws_secret_access_key = abc/def+", f"aws_secret_access_key = {HIDDEN}"),
        ("AccountKey=abc==;EndpointSuffix=x", "AccountKey=abc==;EndpointSuffix=x".replace("abc==", HIDDEN)),
        ("Authorization: Bearer abcdefgh.ijk-l", f"Authorization: Bearer {HIDDEN}"),
        ("the token is missing; Basic knowledge; max_tokens=5", "the token is missing; Basic knowledge; max_tokens=5"),
    ],
)
def test_credentials_are_hidden_as_programs_write_them(text: str, shown: str) -> None:
    assert redacted(text) == shown


def test_what_is_known_to_be_secret_is_hidden_in_every_error_and_also_where_it_was_sent_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(redaction, "_known", {})
    secret = Secret("p@ss of hers")
    assert secret == "p@ss of hers"
    assert repr([secret]) == f"['{HIDDEN}']"
    text = "tried p@ss of hers, p%40ss%20of%20hers"
    assert redacted(text) == f"tried {HIDDEN}, {HIDDEN}"
    assert str(BadRecord(text)) == f"[BAD_RECORD] tried {HIDDEN}, {HIDDEN}"
    packed = cloudpickle.dumps({"token": secret})
    redaction._known.clear()
    assert redacted(text) == text
    assert cloudpickle.loads(packed) == {"token": "p@ss of hers"}
    assert redacted(text) == f"tried {HIDDEN}, {HIDDEN}"
    Secret("Bearer abc-def")
    assert redacted("abc-def") == HIDDEN
    for word in ("postgres", "abc", ""):  # texts of ours say it
        Secret(word)
        assert redacted(f"sink postgres: abc {word}") == f"sink postgres: abc {word}"
    assert redacted("postgresql://postgres:postgres@h/postgres") == f"postgresql://{HIDDEN}@h/postgres"


def test_a_process_remembers_a_bounded_number_of_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_known", {})
    for number in range(redaction.KNOWN_MAX + 5):
        Secret(f"secret-{number:05d}")
    assert len(redaction._known) == redaction.KNOWN_MAX
    assert redacted("secret-00000 secret-01004") == f"secret-00000 {HIDDEN}"


@pytest.mark.parametrize("text", ["a.b-" * 50_000, "a" * 200_000, "://" * 50_000, "'password':'" * 10_000])
def test_long_texts_take_no_long_time(text: str) -> None:
    began_s = process_time()
    redacted(text)
    assert process_time() - began_s < 2.0
