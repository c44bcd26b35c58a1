"""Tokens of a provider, a file and the signer of AWS: asked for again in time; refusals say what to do."""

from __future__ import annotations

import asyncio
import base64
import json
import socketserver
import threading
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from aiokafka.errors import KafkaConnectionError

from eventveil.kafka.settings import Provider
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
    told = r"it cannot be read .No such file.* Check the path and its permissions"
    with pytest.raises(NoToken, match=told):
        token(security)
    claims = base64.urlsafe_b64encode(b'{"exp": 4102444800}').rstrip(b"=").decode()
    path.write_text(f"header.{claims}.signature\n")
    assert token(security) == Token(f"header.{claims}.signature", 4102444800)
    path.write_text("another")
    assert token(security).text == "another"


@pytest.mark.parametrize("wrong", ["", "two words", "a\x01b"])
def test_a_file_that_holds_no_token_is_refused_at_first_and_later_the_last_one_holds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong: str
) -> None:
    path = tmp_path / "token"
    security = replace(BY_FILE, token_file=str(path))
    path.write_text(wrong)
    with pytest.raises(NoToken, match="it does not hold a token") as refused:
        token(security)
    assert not refused.value.passes
    path.write_text("good")
    assert token(security).text == "good"
    path.write_text(wrong)
    assert token(security).text == "good"
    assert "token refresh failed, retrying: kafka.security.token_file" in caplog.text
    path.unlink()
    assert token(security).text == "good"
    # Whose end is in the past: it is read as it is, for brokers know what they take.
    path.write_text("header." + base64.urlsafe_b64encode(b'{"exp": 1}').decode() + ".signature")
    assert token(security).expires == 1
    path.write_text(wrong)
    with pytest.raises(NoToken, match="it does not hold a token") as passing:
        token(security)
    assert passing.value.passes
    path.write_text("better")
    assert token(security).text == "better"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 404 Not Found\r\n\r\nno route",
        b"HTTP/1.0 200 OK\r\n\r\n<html>soon</html>",
        b"HTTP/1.0 200 OK\r\nContent-Length: 99\r\n\r\n{",
        b"no HTTP at all, at some length\r\n\r\n",
    ],
)
def test_whatever_a_provider_answers_once_it_has_given_a_token_passes(
    answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    good = json.dumps({"access_token": "good", "expires_in": 0}).encode()
    answers = iter((b"HTTP/1.0 200 OK\r\n\r\n" + good, answer, b"HTTP/1.0 200 OK\r\n\r\n" + good))

    class Answer(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            length = 0
            while (line := self.rfile.readline().strip()) != b"":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
            self.rfile.read(length)
            self.wfile.write(next(answers))

    with socketserver.TCPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/token"
        source = tokens(Security("SASL_SSL", "OAUTHBEARER", token_url=url, client_id="a"))
        assert source is not None
        assert source.token().text == "good"
        with pytest.raises(KafkaConnectionError, match=r"kafka\.security\.token_url"):
            asyncio.run(Provider(source).token())
        assert "token refresh failed, retrying: kafka.security.token_url" in caplog.text
        assert source.token().text == "good"
        server.shutdown()


def test_an_authority_that_cannot_be_read_is_a_missing_token() -> None:
    security = Security(
        "SASL_SSL", "OAUTHBEARER", token_url="https://127.0.0.1:9/", client_id="a", token_ca="nowhere"
    )
    with pytest.raises(NoToken, match="token_ca nowhere: it cannot be used"):
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
    assert tokens(Security("SASL_SSL", "PLAIN", username="user", password="password")) is None


def test_the_old_token_is_good_for_the_rest_of_its_life_while_there_is_no_next_one() -> None:
    times = iter((1000.0, 1081.0, 1083.0, 1087.0, 1099.0, 1101.0, 1102.0))
    given = iter((True, False, False, False, False, True))
    now, asked = 0.0, 0

    def clock() -> float:
        nonlocal now
        now = next(times)
        return now

    def fetch() -> Token:
        nonlocal asked
        asked += 1
        if not next(given):
            raise NoToken("provider", "away", "Wait", passes=True)
        return Token(str(now), now + 100)

    source = Tokens(fetch, clock)
    # Not for every client that comes in: those that give tokens are in trouble as it is.
    assert [(source.token().text, asked) for _ in range(5)] == [
        ("1000.0", 1),
        ("1000.0", 2),
        ("1000.0", 2),
        ("1000.0", 3),
        ("1000.0", 4),
    ]
    with pytest.raises(NoToken, match="away"):
        source.token()
    assert source.token().text == "1102.0"


def test_aiokafka_takes_a_provider_that_is_away_for_a_broker_that_is_and_a_refusal_for_the_end() -> None:
    def refuse() -> Token:
        raise NoToken("provider", "it does not know the client", "Check", passes=passes)

    passes = True
    with pytest.raises(KafkaConnectionError, match="it does not know the client"):
        asyncio.run(Provider(Tokens(refuse)).token())
    passes = False
    with pytest.raises(NoToken):
        asyncio.run(Provider(Tokens(refuse)).token())
