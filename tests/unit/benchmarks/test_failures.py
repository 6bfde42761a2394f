"""The benchmark ``failures`` without a fabric: options that contradict each other."""

import pytest
import typer

from benchmarks.live.failures import KINDS, ONE_CONTROLLER, WITHOUT_LEADER, main


@pytest.mark.parametrize(
    ("only", "members", "message"),
    [
        (",".join(KINDS), 3, f"not with --members: {', '.join(ONE_CONTROLLER)}"),
        (WITHOUT_LEADER, 1, "needs --members 2 or more"),
    ],
)
def test_kinds_that_do_not_fit_the_number_of_controllers_are_refused(only: str, members: int, message: str) -> None:
    with pytest.raises(typer.BadParameter, match=message):
        main(only=only, members=members)
