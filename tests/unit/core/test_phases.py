"""The table of phases: legal and refused pairs of phase and input, and the effect of phases on the controller."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import product

import pytest

from controller.core.sending import HURRY_S, IllegalTransition, Input, Phase, Phases

LEGAL = {
    (Phase.ADOPTING, Input.ADOPTION_NEEDED): Phase.ADOPTING,
    (Phase.ADOPTING, Input.ADOPTED): Phase.STEADY,
    (Phase.STEADY, Input.ADOPTION_NEEDED): Phase.ADOPTING,
    (Phase.STEADY, Input.NEXT_HOPS_REMOVED): Phase.REMOVING_NEXT_HOPS,
    (Phase.STEADY, Input.REPAIR_ASKED): Phase.REPAIRING,
    (Phase.REMOVING_NEXT_HOPS, Input.ADOPTION_NEEDED): Phase.ADOPTING,
    (Phase.REMOVING_NEXT_HOPS, Input.NEXT_HOPS_REMOVED): Phase.REMOVING_NEXT_HOPS,
    (Phase.REMOVING_NEXT_HOPS, Input.ALL_CONFIRMED): Phase.STEADY,
    (Phase.REMOVING_NEXT_HOPS, Input.TIME_OVER): Phase.STEADY,
    (Phase.REPAIRING, Input.ADOPTION_NEEDED): Phase.ADOPTING,
    (Phase.REPAIRING, Input.NEXT_HOPS_REMOVED): Phase.REMOVING_NEXT_HOPS,
    (Phase.REPAIRING, Input.REPAIR_ANSWERED): Phase.REMOVING_NEXT_HOPS,
    (Phase.REPAIRING, Input.TIME_OVER): Phase.STEADY,
}


@pytest.mark.parametrize(("phase", "happened"), list(product(Phase, Input)))
def test_each_legal_input_leads_to_its_phase_and_any_other_is_refused(phase: Phase, happened: Input) -> None:
    phases = Phases()
    phases.phase = phase
    legal = (phase, happened) in LEGAL
    with nullcontext() if legal else pytest.raises(IllegalTransition, match=happened.name):
        phases.take(happened, 0.0)
    assert phases.phase is LEGAL.get((phase, happened), phase)


def test_lost_links_are_urgent_for_a_tenth_of_a_second_each() -> None:
    phases = Phases()
    phases.take(Input.ADOPTED, 0.0)
    phases.take(Input.NEXT_HOPS_REMOVED, 1.0)
    phases.pass_time(1.0 + 0.9 * HURRY_S)
    assert phases.urgent
    phases.take(Input.ALL_CONFIRMED, 1.0 + 0.9 * HURRY_S)
    phases.take(Input.REPAIR_ASKED, 1.0 + 0.9 * HURRY_S)
    phases.pass_time(1.0 + 1.8 * HURRY_S)
    assert phases.urgent, "the repair has its own time"
    phases.pass_time(1.0 + 1.95 * HURRY_S)
    assert phases.phase is Phase.STEADY


def test_an_adoption_lasts_until_it_is_over() -> None:
    phases = Phases()
    phases.pass_time(1e9)
    assert phases.adopting
    assert not phases.urgent
