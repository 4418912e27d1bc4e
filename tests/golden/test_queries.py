"""Every query by key, every id and every offset by time that the real classes answered."""

from __future__ import annotations

import pytest

from tests.agreement.comparisons import queries
from tests.agreement.ledger import Subject
from tests.stores import every_store

COMPARISONS = (
    queries.queries_by_key,
    queries.messages_by_key,
    queries.messages_by_id,
    queries.offsets_by_time,
)


@every_store
@pytest.mark.parametrize("comparison", COMPARISONS, ids=lambda function: function.__name__)
def test_the_answers_are_those_of_the_real_classes(comparison, name, store):
    subject = Subject(name, store(name).parent)
    subject.__dict__["root"] = store(name)
    comparison(subject)
    assert subject.differences == []
