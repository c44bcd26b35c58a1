"""The plan of the looks of a block, which a state continues."""

from __future__ import annotations

from hashlib import sha256

import pytest

from eventveil.mechanisms.nested_gaussian import planned


@pytest.mark.parametrize(
    ("lengths", "digest"),
    [
        ((1, 2), "81efa234115ad728"),
        ((1, 7), "34dde30be875c378"),
        ((1, 2, 4), "cd77ae449e625558"),
        ((1, 24, 168), "5e67e5aa42544d00"),
        ((1, 3, 9, 27), "1772e186bb136712"),
        ((1, 4, 24, 168), "734921488f49b80e"),
    ],
)
def test_a_plan_is_what_it_was_on_every_machine_and_in_every_version(
    lengths: tuple[int, ...], digest: str
) -> None:
    """A state holds draws of a block that has begun, whose looks are those of the plan.

    It comes from floating-point numbers by additions, products and quotients, which IEEE 754 rounds. A plan
    that differs would give a block the looks of two: it needs a state that says which one it is of.
    """
    plan = planned(lengths)
    found = plan.weights.astype("<i8").tobytes() + repr((plan.parts, plan.draw)).encode()
    assert sha256(found).hexdigest()[:16] == digest
