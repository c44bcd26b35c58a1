"""Fixtures of every test folder."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import shutil
from collections.abc import Iterator

import pytest
from hypothesis import settings
from xdist.remote import Producer

from tests.kafka.broker import local_broker
from tests.kafka.cluster import Cluster, three_brokers
from tests.kafka.jars import missing_tools
from tests.kafka.links import MISLED
from tests.lanes import Lanes, give_way, longest_first

# Hypothesis fails an example that takes longer than 200 ms by default: on a busy machine any may.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    longest_first(items)


def pytest_runtest_setup(item: pytest.Item) -> None:
    give_way(item)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine, in a loop of its own."""
    if not inspect.iscoroutinefunction(test := pyfuncitem.obj):
        return None
    asyncio.run(test(**{name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}))
    return True


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Lanes | None:
    return Lanes(config, log) if config.getvalue("dist") == "loadscope" else None


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """``host:port`` of an Apache Kafka.

    The variable KAFKA chooses it: ``local`` (a broker of this test run, from the jars), ``docker`` (a
    container of this test run), or ``host:port`` of one that runs already. Without it: local when Java and
    Maven are there, else docker when its command is there. The variable KAFKA_VERSION chooses the version of
    the first two.
    """
    choice = os.environ.get("KAFKA") or _default()
    if choice == "local":
        with local_broker() as broker:
            yield broker.bootstrap
    elif choice == "docker":
        # Only here, so that a machine without Docker needs nothing of it.
        from tests.kafka.container import container_broker

        with container_broker() as bootstrap:
            yield bootstrap
    elif re.fullmatch(r"[^\s:]+:\d+", choice) and os.environ.get("KAFKA_VERSION"):
        pytest.fail(f"KAFKA={choice} has a version of its own: leave out KAFKA_VERSION", pytrace=False)
    elif re.fullmatch(r"[^\s:]+:\d+", choice):
        yield choice
    else:
        pytest.fail(f"KAFKA={choice}: say local, docker or host:port", pytrace=False)


@pytest.fixture(scope="module")
def _three_brokers() -> Iterator[Cluster]:
    with three_brokers(clients=(MISLED,)) as made:
        yield made


@pytest.fixture
def cluster(_three_brokers: Cluster) -> Iterator[Cluster]:
    """Three brokers and a controller, for the tests of a module; whole again after each of them."""
    yield _three_brokers
    _three_brokers.repair()


def _default() -> str:
    missing = missing_tools()
    if not missing:
        return "local"
    if shutil.which("docker"):
        return "docker"
    pytest.fail("these tests need Apache Kafka. " + "; ".join(missing) + "; or set KAFKA", pytrace=False)
