"""One long job that is disturbed again and again: it trains what it would have trained, and nothing is left of it.

    chaos.py BINARY [CASE...]          prints `N passed, M failed, K skipped` last
    chaos.py --events N --seed S       so many events instead of 15, drawn from another seed than 1 (scripts/test --chaos: 200, by 1, 2 and 3)
    chaos.py --late MS                 devices complete their work up to so many milliseconds late, so that what is given up is in the middle of
                                       something (scripts/test --chaos: 0.4 of seed 3); the reference's are prompt
    chaos.py --keep FOLDER             what a failed case wrote stays there
    chaos.py --record FILE             a line of JSON for each case is appended there: what it was, and what came of it (kept_records.py)
    chaos.py --patience X              all limits of time, the job's own too, are X times as long: where others keep the machine busy

configs/real-mini.toml in fp64, one node may be lost, all processes started by hand: eight nodes of this machine, and six of
two hosts in network namespaces (a third as many events) whose link is cut or slow for a while. A script drawn from the seed
kills nodes, stops them for 1 to 20 s, lets them leave (by `troupe ctl`, a signal, or both within 100 ms) and others join, kills and
stops the head; a quarter of the events have a second one within 100 ms behind them, a cut none but a killed head. Of two at most one
takes a node away: more than the job promises to bear is comeback.py's. What was ordered and refused is no event. Of few
events (scripts/test) each kind comes at least once, who sleeps does so for 8 s at most, samples are the shorter ones, at
most two windows are looked at, and all must be over within five minutes. Where ../shared/data is not, samples are what `troupe data make` makes,
and the record says so. Held against what is promised:

- Each event is over within 10 s beyond the time after which silence counts: two more steps are trained, who left is told in
  the events, who joined takes part. Nobody is lost whom nothing was done to. The eight never go back to a checkpoint; the
  six may where a whole host is cut off, also from a head that gathers the others, with the time that starting again takes.
- Whoever is out of the job ends, all end when it stops, and neither processes nor shared memory are left behind.
- Two nodes that nothing is ever done to hold as much memory, as many descriptors and threads in the last quarter as in the second
  one, but for what came when fewer nodes than ever had all the work (not excepted until 30 November 2026, when two of six nodes kept
  80 MiB of it, flat from then on: 387 where 385.7 were allowed). Of few events a quarter is short, and what moving state takes
  for the first time, the transport keeps: the bound is wide there. Descriptors may be more by what all other nodes take, which may
  have been few before; behind which event they grew, and of which kinds they are, is told.
- So does each head that lived through a dozen looks, one behind each event or pair, and over a long run one head after the other (`Script.check_heads`
  says what heads keep of steps). What each came to hold a step is told.
- Each sample was trained once, each step is told once.
- Windows of 20 steps around events equal the reference, a few of them as far as rounding goes (chaos_oracle.py). An event has one of its own
  where that of the events before it is over: each comes within some.
- The whole is no farther from two undisturbed runs on other layouts than ten times what these differ.

200 events of one seed took 34 minutes on two cores when three in ten of them had a window: 12 the events, the rest the oracle.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), *(str(ROOT / "tests" / name) for name in ("engine", "actors", "support"))]

from chaos_job import STOP_TIMEOUT_S, ChaosJob, Link, Machine  # noqa: E402
from chaos_oracle import SAVED_EVERY, WINDOW, Oracle  # noqa: E402
from chaos_script import JOIN_TIMEOUT_S, SILENCE_S, Script  # noqa: E402
from free_port import free_port  # noqa: E402
import kept_records  # noqa: E402
from left_behind import LeftBehind  # noqa: E402
from parity_data import UnevenData, rows_and_tones  # noqa: E402
from parity_layouts import REPLICAS  # noqa: E402
from parity_matrix import POLICIES, SCHEDULES  # noqa: E402
from recovery import pipelines  # noqa: E402
from run_cases import Failure, run_cases  # noqa: E402
from whole_jobs import Hosts  # noqa: E402

JOB = ROOT / "configs" / "real-mini.toml"
DATA = ROOT.parent / "shared" / "data" / "real-mini"
# The rate stays: how many steps there will be is not known. At 1e-3, as it was, runs of two layouts that nothing disturbed were
# up to 3e-3 apart after 20 steps once the job was 300 steps old, and 15 of 31 windows showed nothing.
TRAINS = ["train.dtype=fp64", "train.global_batch_size=8", "train.microbatches=2", "optimizer.lr=1e-4", "optimizer.min_lr=1e-4"]
CLUSTER = ["cluster.local_nodes=0", "cluster.fault_tolerance=1", "recovery.wait_for_nodes_s=5", "debug.parameter_hashes=true",
           f"checkpoint.every_steps={SAVED_EVERY}", "checkpoint.keep_last=0"]
TIMEOUTS_S = {"heartbeat": SILENCE_S, "head": 60, "join": JOIN_TIMEOUT_S, "stop": STOP_TIMEOUT_S}
EIGHT = [pipelines([0, 1, 2], [3, 4, 5], [6, 7]), pipelines([0, 1, 2, 3], [4, 5, 6, 7]), pipelines([0], [1, 2], [3, 4], [5, 6, 7]),
         REPLICAS["5-3"]]
# One copy of the model adds up the same bits however it is cut: these have two and three.
UNDISTURBED = [pipelines([0], [1]), pipelines([0], [1], [2])]
FEW, SEED = 15, 1  # As scripts/test has it: the same every day, so that a failure is a change's.
MANY = 50  # Events; fewer are few.
WINDOWS_OF_FEW, SLEEP_S_OF_FEW, WITHIN_S_OF_FEW = 2, 8, 300
SHORT = 100  # Characters (a row each) of a sample of few events; two thirds of what samples have on average.


def is_layout(word):
    return not word.startswith("cluster.")


def device_words(arguments):
    """What the disturbed job is told of its devices, and no run that it is compared with."""
    return [] if arguments.late is None else [f"debug.delayed_device_ms={arguments.late:g}"]


def is_short(sample):
    """Of few events, steps are to take less long: a clip is a word of the text, too."""
    return sum(len(turn["value"]) for turn in sample["conversations"]) <= SHORT


def samples_name():
    """What a record says of the samples: those that are made are shorter, and steps of them take about half as long."""
    return DATA.name if DATA.is_dir() else "made samples"


def data_words(binary, folder, is_few):
    """What names the samples: the job file's own, or where this machine has them not, such as `troupe data make` makes."""
    file = folder / "samples.json"
    media = DATA if DATA.is_dir() else folder / "data"
    if DATA.is_dir() and not is_few:
        print(f"  all samples of {DATA}", flush=True)
        return []
    if not file.exists():  # By another case.
        if DATA.is_dir():
            samples = [sample for sample in json.loads((DATA / "samples.json").read_text(encoding="utf-8")) if is_short(sample)]
        else:
            made = UnevenData(binary, media).samples
            samples = sorted(made, key=rows_and_tones)[:len(made) // 2]
        file.write_text(json.dumps(samples), encoding="utf-8")
        print(f"  {len(samples)} samples of {media}" + ("" if DATA.is_dir() else f", made for want of {DATA}"), flush=True)
    return [f'data.sources=[{{format="llava",json="{file}",media="{media}"}}]']


class Bench:
    def __init__(self, binary, folder, arguments, numbers):
        self.binary, self.folder, self.arguments, self.numbers = binary, folder, arguments, numbers
        self.patience, self.events = arguments.patience, arguments.events
        self.draw, self.is_few = random.Random(arguments.seed), self.events < MANY
        self.sleep_s = SLEEP_S_OF_FEW if self.is_few else 20
        self.numbers |= {"seed": arguments.seed, "samples": samples_name()}
        # What names the samples comes before the profile: its costs are of them.
        self.job = [str(JOB), *TRAINS, *data_words(binary, folder, self.is_few)]
        profile = arguments.profile or folder / "profile.json"
        if not profile.exists():  # By another case.
            subprocess.run([str(binary), "profile", *self.job, "--out", str(profile), "--budget", "3"], check=True,
                           capture_output=True, timeout=self.patience * 300)
        self.job += [f"scheduler.profile={profile}"]

    def run_in_time(self, case):
        """Of few events the whole case has an end, whatever waits for what."""
        within = self.patience * WITHIN_S_OF_FEW if self.is_few else 0

        def end_late(*_):
            raise Failure(f"not over within {within:.0f} s")

        before = signal.signal(signal.SIGALRM, end_late)
        signal.setitimer(signal.ITIMER_REAL, within)
        try:
            case(self)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def run(self, name, count, events, layout, place, link=None):
        schedule, policy = self.draw.choice(SCHEDULES), self.draw.choice([policy for policy in POLICIES if policy != "auto"])
        print(f"  {name}, {events} events: {schedule}, {policy}; {layout[0][:120]}", flush=True)
        address = f"{place.address}:{free_port()}"
        words = [*self.job, *CLUSTER, *device_words(self.arguments), *filter(is_layout, layout), f"cluster.nodes={count}",
                 f"cluster.listen={address}", "train.steps=1000000", f"scheduler.schedule={schedule}", f"balancer.policy={policy}",
                 *(f"cluster.{what}_timeout_s={self.patience * seconds}" for what, seconds in TIMEOUTS_S.items())]
        left = LeftBehind(self.folder / name)
        job = ChaosJob(self.binary, self.folder / name, words, place, self.patience)
        try:
            job.start_head()
            for number in range(count):
                job.start_node(address, 0 if link is None else number // (count // 2), number)
            oracle = Oracle(job.binary, job.folder, self.job, job.run, self.patience, WINDOWS_OF_FEW if self.is_few else None)
            script = Script(self, job, count, address, link)
            job.wait_until(lambda: job.saved_steps(), "the first checkpoint", 300 * self.patience)
            done = 0
            while done < events:
                job.sleep(self.draw.choice([0, 0.2, 1]) * self.draw.random())
                oracle.watch(job.last_step())
                happened = script.next_events()
                script.await_end_of(happened)
                script.look_around()
                oracle.look()
                done += len(happened)
                self.numbers |= {"events": done, "steps": job.last_step(), "slowest": script.slowest()}
            job.wait_until(job.is_quiet, "all that was stopped is awake", 60)
            steps = self.end(job, script, oracle)
            left.expect_nothing()
            self.numbers["memory_mib"] = script.check_memory()
            self.numbers["head"] = script.check_heads()
            self.judge(oracle, steps, script)
        finally:
            job.close()

    def end(self, job, script, oracle):
        goal = job.last_step() + SAVED_EVERY + (0 if self.is_few else WINDOW)

        def is_over():
            oracle.look()
            return job.last_step() >= goal and not oracle.is_open()

        job.wait_until(is_over, f"step {goal}, and the end of the last window", 300 * self.patience)
        script.look_around()
        job.wait_until(lambda: not any(node.runs() and node.ends_by for node in job.nodes), "all that are out of the job end", 60 * self.patience)
        return job.stop()

    def judge(self, oracle, steps, script):
        slowest = ", ".join(f"{kind} {took['s']:.1f} s of {took['of']}" for kind, took in script.slowest().items())
        print(f"  {steps} steps; slowest: {slowest}", flush=True)
        self.numbers["steps"] = steps
        oracle.check_samples(steps)
        windows, beyond, worst = oracle.check_windows(UNDISTURBED)
        self.numbers |= {"windows": windows, "by_rounding": beyond, "worst_parameters": worst[0], "worst_losses": worst[1]}
        print(f"  {windows} windows equal the reference, {beyond} of them as far as rounding goes: parameters within {worst[0]:.2g}, "
              f"losses within {worst[1]:.2g}", flush=True)
        off, apart = oracle.check_whole(steps, UNDISTURBED)
        self.numbers |= {"off": off, "apart": apart}
        print(f"  after {steps} steps off by {off:.2g} from undisturbed runs, which differ by {apart:.2g}", flush=True)


# ---- cases ----------------------------------------------------------------------------------------


def eight_nodes_of_one_machine(bench):
    bench.run("eight", 8, bench.events, bench.draw.choice(EIGHT), Machine())


def six_nodes_of_two_hosts(bench):
    with Hosts(2) as hosts:
        link = Link(hosts)
        bench.run("six", 6, max(5, bench.events // 3), pipelines([0, 1, 2], [3, 4, 5]), link, link)


CASES = [eight_nodes_of_one_machine, six_nodes_of_two_hosts]


def end_in_order(*_):
    """So that nothing is left behind where somebody ends the script."""
    raise SystemExit(143)


def read_arguments(words):
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--events", type=int, default=FEW)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--late", type=float, metavar="MS")
    parser.add_argument("--patience", type=float, default=float(os.environ.get("TROUPE_CHAOS_PATIENCE", 1)))
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--profile", type=pathlib.Path, help="costs that were measured before")
    kept_records.add_argument(parser)
    return parser.parse_args(words)


def main():
    arguments = read_arguments(sys.argv[1:])
    signal.signal(signal.SIGTERM, end_in_order)
    signal.signal(signal.SIGHUP, end_in_order)
    print(f"seed {arguments.seed}", flush=True)
    cases = [case for case in CASES if not arguments.cases or any(word in case.__name__ for word in arguments.cases)]
    code, binary = 1, arguments.binary.resolve()
    keeper = kept_records.Keeper(arguments.record, sys.argv, binary)

    def run(case):
        keeper.keep(case.__name__, lambda numbers: Bench(binary, folder, arguments, numbers).run_in_time(case))

    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="troupe-chaos-", dir=arguments.keep))
    try:
        code = run_cases(cases, run)
    finally:
        if code == 0 or arguments.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"what it wrote lies in {folder}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
