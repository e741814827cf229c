"""The subcommands of ``spmd``, one module each.

A command is a module of this package, named as it is typed, with three public names:

- ``HELP``: one line for the list of commands;
- ``add_arguments(parser)``: declares its arguments on an ``argparse.ArgumentParser``;
- ``run(args) -> int``: does the work and returns the exit status.

Nothing else registers it: :mod:`launch.cli` lists the package. Commands import what is heavy inside ``run``, so that
``spmd --help`` stays immediate.
"""
