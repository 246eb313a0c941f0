"""Theorem C: the running bound is never below the regret that was measured."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from mempair_db.pair import encode, events
from mempair_db.pair.calibration import Epoch
from mempair_db.pair.comparators import best_static, row_losses
from mempair_db.pair.encoding import Encoding
from mempair_db.pair.model import CertifiedPair
from mempair_db.pair.odometer import Odometer
from mempair_db.pair.state import State

from .streams import Mixed, Stream, mixed


def bound_of(stream: Stream, state: State) -> float:
    """Ask the model itself, put together around this state."""
    plain = Encoding(encode.Encoding((encode.Number(),) * (stream.d - 1)), radius=1.0)
    pair = CertifiedPair(stream.parameters)
    pair.restore(Epoch(1, plain, stream.k, 10**10, len(stream)), state, Odometer(10**10))
    return pair.regret_bound()


def assert_the_bound_holds(given_: Mixed) -> None:
    # Given the model that was served before every insert,
    stream, state = given_.stream, given_.stream.start()
    served = np.empty((len(given_.ops), stream.d))
    for i in range(len(given_.ops)):
        served[i] = state.theta
        given_.apply(state, i, i + 1)
    # when it is compared with the best static model of all inserted rows,
    learned = given_.ops == events.INSERT
    if not learned.any():
        return
    X, y = given_.features[learned], given_.targets[learned]
    arguments = (stream.loss, stream.k.lam, stream.k.clip)
    best = best_static(X, y, *arguments)
    paid, best_paid = row_losses(X, y, served[learned], *arguments), row_losses(X, y, best, *arguments)
    regret = float(np.sum(paid) - np.sum(best_paid))
    # then the bound is not below it.
    rounding = 1e-9 * (1.0 + np.sum(paid) + np.sum(best_paid))
    assert bound_of(stream, state) >= regret - rounding


@given(mixed(ticks=False))
def test_the_regret_bound_is_never_below_the_regret(given_: Mixed) -> None:
    assert_the_bound_holds(given_)


@given(mixed(ticks=True))
def test_the_regret_bound_holds_with_gaps_in_the_stream(given_: Mixed) -> None:
    assert_the_bound_holds(given_)
