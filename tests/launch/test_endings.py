"""What the files of ranks say of how far they have come."""

from pathlib import Path

from collectives import endings


def test_what_happens_behind_the_end_of_a_program_is_no_loss(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f".begun-{rank}").touch()
    assert endings.all_were_lost(tmp_path)
    endings.note_end(tmp_path, 1)
    assert not endings.all_were_lost(tmp_path) and endings.programs_ended(tmp_path) == {1}
    assert endings.ranks_without_ending(tmp_path) == {0, 1}, "the launcher still tells of a rank that is killed then"
