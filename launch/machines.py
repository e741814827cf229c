"""The machine and the network that a command predicts for."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collectives.network import Network
    from spmd.predict.machine import Machine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--machine", metavar="FILE", help="a file of spmd calibrate (default: $SPMD_MACHINE, or a nominal core)"
    )
    parser.add_argument(
        "--topology", metavar="FILE", help="a file of the network's levels (default: $SPMD_TOPOLOGY, or one machine)"
    )


def chosen(args: argparse.Namespace) -> "tuple[Machine, Network | None]":
    """Return the machine, and the network if processes are on more than one."""
    from spmd.predict.machine import default_machine, read_machine
    from spmd.predict.topology import default_network, read_topology

    machine = default_machine() if args.machine is None else read_machine(args.machine)
    if args.topology is None:
        return machine, default_network(machine)
    return machine, read_topology(args.topology, machine.rates["folding"])
