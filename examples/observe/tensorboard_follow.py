#!/usr/bin/env python3
"""Writes the figures of a run as scalars for TensorBoard, while it trains.

    tensorboard_follow.py RUN [--once] [--to DIR]      default: RUN/tensorboard
    tensorboard --logdir RUN/tensorboard

Needs tensorboardX, or TensorBoard and PyTorch. Ends on Ctrl-C, or with --once when all that is there was written.
"""

import argparse
import pathlib
import sys

from follow import arguments_of, exit_code_of, figures, first_line, follow


def writer_class():
    """Not named at the top, so that --help and the message below need no library."""
    try:
        from tensorboardX import SummaryWriter
        return SummaryWriter
    except ImportError:
        pass
    try:
        from torch.utils.tensorboard import SummaryWriter
        return SummaryWriter
    except ImportError:
        sys.exit("neither tensorboardX nor torch.utils.tensorboard can be imported\n"
                 "  fix: pip install tensorboardX (small), or torch and tensorboard")


class Scalars:
    """A file of events for each part of a run that goes on without a break."""

    def __init__(self, folder):
        self.make, self.folder = writer_class(), folder
        self.writer, self.files, self.last = None, 0, 0

    def add(self, step):
        number = step["step"]
        if self.writer is None or number <= self.last:
            # Trained again after a resume, or by this script anew: TensorBoard drops what older files say from here on.
            self.close()
            self.files += 1
            self.writer = self.make(str(self.folder), purge_step=number, flush_secs=10,
                                    filename_suffix=f".{self.files:04}")
        for name, value in figures(step).items():
            self.writer.add_scalar(name, value, number)
        self.last = number

    def close(self):
        if self.writer is not None:
            self.writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=pathlib.Path, metavar="DIR", help="where to write (default RUN/tensorboard)")
    arguments = arguments_of(parser)

    def send():
        scalars = Scalars(arguments.to or arguments.run / "tensorboard")
        first_line(arguments.run, arguments.once, arguments.poll)
        try:
            for step in follow(arguments.run, arguments.once, arguments.poll):
                scalars.add(step)
        finally:
            scalars.close()

    return exit_code_of(send)


if __name__ == "__main__":
    sys.exit(main())
