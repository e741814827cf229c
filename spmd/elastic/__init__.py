"""Training that continues when ranks fail or join.

    training = spmd.elastic.Training(state, examples=len(labels), batch=64, epochs=30, build=step_for)
    for step in training:
        with step:
            loss, *state = step.program(*step.state, images[step.rows], labels[step.rows], step.weights)
            step.commit(state)

Started with ``spmd launch --elastic``, such a loop continues when ranks fail: the ``with`` block ends early on the
surviving ranks, they agree on the last step that all of them have finished, and the loop continues with the step after
it on those ranks. Every example of an epoch is counted once. Started in any other way it is an ordinary loop.
"""

from spmd.elastic.members import Change, Member
from spmd.elastic.sampling import RankShare, Schedule
from spmd.elastic.settings import Settings
from spmd.elastic.training import Step, Training

__all__ = ["Change", "Member", "RankShare", "Schedule", "Settings", "Step", "Training"]
