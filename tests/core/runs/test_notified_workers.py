"""Which workers of a fleet a notification asks to look for work."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from rota.core.runs.notified_workers import ASKED, Fleet, WakeupCall, is_asked, read_call, wider

SEEDS = st.integers(0, 10**9).map(str)


def asked(peers: list[str], call: WakeupCall) -> list[str]:
    return [peer for peer in peers if is_asked(Fleet(peer, peers), call)]


@given(count=st.integers(1, 60), seed=SEEDS, number=st.integers(0, 8))
def test_few_of_many_workers_are_asked_and_twice_as_many_at_each_round(
    count: int, seed: str, number: int
) -> None:
    peers = [f"w{n}" for n in range(count)]
    assert len(asked(peers, WakeupCall("ready", number, seed))) == min(count, ASKED << number)


def test_each_worker_of_a_fleet_is_asked_equally_often() -> None:
    peers = [f"w{n}" for n in range(10)]
    counts = Counter(
        one for n in range(2000) for one in asked(peers, WakeupCall("ready", 0, str(n)))
    )
    assert all(300 < counts[peer] < 500 for peer in peers)


@given(count=st.integers(1, 1000), seed=SEEDS)
def test_passing_a_notification_on_ends_when_all_workers_are_asked(count: int, seed: str) -> None:
    fleet = Fleet("w0", [f"w{n}" for n in range(count)])
    call, rounds = WakeupCall("ready", 0, seed), 0
    while (topic := wider(fleet, call)) is not None:
        call, rounds = read_call(f"{topic} {seed}"), rounds + 1
        assert call == ("ready", rounds, seed)
    assert is_asked(fleet, call)
    assert rounds <= 9


def test_a_notification_without_a_seed_asks_everybody() -> None:
    peers = [f"w{n}" for n in range(50)]
    assert asked(peers, read_call("ready")) == peers
    assert wider(Fleet("w0", peers), read_call("ready")) is None


@given(payload=st.text())
def test_any_payload_is_read(payload: str) -> None:
    call = read_call(payload)
    is_asked(Fleet("w0", ["w0", "w1", "w2"]), call)
    wider(Fleet("w0", ["w0", "w1", "w2"]), call)
