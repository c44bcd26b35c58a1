"""The tokens of OAUTHBEARER: one source for every client of a process, asked again before they expire."""

from __future__ import annotations

import base64
import json
import logging
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from functools import cache
from http.client import HTTPException
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from eventveil.model.errors import EventveilError
from eventveil.model.topology import Login, Security

log = logging.getLogger("eventveil")

_TIMEOUT_SECONDS = 10.0
#: After this share of its life a token is not handed out any more.
_SHARE_OF_LIFE = 0.8
#: After which another one is asked for again.
_RETRY_SECONDS = 5.0
#: Of a token whose issuer does not tell.
_UNKNOWN_LIFE_SECONDS = 300.0
_LARGEST = 65_536


class Token(NamedTuple):
    """A token, and until when it holds in seconds since the epoch."""

    text: str
    expires: float


class NoToken(EventveilError):
    """A token cannot be had; ``passes`` tells whether another attempt may help."""

    def __init__(self, place: str, what: str, remedy: str, *, passes: bool = False) -> None:
        super().__init__(f"{place}: {what}. {remedy}")
        self.passes = passes


class Tokens:
    """Hands out a token until most of its life is over, and then the next one. From any thread.

    If there is no next one, it hands out the old one as long as that holds. With ``each_time`` it asks for
    the next one whenever a token is wanted.
    """

    def __init__(
        self, fetch: Callable[[], Token], clock: Callable[[], float] = time.time, *, each_time: bool = False
    ) -> None:
        self._fetch, self._clock = fetch, clock
        self._share, self._retry = (0.0, 0.0) if each_time else (_SHARE_OF_LIFE, _RETRY_SECONDS)
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._renew = 0.0
        #: Not before this is a failure logged again.
        self._silent_until = 0.0

    def token(self) -> Token:
        """A token that holds for a while. Blocks; raises NoToken.

        What went wrong passes if the source has given a token before, whatever it answers: a gateway or a
        file may be replaced just now, and a worker would end of it.
        """
        with self._lock:
            now = self._clock()
            if self._token is None or not now < self._renew:
                try:
                    self._token = self._fetch()
                except NoToken as error:
                    if self._token is None:
                        raise
                    self._log(error, now)
                    if not now < self._token.expires:
                        error.passes = True
                        raise
                    # This one is good for the rest of its life.
                    self._renew = min(now + self._retry, self._token.expires)
                else:
                    self._renew = now + self._share * (self._token.expires - now)
            return self._token

    def _log(self, error: NoToken, now: float) -> None:
        if now < self._silent_until:
            return
        self._silent_until = now + _RETRY_SECONDS
        log.warning("token refresh failed, retrying: %s", error)


@cache
def tokens(security: Security) -> Tokens | None:
    """Where the tokens of this process come from, None if none are needed."""
    if security.mechanism == "AWS_MSK_IAM":
        return Tokens(lambda: _signed(security))
    if security.mechanism != "OAUTHBEARER":
        return None
    return tokens_of(security, "kafka.security")


@cache
def tokens_of(grant: Login, section: str) -> Tokens:
    """Where the tokens of this process come from; ``section`` is that of the topology which says it."""
    if grant.token_file is not None:
        # The file may be replaced at any time.
        return Tokens(lambda: _of_file(grant.token_file or "", section), each_time=True)
    return Tokens(lambda: _granted(grant, section))


def _granted(security: Login, section: str) -> Token:
    """A token by client credentials (RFC 6749, section 4.4), which the identity provider gives."""
    url, place = security.token_url or "", f"{section}.token_url {security.token_url}"
    fields = {"grant_type": "client_credentials", **({"scope": security.scope} if security.scope else {})}
    # As they are, like Kafka's own clients: few providers decode what section 2.3.1 would have encoded.
    pair = f"{security.client_id}:{security.client_secret}"
    headers = {
        "Authorization": "Basic " + base64.b64encode(pair.encode()).decode(),
        "Accept": "application/json",
    }
    request = urllib.request.Request(url, urllib.parse.urlencode(fields).encode(), headers)
    context = _context(security, section) if url.startswith("https:") else None
    try:
        with _opener(context).open(request, timeout=_TIMEOUT_SECONDS) as answer:
            content = answer.read(_LARGEST)
    except urllib.error.HTTPError as error:
        raise _refused(place, error, section) from None
    except urllib.error.URLError as error:
        raise _unreachable(place, error.reason, section) from None
    except (OSError, HTTPException) as error:
        raise _unreachable(place, error, section) from None
    try:
        given = json.loads(content)
        text, life = given["access_token"], float(given.get("expires_in", _UNKNOWN_LIFE_SECONDS))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise NoToken(place, "the answer holds no access_token", "Is it the token endpoint?") from None
    return Token(_checked(text, place), time.time() + life)


def _context(security: Login, section: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=security.token_ca)
    except (OSError, ValueError) as error:
        place, what = f"{section}.token_ca {security.token_ca}", f"it cannot be used ({error})"
        raise NoToken(place, what, "Check the file and its rights") from None


def _opener(context: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
    """Opens URLs without following redirects, which would take the credentials elsewhere."""

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    return urllib.request.build_opener(Stay, urllib.request.HTTPSHandler(context=context))


def _refused(place: str, error: urllib.error.HTTPError, section: str) -> NoToken:
    try:
        told = json.loads(error.read(_LARGEST))["error"]
    except (OSError, ValueError, KeyError, TypeError):
        told = error.reason
    if told == "invalid_client" or error.code == 401:
        what, remedy = "does not accept the client", f"Check client_id and client_secret of {section}"
    elif told == "invalid_scope":
        what, remedy = "does not give this scope", f"Check scope of {section}"
    elif error.code >= 500 or error.code == 429:
        what, remedy = "has an internal error", "Try again later"
    else:
        what, remedy = "refuses", f"Check token_url of {section}, and the rights of the client"
    passes = error.code >= 500 or error.code == 429
    return NoToken(place, f"the identity provider {what} (HTTP {error.code}, {told})", remedy, passes=passes)


def _unreachable(place: str, reason: object, section: str) -> NoToken:
    if isinstance(reason, ssl.SSLCertVerificationError):
        what = f"the certificate of the identity provider is not trusted ({reason.verify_message})"
        return NoToken(place, what, f"Name the file of its certificate authority in {section}.token_ca")
    what = f"the identity provider cannot be reached ({reason})"
    return NoToken(place, what, f"Check {section}.token_url and the network", passes=True)


def _of_file(path: str, section: str) -> Token:
    place = f"{section}.token_file {path}"
    try:
        text = Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        told = error.strerror if isinstance(error, OSError) else "it is not text"
        raise NoToken(place, f"it cannot be read ({told})", "Check the path and its permissions") from None
    return Token(_checked(text, place), _expiry(text))


def _expiry(text: str) -> float:
    """When a JWT says that it ends; what is no JWT is taken to hold for some minutes."""
    try:
        claims = text.split(".")[1]
        return float(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"])
    except (ValueError, KeyError, IndexError, TypeError):
        return time.time() + _UNKNOWN_LIFE_SECONDS


def _checked(text: object, place: str) -> str:
    if not isinstance(text, str) or not text or not text.isascii() or not text.isprintable() or " " in text:
        raise NoToken(place, "it does not hold a token", "Find out who writes it")
    return text


def _signed(security: Security) -> Token:
    """A token that is a request signed with the credentials of the environment (role, profile, keys)."""
    place = "kafka.security.mechanism AWS_MSK_IAM"
    try:
        signer = import_module("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")
    except ImportError:
        raise NoToken(place, "the signer is not installed", "pip install 'eventveil[aws]'") from None
    try:
        text, expires = signer.generate_auth_token(security.region)
    except Exception as error:
        what = f"no token could be signed ({type(error).__name__}: {error})"
        raise NoToken(place, what, "Give the process a role, a profile or keys of AWS", passes=True) from None
    return Token(text, expires / 1000)
