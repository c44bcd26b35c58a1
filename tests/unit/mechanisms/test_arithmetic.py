"""Arithmetic with the same bits everywhere: accurate, and of nothing that a machine may do its own way."""

from __future__ import annotations

import ast
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from eventveil.mechanisms import forecasting, seasonal
from eventveil.mechanisms.arithmetic import exp, inverses, log, power, total, turn
from eventveil.mechanisms.packing import BYTES, packed, unpacked

#: Their last bits, or the order of their sums, differ with processor and version.
FUNCTIONS = {
    "exp",
    "expm1",
    "log",
    "log1p",
    "log2",
    "log10",
    "power",
    "sin",
    "cos",
    "tanh",
    "logaddexp",
    "mean",
}
METHODS = {"sum", "std", "var", "dot", "matmul", "einsum", "inner", "tensordot", "linalg", "cumsum", "prod"}


def test_exponentials_and_logarithms_are_accurate() -> None:
    exponents = np.concatenate([np.linspace(-690, 690, 5001), [0.0, -1e-300]])
    assert np.allclose(exp(exponents), [math.exp(one) for one in exponents], rtol=1e-10, atol=0)
    assert 0 < exp(np.array([-1e9]))[0] < 1e-300
    numbers = np.concatenate([10 ** np.linspace(-300, 300, 5001), [1.0, 1 + 1e-9]])
    assert np.allclose(log(numbers), [math.log(one) for one in numbers], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("whole", [1, 2, 7, 8, 24, 168, 604_800])
def test_turns_are_cosines_and_sines(whole: int) -> None:
    for part in range(0, whole, max(1, whole // 500)):
        angle = 2 * math.pi * part / whole
        assert turn(part, whole) == pytest.approx((math.cos(angle), math.sin(angle)), abs=1e-14)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000])
def test_totals_are_sums_over_the_first_axis(size: int) -> None:
    numbers = np.random.default_rng(size).normal(size=(size, 3))
    before = numbers.copy()
    assert np.allclose(total(numbers), numbers.sum(axis=0), rtol=1e-12)
    assert (numbers == before).all()


def test_powers_are_those_of_whole_numbers() -> None:
    assert power(0.999, 0) == 1
    assert power(0.999, 777) == pytest.approx(0.999**777, rel=1e-13)


def test_inverses_are_those_of_each_leading_block() -> None:
    factors = np.random.default_rng(3).normal(size=(2, 60, 37))
    matrices = factors.swapaxes(1, 2) @ factors + np.eye(37)
    for size, found in zip((1, 25, 37), inverses(matrices, (1, 25, 37)), strict=True):
        for one, whole in zip(found, matrices, strict=True):
            assert np.allclose(one @ whole[:size, :size], np.eye(size), atol=1e-10)


def test_packed_numbers_come_back_bit_by_bit_and_in_the_space_that_is_planned() -> None:
    numbers = np.array([[0.1, -0.0, 5e-324], [1e308, 1 / 3, float(Fraction(2, 3))]])
    text = packed(numbers)
    assert unpacked(text, (2, 3), "numbers").tobytes() == numbers.tobytes()
    assert len(packed(np.zeros(1000))) <= BYTES * 1000


@pytest.mark.parametrize(
    "text", [None, 1, [1.0], "", "AAAA", "not base64!", "é", packed(np.array([np.nan, 0]))]
)
def test_what_are_no_packed_numbers_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"numbers should be"):
        unpacked(text, (2,), "numbers")


def test_a_forecast_uses_no_operation_whose_result_depends_on_the_machine() -> None:
    """Whole numbers, rounding and square roots are the same everywhere."""
    folder = Path(forecasting.__file__).parent
    for path in [*folder.glob("*.py"), Path(seasonal.__file__)]:
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Attribute(value=ast.Name(id="np"), attr=name):
                    assert name not in FUNCTIONS | METHODS, path
                case ast.Attribute(attr=name):
                    assert name not in METHODS, path
                case ast.ImportFrom(module="math", names=names):
                    assert {one.name for one in names} <= {"sqrt", "gcd", "factorial", "prod"}, path
                case ast.Import(names=names):
                    assert "math" not in {one.name for one in names}, path
                case ast.BinOp(op=operator):
                    assert not isinstance(operator, ast.MatMult), path
