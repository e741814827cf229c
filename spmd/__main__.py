"""``python -m spmd``: the same as the installed ``spmd`` command."""

import sys

from spmd.support import companions


def main() -> int:
    """Runs the command line."""
    companions.check(("launch",))  # before the import that a user's own launch.py would serve
    from launch.cli import main as run  # late: after the check

    return run()


if __name__ == "__main__":
    sys.exit(main())
