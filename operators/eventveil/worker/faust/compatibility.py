"""The private members of Faust and aiokafka that the worker leans on, asserted before it starts.

Both libraries are pinned; a change of either must come past this list.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import aiokafka
from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata
from aiokafka.conn import (
    AIOKafkaConnection,
    AIOKafkaProtocol,
    SaslPlainAuthenticator,
    ScramAuthenticator,
    create_conn,
)
from aiokafka.consumer.fetcher import Fetcher, FetchResult, PartitionRecords
from aiokafka.consumer.subscription_state import SubscriptionState, TopicPartitionState
from faust.app.base import App
from faust.tables.recovery import Recovery
from faust.transport.consumer import Consumer
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread
from faust.transport.drivers.aiokafka import Consumer as Driver

from eventveil.model.errors import EventveilError

_MEMBERS: dict[type, tuple[str, ...]] = {
    App: ("_create_directories",),
    AIOKafkaConsumerThread: ("_create_worker_consumer", "_ensure_consumer", "_consumer"),
    Consumer: ("perform_seek", "_drain_messages", "commit", "on_buffer_full", "on_buffer_drop"),
    Driver: ("_new_consumer_thread", "on_partitions_revoked", "verify_event_path"),
    Recovery: ("_resume_streams",),
    Fetcher: (
        "fetched_records",
        "_create_fetch_waiter",
        "_set_error",
        "error_future",
        "_get_actions_per_node",
    ),
    PartitionRecords: ("_unpack_records", "_consume_aborted_up_to", "_contains_abort_marker"),
    AIOKafkaClient: ("_metadata_update", "bootstrap"),
    ClusterMetadata: ("update_metadata", "add_listener"),
    SubscriptionState: ("subscription", "reassignment_in_progress", "fetch_context"),
    TopicPartitionState: ("position", "has_valid_position", "seek", "paused"),
    SaslPlainAuthenticator: ("_step",),
    ScramAuthenticator: ("_step",),
}

#: What the ways past aiokafka's own (``fetches``, ``frames``) were written for.
_AIOKAFKA = "0.14.0"
#: What functions of aiokafka, of which these take the place or that lead to them, have to use themselves.
_NAMES: dict[Callable[..., Any], tuple[str, ...]] = {
    PartitionRecords.__init__: ("_tp", "_records", "_check_crcs", "_isolation_level", "_aborted_producers",
                                "_records_iterator", "next_fetch_offset"),
    FetchResult.__init__: ("_partition_records",),
    Fetcher._proc_fetch_request: ("MemoryRecords",),
    AIOKafkaConnection.connect: ("AIOKafkaProtocol", "_protocol", "_create_reader_task"),
    AIOKafkaConnection._create_reader_task: ("_read",),
    AIOKafkaConnection._read: ("readexactly", "_handle_frame"),
    AIOKafkaProtocol.connection_lost: ("_closed_fut",),
    create_conn: ("AIOKafkaConnection",),
    ClusterMetadata.add_listener: ("_listeners",),
}  # fmt: skip


def check_private_members() -> None:
    """Raise EventveilError if Faust or aiokafka do not look the way the worker was written for."""
    missing = [
        f"{owner.__module__}.{owner.__qualname__}.{name}"
        for owner, names in _MEMBERS.items()
        for name in names
        if not hasattr(owner, name)
    ]
    missing += [
        f"{own.__module__}.{own.__qualname__} with {name}"
        for own, names in _NAMES.items()
        for name in names
        if name not in own.__code__.co_names
    ]
    if aiokafka.__version__ != _AIOKAFKA:
        missing.append(f"aiokafka {_AIOKAFKA}")
    if missing:
        raise EventveilError(
            f"this version of Faust or aiokafka is not supported: {', '.join(missing)} not found; "
            "install the versions that Eventveil pins"
        )
    if "perform_seek" not in inspect.getsource(Recovery._resume_streams):
        raise EventveilError("Faust no longer seeks in Recovery._resume_streams; install the pinned version")
    if "MetadataRequest" not in AIOKafkaClient._metadata_update.__code__.co_names:
        raise EventveilError(
            "aiokafka no longer makes a MetadataRequest in AIOKafkaClient._metadata_update, and would create"
            " topics that were deleted; install the pinned version"
        )
