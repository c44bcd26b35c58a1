"""Gaussian differential privacy: what (epsilon, delta) allows, as mu squared, which adds up exactly.

**Definition** (J. Dong, A. Roth, W. J. Su, "Gaussian Differential Privacy", JRSS B 84, 2022). A mechanism is
mu-GDP if to tell two neighbours apart by its output is at least as hard as to tell N(0, 1) from N(mu, 1) by
one number. Corollary 1 there: it is then (epsilon, delta)-private for every epsilon >= 0, with

    delta(epsilon) = Phi(-epsilon / mu + mu / 2) - e^epsilon Phi(-epsilon / mu - mu / 2),

and for no smaller delta if it is exactly that hard. delta grows with mu, so a pair (epsilon, delta) allows
all mu up to one.

**Theorem** (a filter). A reader chooses at each step i = 1, 2, ... a standard deviation sigma_i > 0, as any
function of what was seen before, or stops, and is shown c_i + sigma_i Z_i. Z_i are independent vectors of
standard normal numbers, c_i a vector that may depend on what was seen before too, and that differs between
two neighbours by d_i with |d_i| <= k in L2. Let mu_i = k / sigma_i. If in every case the sum of mu_i^2 over
all steps at which neighbours differ is at most mu^2, then all that is seen together is mu-GDP.

*Proof.* Let P be the law of all that is seen for one neighbour, Q for the other. Given what was seen before,
only the part of c_i + sigma_i Z_i along d_i differs in law: N(0, 1) from N(s_i, 1) in units of sigma_i, s_i
= |d_i| / sigma_i <= mu_i. Read this part off a Brownian motion B with time: step i uses B from time T_(i-1)
to T_i = T_(i-1) + s_i^2, and shows (B(T_i) - B(T_(i-1))) / s_i, which under P is N(0, 1) and independent of
what was seen before, since s_i is a function of that. Under Q the motion has drift 1: the step shows N(s_i,
1). The rest of the vector is independent of B, with the same law in both. All T_i are at most mu^2. So
everything that is seen is a function of B up to time mu^2, and of randomness that is the same under P and Q:
post-processing of a Brownian motion on [0, mu^2] with drift 0 or 1. Its likelihood ratio is a function of
B(mu^2) alone, which is N(0, mu^2) or N(mu^2, mu^2): as hard to tell as N(0, 1) from N(mu, 1). That is
mu-GDP. Steps at which the neighbours do not differ have s_i = 0. (Known more generally: A. Smith and A.
Thakurta, "Fully Adaptive Composition for Gaussian Differential Privacy", 2022, for any mu_i-GDP mechanisms;
A. Koskela, M. Tobaben, A. Honkela, "Individual Privacy Accounting with Gaussian Differential Privacy", ICLR
2023.)

It needs that *every* look at the counts is of this form. A mechanism that draws anything else from them, such
as a test with Laplace noise, is not covered, but by what follows.

**Steps of pure epsilon** (across a change of noise). A step that, given what was seen before, is e-private
for the two neighbours may stand among those of the theorem, with pi / 2 e^2 for its mu_i^2. *Proof.* Let P
and Q be the laws of what it shows for one neighbour and for the other. By e-privacy a test of level a has
power 1 - f(a) at most, f(a) = max(0, 1 - e^e a, e^-e (1 - a)). For mu = root(pi / 2) e, f is nowhere below
the trade-off G(a) = Phi(Phi^-1(1 - a) - mu) of N(0, 1) and N(mu, 1): G is convex, so it lies below the two
chords of f where it does at their ends (0, 1), (1, 0) and the corner a = f(a) = 1 / (1 + e^e), where G(a) =
Phi(Phi^-1(s) - mu) for s = e^e / (1 + e^e) is at most 1 - s if mu >= 2 Phi^-1(s), that is if D(e) =
Phi(root(pi / 8) e) - 1 / (1 + e^-e) >= 0. D(0) = 0, D(e) -> 0 for e to infinity, and D' = root(pi / 8)
phi(root(pi / 8) e) - 1 / (2 cosh(e / 2))^2 has the sign of r(e) = 2 ln cosh(e / 2) - pi e^2 / 16, for both
terms are 1/4 at e = 0. r(0) = 0 and r' = tanh(e / 2) - pi e / 8, which is positive at first (1/2 > pi / 8)
and, tanh being concave, negative from some e on: r is positive at first and then negative for good. So D
rises from 0 and then falls to 0: it is nowhere negative. By Blackwell's theorem (Dong, Roth and Su, Theorem
2) what the step shows is a random function of one number, N(0, 1) for one neighbour and N(mu, 1) for the
other, which is read off the Brownian motion as above, for mu^2 of its time.

**Sensitivity.** A user adds v to the counts of a timestamp, whole numbers from 0 to p, for *per_column* p <=
k, that add up to at most k, for *contributions* k. Then |v|^2 <= S(k, p) = floor(k / p) p^2 + (k mod p)^2,
and not less. *Proof.* Let v be one of those with the largest |v|^2. If two columns had 0 < v(i) <= v(j) < p,
one event of i in j instead would make |v|^2 larger by 2 (v(j) - v(i)) + 2 > 0. So one column at most is
neither 0 nor p, and |v|^2 is largest with floor(k / p) columns of p events and one of the k mod p others, as
far as there are columns. For p = k it is k^2: all events in one column. Under `substitute` v becomes v':
|v - v'|^2 = |v|^2 + |v'|^2 - 2 v v' <= 2 S(k, p), for v v' >= 0.

**Arithmetic.** ``mu_squared`` and ``noise`` round towards less epsilon and more noise. Phi(-x) = 1/2 -
phi(x) S(x), S(x) = x + x^3 / 3 + x^5 / (3 5) + ..., whose terms have one sign. With D decimals every
operation errs by at most 10^(1 - D) of its result. Fewer than 10^5 terms, each of three operations, and an
exponent of less than 10^5 leave phi(x) S(x), which is at most 1/2, with an error below 10^6 times that; so
does e^epsilon times it, except for the factor. D is chosen so that all of this is less than 10^-30 of delta,
and twice the bound is added to the result.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import ceil, frexp, isqrt, log, sqrt

_BITS = 40  # of mu squared, after the first
_SPARE = 40  # decimals
_MOST_TERMS = 10**5
_SIGMA_BITS = 40

LARGEST_EPSILON = 1000
PURE = Fraction(15707963268, 10**10)
"""What a step of pure epsilon costs in terms of mu squared, over its epsilon squared: just above pi / 2."""
LEAST_DELTA, LARGEST_DELTA = Fraction(1, 10**30), Fraction(1, 10**4)
"""What cannot be told from 0 for any purpose; and above which no promise is worth the name: a hundred of a
million users could be published."""


def delta(epsilon: Fraction, mu_squared: Fraction) -> Decimal:
    """An upper bound of delta(epsilon), from above it by less than 10^-30 of LEAST_DELTA.

    ``epsilon`` is in 0..LARGEST_EPSILON, ``mu_squared`` positive.
    """
    digits = _SPARE + 60 + ceil(float(epsilon) / log(10))
    with localcontext(prec=digits):
        e = _decimal(epsilon)
        mu = _decimal(mu_squared).sqrt()
        factor = e.exp()
        error = (1 + factor) * Decimal(10) ** (7 - digits)
        return _tail(e / mu - mu / 2, digits) - factor * _tail(e / mu + mu / 2, digits) + error


@lru_cache(maxsize=256)
def mu_squared(epsilon: Fraction, delta_: Fraction) -> Fraction:
    """The square of the largest mu with delta(epsilon) <= ``delta_``, less 2^-40 of it at most.

    Raises ValueError unless 0 < ``epsilon`` <= LARGEST_EPSILON and LEAST_DELTA <= ``delta_`` <= 1/4.
    """
    if not 0 < epsilon <= LARGEST_EPSILON:
        raise ValueError(f"epsilon should be above 0 and at most {LARGEST_EPSILON}, not {epsilon}")
    if not LEAST_DELTA <= delta_ <= Fraction(1, 4):
        raise ValueError(f"delta should be in {LEAST_DELTA}..1/4, not {delta_}")
    limit = _decimal_below(delta_)
    power = _likely_power(float(epsilon), float(delta_))
    above = _over(limit, delta(epsilon, _power(power + 1)))
    while above <= 0:
        power += 1
        above = _over(limit, delta(epsilon, _power(power + 1)))
    below = _over(limit, delta(epsilon, _power(power)))
    while below > 0:
        power, above = power - 1, below
        below = _over(limit, delta(epsilon, _power(power)))
    # By the Illinois method: where a line between both ends is 0; an end that stays twice counts for half.
    unit, low, high, stayed = _power(power - _BITS), 1 << _BITS, 2 << _BITS, 0
    while high - low > 1:
        middle = low + min(max(int((high - low) * (below / (below - above))), 1), high - low - 1)
        over = _over(limit, delta(epsilon, middle * unit))
        if over > 0:
            high, above = middle, over
            below /= 2 if stayed > 0 else 1
        else:
            low, below = middle, over
            above /= 2 if stayed < 0 else 1
        stayed = 1 if over > 0 else -1
    return low * unit


def _power(exponent: int) -> Fraction:
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def _over(limit: Decimal, delta_: Decimal) -> float:
    """The logarithm of how many times the limit it is: above 0 exactly if it is more."""
    with localcontext(prec=50):
        over = float((delta_ / limit).ln())
    return max(over, 5e-324) if delta_ > limit else min(over, 0.0)


def _likely_power(epsilon: float, delta_: float) -> int:
    """About which power of two mu squared is: what concentrated privacy, or delta alone, allows."""
    root = sqrt(-log(delta_))
    return frexp(max(2 * (epsilon / (sqrt(root * root + epsilon) + root)) ** 2, (2.5 * delta_) ** 2))[1] - 1


@lru_cache(maxsize=256)
def epsilon(mu_squared_: Fraction, delta_: Fraction) -> Fraction:
    """An epsilon at which delta is at most ``delta_``: the least one, rounded up by 1/1000 of it at most.

    Beyond LARGEST_EPSILON a bound, since delta <= Phi(-a) <= e^(-a^2 / 2) / 2 for a = epsilon / mu - mu / 2.
    ``mu_squared_`` is positive, LEAST_DELTA <= ``delta_`` <= 1/4.
    """
    limit = _decimal_below(delta_)
    mu = Fraction(isqrt(ceil(mu_squared_ * 4**_SIGMA_BITS)) + 1, 2**_SIGMA_BITS)
    with localcontext(prec=50):
        a = Fraction((-2 * (2 * limit).ln()).sqrt()) + Fraction(1, 10**9)
    largest = mu_squared_ / 2 + a * mu
    if largest > LARGEST_EPSILON:
        return Fraction(ceil(largest))
    unit = Fraction(10) ** (len(str(ceil(largest * 10**9))) - 9 - 4)  # of the fourth digit or beyond
    low, high = 0, ceil(largest / unit)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if delta(middle * unit, mu_squared_) <= limit else (middle, high)
    return high * unit


@lru_cache(maxsize=256)
def spent(epsilon_: Fraction, delta_: Fraction, share: Fraction) -> Fraction:
    """The epsilon that a ``share``, 0 to 1, of what epsilon and delta allow as mu squared has at this delta.

    It is more than this share of epsilon where the share is small. Rounded up like ``epsilon``.
    """
    if share <= 0:
        return Fraction(0)
    return min(epsilon_, epsilon(share * mu_squared(epsilon_, delta_), delta_)) if share < 1 else epsilon_


def largest_square(contributions: int, per_column: int) -> int:
    """S(k, p): the largest |v|^2 of whole numbers from 0 to ``per_column`` that add up to ``contributions``.

    Or to less. Both are positive; a ``per_column`` above ``contributions`` is as much as those.
    """
    full, rest = divmod(contributions, per_column)
    return full * per_column**2 + rest**2


def noise(squared_sensitivity: int, share: Fraction) -> Fraction:
    """The least standard deviation for which a step costs at most ``share`` of mu squared, rounded up.

    That is a multiple of 2^-40 of about itself. Both are positive.
    """
    variance = squared_sensitivity / share
    bits = max(0, _SIGMA_BITS - (variance.numerator.bit_length() - variance.denominator.bit_length()) // 2)
    squared = -(-(variance.numerator << 2 * bits) // variance.denominator)
    return Fraction(isqrt(squared - 1) + 1, 1 << bits)


def _tail(x: Decimal, digits: int) -> Decimal:
    """Phi(-x)."""
    square = x * x
    total, term, n = x, x, 1
    least = Decimal(10) ** -digits
    while term and (2 * square > n + 2 or abs(term) > least * abs(total)):
        n += 2
        term = term * square / n
        total += term
    if n > _MOST_TERMS:
        raise ValueError(f"Phi(-{x:.3g}) cannot be computed")
    return Decimal("0.5") - (-square / 2).exp() / (2 * _pi(digits)).sqrt() * total


@lru_cache(maxsize=64)
def _pi(digits: int) -> Decimal:
    """Pi, by Machin's formula in whole numbers: 16 arctan(1/5) - 4 arctan(1/239)."""
    one = 10 ** (digits + 10)
    total = 0
    for weight, inverse in ((16, 5), (-4, 239)):
        term, n = weight * one // inverse, 0
        while term not in (0, -1):
            total += term // (2 * n + 1) * (-1) ** n
            term //= inverse * inverse
            n += 1
    with localcontext(prec=digits + 2):
        return Decimal(total) / Decimal(one)


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def _decimal_below(value: Fraction) -> Decimal:
    """The value, or less by 10^-40 of it."""
    with localcontext(prec=50):
        return _decimal(value) * (1 - Decimal(10) ** -40)
