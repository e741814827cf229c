"""Training that outlives its ranks.

    training = spmd.elastic.Training(state, examples=len(labels), batch=64, epochs=30, build=step_for)
    for step in training:
        with step:
            loss, *state = step.program(*step.state, images[step.rows], labels[step.rows], step.weights)
            step.commit(state)

Started with ``spmd launch --elastic``, such a loop goes on when ranks are lost: the block of ``with`` ends early on
those that live, they agree on the last step that all of them have finished, and the next turn of the loop is the one
behind it, on the ranks that are left. Every example of an epoch is counted once. Started in any other way it is a loop
as any other.
"""

from spmd.elastic.members import Change, Member
from spmd.elastic.sampling import RankShare, Schedule
from spmd.elastic.settings import Settings
from spmd.elastic.training import Step, Training

__all__ = ["Change", "Member", "RankShare", "Schedule", "Settings", "Step", "Training"]
