"""The endpoint answers from the start, to anybody, while the worker changes under its eyes."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from eventveil.cli.main import main
from eventveil.cli.run import Address
from eventveil.model.errors import EventveilError
from eventveil.model.records import TopicPartition
from eventveil.tasks.task import StreamView
from eventveil.worker.observe.endpoint import Endpoint
from eventveil.worker.observe.observation import DEAD_SECONDS, Observation, PartitionView
from tests.unit.support import topology


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint("127.0.0.1", 0, raw=True)
    yield made
    made.close()


def get(endpoint: Endpoint, path: str, **headers: str) -> tuple[int, str, str]:
    request = urllib.request.Request(endpoint.url + path, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def test_before_the_worker_is_made_the_process_is_alive_and_not_ready(endpoint: Endpoint) -> None:
    assert get(endpoint, "/health/live") == (200, "application/json", '{"live":true,"reasons":[]}')
    assert get(endpoint, "/health/ready") == (
        503,
        "application/json",
        '{"ready":false,"reasons":["starting"]}',
    )
    assert get(endpoint, "/metrics")[0] == 200


def test_health_follows_the_worker(endpoint: Endpoint) -> None:
    seen = Observation(topology())
    endpoint.watch(seen)
    assert get(endpoint, "/health/ready")[0] == 503
    seen.assigned = frozenset()
    assert get(endpoint, "/health/ready")[::2] == (200, '{"ready":true,"reasons":[]}')
    seen.beat = time.monotonic() - DEAD_SECONDS
    status, _, body = get(endpoint, "/health/live")
    assert (status, json.loads(body)["live"]) == (503, False)
    assert get(endpoint, "/health/ready")[0] == 503


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:1", 200),
        ("127.0.0.1:9464", 200),
        ("[::1]:9464", 200),
        ("", 200),
        ("rebound.example", 403),
        ("rebound.example:9464", 403),
        ("127.0.0.1.example:9464", 403),
        ("localhost.example", 403),
        ("10.0.0.1:9464", 403),
    ],
)
def test_on_the_loopback_a_name_of_elsewhere_gets_nothing(endpoint: Endpoint, host: str, status: int) -> None:
    endpoint.watch(Observation(topology()))
    found, _, body = get(endpoint, "/metrics", Host=host)
    assert (found, "eventveil_ready" in body) == (status, status == 200)
    assert get(endpoint, "/nothing", Host=host)[0] == (404 if status == 200 else 403)


def test_who_listens_to_all_answers_to_any_name() -> None:
    open_to_all = Endpoint("0.0.0.0", 0, raw=False)
    try:
        url = open_to_all.url.replace("0.0.0.0", "127.0.0.1")
        request = urllib.request.Request(f"{url}/metrics", headers={"Host": "worker.example"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 200
    finally:
        open_to_all.close()


def test_prometheus_gets_the_format_it_asks_for(endpoint: Endpoint) -> None:
    endpoint.watch(Observation(topology()))
    status, kind, text = get(endpoint, "/metrics?name=x")
    assert (status, kind.split(";")[0]) == (200, "text/plain")
    assert "# TYPE eventveil_events_total counter" in text
    _, kind, text = get(endpoint, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")


@pytest.mark.parametrize("path", ["/health/live", "/health/ready", "/metrics", "/"])
def test_a_head_request_has_the_answer_without_its_body(endpoint: Endpoint, path: str) -> None:
    status, kind, text = get(endpoint, path)
    connection = http.client.HTTPConnection(endpoint.url.removeprefix("http://"), timeout=60)
    connection.request("HEAD", path)
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Content-Type"], answer.read()) == (status, kind, b"")
    if path != "/metrics":
        assert answer.headers["Content-Length"] == str(len(text.encode()))


def test_other_paths_are_not_found(endpoint: Endpoint) -> None:
    assert get(endpoint, "/")[::2] == (404, "try /metrics, /health/live or /health/ready\n")


def test_it_listens_where_it_was_told_and_nowhere_else(endpoint: Endpoint) -> None:
    host, port = endpoint.url.removeprefix("http://").split(":")
    assert host == "127.0.0.1"
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", int(port)), timeout=5)


def test_a_client_that_says_nothing_keeps_nobody_waiting(endpoint: Endpoint) -> None:
    port = int(endpoint.url.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port)):
        assert get(endpoint, "/health/live")[0] == 200


def test_scrapes_hold_while_owners_come_and_go(endpoint: Endpoint) -> None:
    seen = Observation(topology())
    endpoint.watch(seen)
    stop = threading.Event()

    def live() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            owned = {
                TopicPartition("raw", n): PartitionView(n, n, False, {"visits": StreamView(n)})
                for n in range(number % 50)
            }
            seen.look(owned, time.monotonic(), 0)
            seen.assigned = None if number % 7 == 0 else frozenset(owned)
            seen.gave_up(TopicPartition("raw", number % 50), RuntimeError("gone"), True)
            seen.released(f"stream {number % 300}", True)
            seen.released_at.pop(f"stream {(number + 150) % 300}", None)

    thread = threading.Thread(target=live)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # the threads take turns as often as they can
    thread.start()
    try:
        metrics = {endpoint.answer("/metrics").status for _ in range(300)}
        ready = {endpoint.answer("/health/ready").status for _ in range(300)}
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()
    assert metrics == {200}
    assert ready <= {200, 503}


def test_a_port_that_is_taken_is_a_clear_error(endpoint: Endpoint) -> None:
    port = int(endpoint.url.rsplit(":", 1)[1])
    with pytest.raises(
        EventveilError, match=rf"cannot listen on 127.0.0.1:{port}: Address already in use\. Choose"
    ):
        Endpoint("127.0.0.1", port, raw=False)


def test_the_command_stops_with_status_1_if_the_port_is_taken(endpoint: Endpoint) -> None:
    address = endpoint.url.removeprefix("http://")
    command = [
        Path(sys.executable).with_name("eventveil"),
        "run",
        "topologies/flights.yaml",
        "--metrics",
        address,
    ]
    ended = subprocess.run(
        command, cwd=Path(__file__).parents[4], capture_output=True, text=True, timeout=180
    )
    assert ended.returncode == 1
    assert re.search(
        rf"stopped: --metrics: cannot listen on {re.escape(address)}: .*--metrics off", ended.stderr
    )


def test_where_further_ports_are_allowed_the_next_free_one_is_taken_and_told() -> None:
    with neighbours(3) as (first, _, third):
        moved = Endpoint("127.0.0.1", first, raw=False, further=2)
        try:
            assert moved.description == f"http://127.0.0.1:{third}, because port {first} is taken"
            assert get(moved, "/health/live")[0] == 200
        finally:
            moved.close()


def test_without_a_free_port_among_them_it_is_a_clear_error() -> None:
    with (
        neighbours(3) as (first, second, _),
        pytest.raises(
            EventveilError, match=rf"cannot listen on 127.0.0.1:{first} to {second}: Address already"
        ),
    ):
        Endpoint("127.0.0.1", first, raw=False, further=1)


def test_what_is_wrong_with_an_address_but_that_it_is_taken_is_not_looked_past() -> None:
    with pytest.raises(EventveilError, match=r"cannot listen on 192\.0\.2\.1:9464: "):
        Endpoint("192.0.2.1", 9464, raw=False, further=5)


@contextmanager
def neighbours(count: int) -> Iterator[list[int]]:
    """Ports in a row of which all but the last are taken."""
    with ExitStack() as stack:
        for first in range(30_000, 32_000, count):
            ports = list(range(first, first + count))
            with ExitStack() as attempt:
                try:
                    held = [
                        attempt.enter_context(socket.create_server(("127.0.0.1", port))) for port in ports
                    ]
                except OSError:
                    continue
                stack.push(attempt.pop_all())
                held[-1].close()
                yield ports
                return
        raise AssertionError("no ports in a row are free")


def test_the_command_without_an_address_gives_way_to_what_holds_the_default_port(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    with ExitStack() as stack:
        # A program that keeps holding it does as well; another run of this test lets it go in the middle.
        for _ in range(100):
            with suppress(OSError):
                stack.enter_context(socket.create_server(("127.0.0.1", 9464)))
                break
            time.sleep(0.1)
        command = [Path(sys.executable).with_name("eventveil"), "run", "topologies/flights.yaml"]
        with log.open("wb") as output:
            # There is no broker: the worker waits for one, and its health can be asked for.
            worker = subprocess.Popen(
                command,
                cwd=Path(__file__).parents[4],
                stderr=output,
                env={**os.environ, "KAFKA_BOOTSTRAP": "127.0.0.1:1"},
            )
        try:
            deadline = time.monotonic() + 180
            while not (found := re.search(r"health on http://127\.0\.0\.1:(\d+)(.*)", log.read_text())):
                assert time.monotonic() < deadline, log.read_text()
                assert worker.poll() is None, log.read_text()
                time.sleep(0.05)
        finally:
            worker.kill()
            worker.wait()
    assert 9464 < int(found[1]) <= 9563
    assert found[2] == ", because port 9464 is taken"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("off", None),
        ("127.0.0.1:9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("metrics.internal:80", ("metrics.internal", 80)),
        ("[::1]:9464", ("::1", 9464)),
    ],
)
def test_addresses(text: str, meant: tuple[str, int] | None) -> None:
    assert Address().convert(text, None, None) == meant


@pytest.mark.parametrize(
    "text", ["", "9464", ":9464", "host:", "host:65536", "::1:9464", "a b:1", "host:-1", "on"]
)
def test_other_addresses_are_wrong_usage(text: str) -> None:
    called = CliRunner().invoke(main, ["run", "topology.yaml", "--metrics", text])
    assert called.exit_code == 2
    assert "should be HOST:PORT" in called.output


def test_raw_metrics_without_an_endpoint_are_wrong_usage() -> None:
    called = CliRunner().invoke(main, ["run", "topology.yaml", "--raw-metrics", "--metrics", "off"])
    assert called.exit_code == 2
