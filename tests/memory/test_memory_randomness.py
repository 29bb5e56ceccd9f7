"""The run's random streams: independent by purpose, the same for the same seed, and saved as JSON."""

import itertools
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ider.randomness import PURPOSES, generators, restore, states, torch_generator


def test_there_is_one_stream_a_purpose():
    assert tuple(generators(0)) == PURPOSES == ("order", "memory", "replay", "augment", "coins")


def test_streams_differ_by_purpose_and_by_seed():
    first = {
        (seed, purpose): stream.integers(0, 2**63, 4).tolist()
        for seed in (0, 1, 2, 2**32, 2**64 + 1)
        for purpose, stream in generators(seed).items()
    }
    assert len({tuple(numbers) for numbers in first.values()}) == len(first)


def test_streams_of_one_seed_are_uncorrelated():
    drawn = np.array([stream.standard_normal(20_000) for stream in generators(0).values()])
    correlation = np.corrcoef(drawn)
    for a, b in itertools.combinations(range(len(PURPOSES)), 2):
        assert abs(correlation[a, b]) < 5.2 / np.sqrt(20_000)  # ten pairs beyond 5.2 deviations: about 2e-6


@pytest.mark.parametrize("purpose", PURPOSES)
def test_using_one_stream_leaves_the_others_where_they_are(purpose):
    used, untouched = generators(3), generators(3)
    used[purpose].random(100)
    for other in PURPOSES:
        same = used[other].random(5).tolist() == untouched[other].random(5).tolist()
        assert same == (other != purpose)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**70), burn=st.lists(st.integers(0, 20), min_size=5, max_size=5))
def test_states_go_through_json_and_come_back(seed, burn):
    streams = generators(seed)
    for stream, count in zip(streams.values(), burn, strict=True):
        stream.random(count, np.float32)  # an odd number of these leaves half a word behind
        stream.integers(0, 7, count)
    saved = json.loads(json.dumps(states(streams)))
    expected = [stream.integers(0, 1000, 5).tolist() + stream.random(3).tolist() for stream in streams.values()]
    other = generators(seed + 1)
    restore(other, saved)
    assert [stream.integers(0, 1000, 5).tolist() + stream.random(3).tolist() for stream in other.values()] == expected


def test_saved_states_do_not_move_with_the_streams():
    streams = generators(0)
    saved = states(streams)
    text = json.dumps(saved)
    for stream in streams.values():
        stream.random(9)
    assert json.dumps(saved) == text


def test_a_torch_generator_is_a_function_of_seed_and_purpose():
    drawn = {
        (seed, purpose): torch.rand(4, generator=torch_generator(seed, purpose)).tolist()
        for seed in (0, 1, 2**40)
        for purpose in ("weights", "classes 2", "classes 12")
    }
    assert len({tuple(numbers) for numbers in drawn.values()}) == len(drawn)
    for (seed, purpose), numbers in drawn.items():
        assert torch.rand(4, generator=torch_generator(seed, purpose)).tolist() == numbers


def test_the_global_generators_are_left_alone():
    before = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002 - the one left alone
    generators(5)["order"].random(10)
    torch.rand(3, generator=torch_generator(5, "weights"))
    assert (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before  # noqa: NPY002
