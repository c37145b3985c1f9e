#!/usr/bin/env python3
"""Sends the figures of a run to Weights & Biases, while it trains.

    wandb_follow.py RUN [--once] [--project NAME] [--id ID]

Needs wandb, and `wandb login` or WANDB_MODE=offline. Ends on Ctrl-C, or with --once when all that is there was sent.
Started again, it goes on where it was.
"""

import argparse
import hashlib
import sys

from follow import arguments_of, exit_code_of, figures, first_line, follow


def library():
    """Not named at the top, so that --help and the message below need no library."""
    try:
        import wandb
        return wandb
    except ImportError:
        sys.exit("wandb cannot be imported\n  fix: pip install wandb")


def own_id(run, line):
    """The same for a run that is resumed, another one for a new run in the same folder."""
    return f"{run.resolve().name}-{hashlib.sha256(line).hexdigest()[:8]}"


def open_there(wandb, arguments):
    """The run there, and the place of the last step that it has."""
    name = own_id(arguments.run, first_line(arguments.run, arguments.once, arguments.poll))
    there = wandb.init(project=arguments.project, id=arguments.id or name, name=arguments.run.resolve().name,
                       resume="allow")
    # W&B's own step never goes back, which a run does that is resumed. So ours is a figure, and the axis of all others.
    there.define_metric("step")
    there.define_metric("*", step_metric="step")
    if not there.resumed:
        return there, (0, 0)
    return there, (there.summary.get("generation") or 0, there.summary.get("step") or 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--project", default="troupe", help="where it belongs there (default troupe)")
    parser.add_argument("--id", help="of the run there (default: made of its folder and its first step)")
    arguments = arguments_of(parser)

    def send():
        there, sent = open_there(library(), arguments)
        try:
            for step in follow(arguments.run, arguments.once, arguments.poll, after=sent):
                there.log({"step": step["step"], **figures(step)})
        finally:
            there.finish()

    return exit_code_of(send)


if __name__ == "__main__":
    sys.exit(main())
