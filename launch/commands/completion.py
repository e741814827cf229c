"""``spmd completion``: print a script by which a shell completes subcommands, options and file names."""

import argparse

HELP = 'print a shell\'s completion script: eval "$(spmd completion bash)"'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh"), help="the shell that the script is for")


def run(args: argparse.Namespace) -> int:
    import spmd
    from launch.cli import whole_parser

    try:
        import shtab
    except ImportError:
        raise spmd.UsageError("completion needs shtab: pip install 'spmd[completion]'") from None
    print(shtab.complete(whole_parser(), args.shell))
    return 0
