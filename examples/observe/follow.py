"""Follows metrics.jsonl of a run while it is written: what tensorboard_follow.py and wandb_follow.py share.

Needs the standard library alone, and reads alone: the run does not notice.
"""

import json
import os
import pathlib
import signal
import sys
import time

NAME = "metrics.jsonl"


class AnotherRun(Exception):
    """The folder holds another run than at the beginning: the older one was moved aside."""


def arguments_of(parser):
    """What every follower understands; `run` is a path."""
    parser.add_argument("run", type=pathlib.Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--once", action="store_true", help="read what is there and end")
    parser.add_argument("--poll", type=float, default=1, metavar="S", help="seconds between two looks (default 1)")
    arguments = parser.parse_args()
    # So that SIGTERM, like Ctrl-C, ends a follower by way of closing what it has opened.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return arguments


def lines_of(path, once, poll_s):
    """Yields every whole line, as bytes, and None where the file begins anew: it was replaced, as by a run that is
    resumed, or got shorter. A last line without its newline is not whole yet."""
    file, rest = None, b""
    try:
        while True:
            if file is None:
                try:
                    file, rest = open(path, "rb"), b""
                except FileNotFoundError:
                    pass  # Not yet, or being replaced at this moment.
            read = file.read() if file else b""
            *whole, rest = (rest + read).split(b"\n")
            yield from whole
            if read:
                continue
            if once:
                return
            if file and not is_same(file, path):
                file.close()
                file = None
                yield None
                continue
            time.sleep(poll_s)
    finally:
        if file:
            file.close()


def is_same(file, path):
    """Whether the path still is the open file, and nothing of what was read is gone."""
    try:
        there, opened = os.stat(path), os.fstat(file.fileno())
    except FileNotFoundError:
        return False
    return os.path.samestat(there, opened) and opened.st_size >= file.tell()


def first_line(run, once=False, poll_s=1):
    """The first line of the run, as soon as it has one: it stays the same when the run is resumed, and no other run has
    the same. Ends the script where `once` finds none."""
    for line in lines_of(run / NAME, once, poll_s):
        if line:
            return line
    sys.exit(f"{run / NAME}: nothing there\n  fix: name the folder of a run that has ended a step, or leave --once out")


def place_of(step):
    """Steps in the order in which they were trained: a run that is resumed goes back in steps, never in generations."""
    return step.get("generation", 0), step["step"]


def follow(run, once=False, poll_s=1, after=(0, 0)):
    """Yields the figures of each step, a dict, once, behind the place `after`. Whole lines alone are taken; what stands
    there again after a resume is not repeated; steps that are trained again, with a higher generation, come again.

    Raises AnotherRun where another run has begun in the folder."""
    first, begins = None, True
    for line in lines_of(run / NAME, once, poll_s):
        begins = begins or line is None
        if line is None:
            continue
        if begins and first not in (None, line):
            raise AnotherRun(f"another run has begun in {run}\n  fix: start this again to follow it")
        first, begins = first or line, False
        try:
            step = json.loads(line)
            place = place_of(step)
        except (ValueError, TypeError, AttributeError, KeyError):
            continue  # Cut off when a disk was full.
        if place > after:
            after = place
            yield step


def figures(step):
    """What of a step can be drawn: its numbers by name."""
    return {name: value for name, value in step.items()
            if name != "step" and isinstance(value, (int, float)) and not isinstance(value, bool)}


def exit_code_of(send):
    """Calls `send`, which closes what it opens, until it returns or is interrupted."""
    try:
        send()
        return 0
    except KeyboardInterrupt:
        return 0
    except AnotherRun as why:
        print(why, file=sys.stderr)
        return 1
