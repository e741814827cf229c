"""The subcommands of ``spmd``, one module each.

A command is a module of this package, named as it is typed, with three public names:

- ``HELP``: one line for the list of commands;
- ``add_arguments(parser)``: declares its arguments on an ``argparse.ArgumentParser``;
- ``run(args) -> int``: executes the command and returns the exit status.

No other registration is needed: :mod:`launch.cli` lists the package. Commands import heavy modules inside ``run``, so
that ``spmd --help`` stays fast.
"""
