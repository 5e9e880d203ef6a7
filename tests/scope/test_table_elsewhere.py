from __future__ import annotations

import pytest

from airflow_provider_scope.exceptions import TableGoneError


def test_a_table_that_the_jobs_see_and_the_workers_do_not_is_named(world):
    """To the service, a path without a scheme lies in the account; to a worker, on its own disk."""
    world.open()
    world.land(1)
    with pytest.raises(TableGoneError, match="there is no table at file:///elsewhere/flights"):
        world.run(delta_location="/elsewhere/flights")
    assert [job.result for job in world.jobs()] == ["Succeeded"]
