"""Tokens of a provider, a file and the signer of AWS: asked for again in time; refusals say what to do."""

from __future__ import annotations

import base64
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from eventveil.kafka.tokens import NoToken, Token, Tokens, tokens
from eventveil.model.topology import Security

AWS = Security("SASL_SSL", "AWS_MSK_IAM", region="eu-central-1")
BY_FILE = Security("SASL_SSL", "OAUTHBEARER", token_file="nowhere")


def token(security: Security) -> Token:
    source = tokens(security)
    assert source is not None
    return source.token()


def test_a_token_is_asked_for_again_before_it_expires_and_not_before() -> None:
    times = iter((1000.0, 1079.0, 1081.0, 1160.0, 1162.0))
    asked: list[float] = []

    def clock() -> float:
        asked.append(next(times))
        return asked[-1]

    source = Tokens(lambda: Token(str(asked[-1]), asked[-1] + 100), clock)
    assert [source.token().text for _ in range(5)] == ["1000.0", "1000.0", "1081.0", "1081.0", "1162.0"]


def test_a_token_in_a_file_is_read_each_time_and_holds_for_as_long_as_it_says(tmp_path: Path) -> None:
    path = tmp_path / "token"
    security = replace(BY_FILE, token_file=str(path))
    with pytest.raises(NoToken, match=r"it cannot be read .No such file.* Check the path and its rights"):
        token(security)
    claims = base64.urlsafe_b64encode(b'{"exp": 4102444800}').rstrip(b"=").decode()
    path.write_text(f"header.{claims}.signature\n")
    assert token(security) == Token(f"header.{claims}.signature", 4102444800)
    path.write_text("another")
    assert token(security).text == "another"
    for wrong in ("", "two words", "a\x01b"):
        path.write_text(wrong)
        with pytest.raises(NoToken, match="what it holds is no token"):
            token(security)


def test_a_provider_that_is_away_may_come_back() -> None:
    away = Security("SASL_SSL", "OAUTHBEARER", token_url="http://127.0.0.1:9/token", client_id="a")
    with pytest.raises(NoToken, match="the identity provider cannot be reached") as caught:
        token(away)
    assert caught.value.passes


def test_a_token_of_aws_is_a_request_signed_for_the_region_with_the_credentials_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret")
    found = token(AWS)
    text = base64.urlsafe_b64decode(found.text + "=" * (-len(found.text) % 4)).decode()
    asked = urlsplit(text)
    assert asked.hostname == "kafka.eu-central-1.amazonaws.com"
    query = parse_qs(asked.query)
    assert query["Action"] == ["kafka-cluster:Connect"]
    assert query["X-Amz-Credential"][0].startswith("AKIDEXAMPLE/")
    assert "a secret" not in text
    assert 60 < found.expires - time.time() <= 900


def test_no_token_source_is_made_for_passwords() -> None:
    assert tokens(Security("SASL_SSL", "PLAIN", "user", "password")) is None
