from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.shared_map import SECONDS, Histogram

BOUNDS = (0.1, 1.0, 5.0)


@given(st.lists(st.lists(st.sampled_from([0.0, 0.05, 0.1, 0.5, 1.0, 4.0, 5.0, 9.0]))))
def test_a_bucket_counts_all_values_up_to_its_bound(portions: list[list[float]]) -> None:
    histogram = Histogram(BOUNDS)
    for values in portions:
        histogram = histogram.observed(*values)
    seen = [value for values in portions for value in values]
    counts = {str(bound): sum(value <= bound for value in seen) for bound in BOUNDS}
    assert dict(histogram.buckets) == {**counts, "+Inf": len(seen)}
    assert abs(histogram.total - sum(seen)) < 1e-9


def test_observing_leaves_what_was_published_as_it_was() -> None:
    published = Histogram(BOUNDS).observed(0.5)
    published.observed(0.5)
    assert dict(published.buckets)["+Inf"] == 1


@given(st.floats(min_value=0.001, max_value=80.0))
def test_a_percentile_that_is_read_from_buckets_is_right_to_a_quarter(seconds: float) -> None:
    """Prometheus assumes that values are spread evenly in a bucket; the answer lies between the bucket's bounds."""
    above = next(bound for bound in SECONDS if bound >= seconds)
    below = max((bound for bound in SECONDS if bound < seconds), default=SECONDS[0])
    assert seconds / 1.3 < below
    assert above < seconds * 1.3
