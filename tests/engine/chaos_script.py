"""What chaos.py does to a job, drawn from what there is at the moment, and how each event is seen to be over."""

import contextlib
import functools
import os
import signal
import statistics
import time

from chaos_job import LOSSES, held_by
from run_cases import expect

SILENCE_S, RESOLVED_WITHIN_S, JOIN_TIMEOUT_S = 3, 10, 60
SPARED, PAIRED = 2, 0.25
WAYS_TO_DRAIN = ("signal", "signal", "ctl", "ctl, then a signal")  # Half of them by a signal alone.
KILLED_HEADS, CUTS = 2, 4  # How often they are drawn, as the others in `Script._kinds`.
FEWEST = 4  # Nodes: with fewer of them nobody is taken away.
PEER_DESCRIPTORS = 9  # What a node has open for each other one at most (transport/README.md, "Descriptors"); of a lost one it keeps nothing for long.
NODE_DESCRIPTORS = PEER_DESCRIPTORS + 1  # What the head has open for a node: it is one more peer, and orders it about.
MIB_SLACK, THREADS_SLACK = 48, 8
LONG_QUARTER = 9  # Looks: what is done for the first time, and kept for the next, is done in so many.
HEAD_LOOKS = 12  # From so many on a head has lived through many events.


def more_of(now, before):
    """In words, the kinds of descriptors of which there are more."""
    return ", ".join(f"{count} {kind}" for kind, count in (now - before).most_common())


def middles(values):
    """Of the second quarter, and of the last one. REQUIRES: four values."""
    quarter = len(values) // 4
    return statistics.median(values[quarter:2 * quarter + 1]), statistics.median(values[-quarter:])


def expect_flat(who, held, slacks):
    """Of looks at one process, or at one after the other: the middle of the last quarter is hardly more than that of the second one."""
    quarter = len(held) // 4
    for which, (what, slack) in enumerate(zip(("MiB", "descriptors", "threads"), slacks)):
        before, after = middles([look[which] for look in held])
        expect(after <= 1.1 * before + slack,
               f"{who} holds {after:.0f} {what}, {before:.0f} before: {[round(look[which]) for look in held]}; "
               f"more descriptors at the end: {more_of(held[-1][3], held[quarter][3])}")


def in_figures(look):
    return f"{look[0]:.0f} MiB, {look[1]} descriptors, {look[2]} threads"


class Event:
    """What was done, and whether it is over. Its limit of time counts from `begun`."""

    def __init__(self, text, is_over, begun=None, more_s=0, asked_every_s=0.0):
        self.text, self.begun, self.more_s, self.took = text, begun or time.monotonic(), more_s, None
        self._is_over, self._asked_every_s, self._ask_at = is_over, asked_every_s, 0

    def look(self):
        if self.took is None and time.monotonic() >= self._ask_at:
            self._ask_at = time.monotonic() + self._asked_every_s
            if self._is_over():
                self.took = max(0.0, time.monotonic() - self.begun)


class Script:
    """Draws what happens next from what there is."""

    def __init__(self, bench, job, count, address, link=None):
        self.bench, self.job, self.draw, self.count, self.address, self.link = bench, job, bench.draw, count, address, link
        self.touched, self.told, self.took, self.memory = set(), 0, {}, []
        self.heads = {}  # Of each, by its process, in their order: what was held at each look, and the last step by then.
        self.fewest = []  # Nodes in the job, at least, until each look at memory.
        self.spared, self.most, self.cut_counts_until = [], {}, 0
        self.done = []  # Of the events that come together, those before.
        # Of few events each kind comes once, before more are drawn.
        self.first = ["slow", "cut"] if link else ["kill", "join", "stop", "drain", "head", "head_stop"] if bench.is_few else []

    # ---- the kinds: each does it, and returns the event or None where it cannot be ----------------

    def kill(self):
        number, node = self._victim()
        node.process.kill()
        return self._loss(f"kill {number}", number)

    def stop(self):
        number, node = self._victim()
        seconds = self.draw.uniform(1, self.bench.sleep_s)
        node.is_stopped = True
        os.kill(node.pid, signal.SIGSTOP)
        self.job.later(seconds, lambda: self._wake(node))
        return self._loss(f"stop {number} for {seconds:.1f} s", number, node, seconds)

    def drain(self):
        """By the head's word, a signal, or both within 100 ms: then the process ends in any case, also where the job came to need it."""
        number, node = self._victim()
        seen, way = self.job.last_step(), self.draw.choice(WAYS_TO_DRAIN)
        if "ctl" in way and self.job.ctl("drain", str(number)).returncode != 0:
            return None  # No head, or a layout comes up.
        if way == WAYS_TO_DRAIN[-1]:
            time.sleep(self.draw.uniform(0, 0.09))
        if "signal" in way:
            os.kill(node.pid, signal.SIGTERM)
        self.touched.add(number)
        return Event(f"drain {number} by {way}", lambda: not node.runs() and self.job.last_step() >= seen + 2)

    def join(self):
        """On the host that has fewer nodes."""
        self.joining += 1
        host = 0 if self.link is None else int(2 * sum(node.host for node in self.members.values()) <= len(self.members))
        node = self.job.start_node(self.address, host)
        return Event("join", functools.partial(self._is_member, [node], self.job.head.pid), asked_every_s=0.5)

    def head(self):
        """Another one is started at once, or a little later."""
        told, pause = len(self.job.history), self.draw.choice([0, 0, 1, 3])
        self.job.head.kill()
        self.job.head.wait()
        self.job.pass_without_head(pause)
        is_cut = bool(self.done) and self.done[0].kind == "cut"
        if is_cut and not self.job.is_quiet():  # It may have been mended meanwhile.
            self.link.keep_near_end_up()
        self.job.start_head()
        # Those that are cut off may have all copies of something.
        seen, signs = self.job.last_step(), ["head-lost", "resumed"] if is_cut else ["head-lost"]
        return Event(f"head killed, another after {pause} s", lambda: self.job.last_step() >= seen + 2 and any(
            event["kind"] in signs for event in self.job.history[told:]))

    def head_stop(self):
        seconds, head = self.draw.uniform(1, self.bench.sleep_s), self.job.head
        os.kill(head.pid, signal.SIGSTOP)
        self.job.later(seconds, lambda: os.kill(head.pid, signal.SIGCONT))
        seen = self.job.last_step()
        return Event(f"head stopped for {seconds:.1f} s", lambda: self.job.last_step() >= seen + 3, time.monotonic() + seconds)

    def cut(self):
        """The other host's nodes come too late, or not at all; who was given up leaves when it can be told so."""
        seconds, is_silent, seen = self.draw.uniform(1, 20), self.draw.random() < 0.5, self.job.last_step()
        # What was lost is sent again after twice the time, at worst: somebody may fall silent although the link is mended.
        self.cut_counts_until = time.monotonic() + 2 * seconds + 5
        self.link.cut(is_silent)
        for node in self.job.nodes:  # Who is out, and was not told yet, hears it once the link is mended.
            if node.host != 0:
                node.ends_by = None
        self.job.later(seconds, self.link.mend)
        return Event(f"link {'cut' if is_silent else 'unplugged'} for {seconds:.1f} s", lambda: self.job.last_step() >= seen + 2)

    def slow(self):
        seconds, megabits, seen = self.draw.uniform(3, 15), self.draw.choice([50, 200]), self.job.last_step()
        self.link.slow(megabits)
        self.job.later(seconds, self.link.mend)
        return Event(f"link of {megabits} Mbit/s for {seconds:.1f} s", lambda: self.job.last_step() >= seen + 2, more_s=seconds)

    # ---- what they share ----------------------------------------------------------------------------

    def _wake(self, node):
        node.is_stopped = False
        with contextlib.suppress(ProcessLookupError):
            os.kill(node.pid, signal.SIGCONT)

    def _members(self):
        """Once the head answers."""
        found = {}

        def ask():
            status = self.job.status()
            found.clear()
            found.update(self.job.members(status) if status else {})
            self.tolerance = status["tolerance_left"] if status else 0
            return bool(found)

        self.job.wait_until(ask, "the head answers", self._limit())
        return found

    def _missing(self):
        """Places that no process has."""
        return max(0, self.count - len(self.members) - self.joining)

    def _victim(self):
        number, self.victim = self.draw.choice([member for member in sorted(self.members.items()) if self._is_able(member[1])])
        return number, self.victim

    def _is_able(self, node):
        return node not in self.spared and not node.is_stopped and node.runs() and node is not self.victim

    def _loss(self, text, number, node=None, seconds=0):
        """Over when the job goes on without it, or with it where it slept for so short that nobody minded: neither a head, nor the
        next one, which gathers for longer and may have it come just in time."""
        told, seen = len(self.job.history), self.job.last_step()
        self.touched.add(number)

        def has_slept():
            minds = seconds >= 2 * SILENCE_S * self.bench.patience
            return not node.is_stopped and (not minds or any(event["kind"] == "head-lost" for event in self.job.history[told:]))

        return Event(text, lambda: self.job.last_step() >= seen + 2 and (
            self.job.lost_since(told, number) or (node is not None and has_slept())))

    def _is_member(self, tries, head_pid):
        """Who has nothing yet ends with its head, and is started again."""
        if not tries[-1].runs() and self.job.head.pid != head_pid and len(tries) == 1:
            tries.append(self.job.start_node(self.address, tries[0].host))
        node = tries[-1]
        expect(node.runs(), f"who is to join ended with {node.process.returncode}:\n{node.log.read_text(encoding='utf-8')[-800:]}")
        status = self.job.status()
        return bool(status) and status["phase"] == "training" and node in self.job.members(status).values()

    def _begins_again(self, events):
        """From its checkpoint, as it may where all nodes of a host are lost at once, or cut off from a head that gathers them: it waits for others."""
        said, signs = self.job.last_words(), ["begins again from there"]
        if {"cut", "head"} <= {event.kind for event in events}:
            signs.append("cannot go on: ")
        return self.link is not None and any(said.rfind(sign) > said.rfind("] step ") for sign in signs)

    def _limit(self):
        return self.bench.patience * (SILENCE_S + RESOLVED_WITHIN_S)

    # ---- the whole ----------------------------------------------------------------------------------

    def _kinds(self):
        """Names and weights of what may happen now."""
        able = sum(self._is_able(node) for node in self.members.values())
        kinds = {"head": KILLED_HEADS, "head_stop": 1, "join": 3 * self._missing()}
        if able > 1 and len(self.members) > FEWEST and self.tolerance > 0:
            kinds |= {"kill": 3, "stop": 3, "drain": 2}
        if self.link and self.job.is_quiet():
            kinds["slow"] = 3
            if self.tolerance > 0:  # As many heads fewer as are killed behind a cut.
                kinds |= {"cut": CUTS, "head": KILLED_HEADS - PAIRED * CUTS}
        return kinds

    def _second(self, kinds, first):
        """What may come with it: of the two at most one takes a node, or the head, away; but that the head is killed behind a cut,
        so that no head is there to hear which ways between nodes broke."""
        if first == "cut":
            return {"head": KILLED_HEADS}
        if first == "head_stop":  # It takes its own time.
            return {}
        losses = {"kill", "stop"} if first in ("kill", "stop") else set()
        kinds = kinds | {"head": KILLED_HEADS}
        return {kind: weight for kind, weight in kinds.items() if kind not in losses | {first, "head_stop", "cut"}}

    def next_events(self):
        """One, or two within 100 ms, done."""
        self.members, self.joining, self.victim = self._members(), 0, None
        self.touched = {number for number, node in self.members.items() if node.is_stopped}
        self.spared = [node for node in self.spared if node in self.members.values()] or list(self.members.values())[:SPARED]
        kinds = self._kinds()
        first = next((name for name in self.first if kinds.get(name)), None)
        self.done = done = []
        for choices in (kinds, None):
            if choices is None:
                if not done or self.draw.random() > PAIRED:
                    break
                time.sleep(self.draw.uniform(0, 0.09))
                choices = self._second(kinds, name)
            if not any(choices.values()):
                break
            name = first if first in choices and not done else self.draw.choices(list(choices), list(choices.values()))[0]
            event = getattr(self, name)()
            if event is None:
                continue
            self.first = [kind for kind in self.first if kind != name]
            event.kind = name
            done.append(event)
            if name == "head":  # Nothing can be dealt with before there is one.
                for other in done:
                    other.begun = max(other.begun, event.begun)
                if done[0].kind == "cut":  # It gathers those that it reaches, and tells then who is lost.
                    self.cut_counts_until = max(self.cut_counts_until, event.begun + self._limit())
        return done

    def await_end_of(self, events):
        """What comes with a slow link has as much more time as that: state of newcomers goes over it."""
        step = self.job.last_step()
        more_s = max(event.more_s for event in events)
        while any(event.took is None for event in events):
            self.job.sleep(0.05)
            for event in events:
                event.look()
                within_s = self._limit() + self.bench.patience * (JOIN_TIMEOUT_S if self._begins_again(events) else more_s)
                expect(event.took is not None or time.monotonic() < event.begun + within_s,
                       f"not over after {time.monotonic() - event.begun:.1f} s: {event.text} (of: {', '.join(one.text for one in events)})\n"
                       f"{self.job.last_words()}")
        if any(event.kind == "cut" for event in events):
            self.job.wait_until(self.job.is_quiet, "the link is mended", 60)
        for event in events:
            self.took.setdefault(event.kind, []).append(event.took)
        print(f"  step {step}: " + ", ".join(f"{event.text}: {event.took:.1f} s" for event in events), flush=True)

    def look_around(self):
        """Nobody was lost without a reason; who is out of the job is to end; how much the others hold, and the head."""
        for event in self.job.history[self.told:]:
            lost = set(event["nodes"]) - self.touched if event["kind"] in LOSSES[:2] else set()
            expect(not lost or time.monotonic() < self.cut_counts_until, f"lost, though nothing was done to {lost}: {event}\n{self.job.last_words()}")
            if event["kind"] == "resumed":
                expect(self.link, f"it went back to a checkpoint: {event}\n{self.job.last_words()}")
        self.told = len(self.job.history)
        self.members = self._members()
        for node in self.job.nodes:
            is_in = node in self.members.values()
            if is_in:
                node.ends_by = None
            elif node.runs() and not node.is_stopped and node.ends_by is None and self.job.is_quiet():
                node.ends_by = time.monotonic() + self._limit()
        self.job.expect_ended()
        self.memory.append({node.pid: held_by(node.pid) for node in self.spared if node.runs()})
        self.heads.setdefault(self.job.head.pid, []).append((*held_by(self.job.head.pid), self.job.last_step()))
        self.fewest.append(min([len(self.members), *self.fewest[-1:]]))
        self.tell_growth()

    def tell_growth(self):
        """Behind which event a node, or the head, came to have more descriptors open than before, by what two peers take, and of which kinds."""
        newest = [("head", pid, looks[-1]) for pid, looks in list(self.heads.items())[-1:]]
        for who, pid, look in [*(("process", pid, look) for pid, look in self.memory[-1].items()), *newest]:
            most = self.most.setdefault(pid, look)
            if look[1] >= most[1] + 2 * PEER_DESCRIPTORS:
                print(f"  {who} {pid}: {look[1]} descriptors, {most[1]} at most before; more: {more_of(look[3], most[3])}", flush=True)
                self.most[pid] = look

    def slowest(self):
        """Of each kind of event how long the slowest one took, and how many there were."""
        return {kind: {"s": round(max(took), 1), "of": len(took)} for kind, took in sorted(self.took.items())}

    def more_of_work(self, held, begin):
        """MiB more, from look `begin` on, behind each at which there were fewer nodes than ever: who is left does all the work, and the
        allocator keeps what that took. `held`: numbers of looks, and MiB."""
        more = 0
        for place in range(begin + 1, len(held) - 1):
            if self.fewest[held[place][0]] < self.fewest[held[place - 1][0]]:
                before, after = (statistics.median(mib for _, mib in looks) for looks in (held[place - 4:place], held[place + 1:place + 5]))
                more += max(0, after - before)
        return more

    def check_memory(self):
        """Of nodes that were there all the time: the middle of the last quarter is hardly more than that of the second one, but for
        what came when fewer nodes than ever had all the work. Of descriptors there may be more by those of all peers, where few were
        there before. Returns how many MiB each had then and at the end."""
        told = []
        for pid in self.memory[-1]:
            held = [look[pid] for look in self.memory if pid in look]
            quarter = len(held) // 4
            if quarter == 0:
                continue
            slacks = (240, 128, THREADS_SLACK)
            if quarter >= LONG_QUARTER:
                work = self.more_of_work([(at, look[pid][0]) for at, look in enumerate(self.memory) if pid in look], 2 * quarter)
                slacks = (MIB_SLACK + work, PEER_DESCRIPTORS * (self.count - 1), THREADS_SLACK)
            expect_flat(f"process {pid}", held, slacks)
            print(f"  process {pid}: {in_figures(held[quarter])}; at the end "
                  f"{held[-1][0]:.0f}, {held[-1][1]}, {held[-1][2]}", flush=True)
            told.append([round(held[quarter][0]), round(held[-1][0])])
        return told

    def check_heads(self):
        """The same of heads, by the slack of nodes that were there for long: of each that lived through `HEAD_LOOKS` looks or more, and
        where there are many looks, of one head after the other as if they were one. A head has no state that comes for the first time,
        and its work does not grow where nodes are fewer.

        All that a head keeps of steps has an end, and one that takes over has no more in memory than the ends of files that grow with
        steps: 4,096 learned factors at most in each of two tables (balancer/corrections/shape_factors.hpp; 0.6 MiB), 24 bytes of each step
        that is in a trace, which is thinned at 100 MB (runtime/observe/trace_writer.cpp; some 40 KiB of 800 steps), the ratios of 1,024 steps
        (engine/profiling/profile_check.cpp), the times of 50 (runtime/observe/time_left.cpp) and of 20 for each node
        (actors/supervisor/slow_nodes.hpp), two steps under way, and twice the id of each bad sample, which the data bound
        (actors/coordination/step_loop.hpp, engine/run/run_folder.hpp). Of events 24 bytes each, of a mark in the trace, and as much of each
        process that ever joined (transport/links.hpp). Together that is below 1 MiB here: the slack is for what allocators and the
        transport keep. Lives of heads are short: what takes long to show in one, as a MiB an event, is to be read from KiB a step,
        which each run tells.

        Returns of the one that was looked at over most steps how many MiB it held in its second quarter and at the end, over how
        many steps, KiB a step, and how many heads there were; empty where none lived for so long."""
        slacks, longest = (MIB_SLACK, NODE_DESCRIPTORS * self.count, THREADS_SLACK), {}
        for pid, looks in self.heads.items():
            if len(looks) < HEAD_LOOKS:
                continue
            expect_flat(f"head {pid}", looks, slacks)
            (before, after), (first, last) = (middles([look[which] for look in looks]) for which in (0, 4))
            steps, each = round(last - first), round(1024 * (after - before) / max(1, last - first), 1)
            print(f"  head {pid}, {len(looks)} looks: {in_figures(looks[len(looks) // 4])}; at the end "
                  f"{looks[-1][0]:.0f}, {looks[-1][1]}, {looks[-1][2]}; {each:+} KiB a step in {steps} steps", flush=True)
            if not longest or steps > longest["steps"]:
                longest = {"mib": [round(before), round(after)], "steps": steps, "kib_per_step": each, "of": len(self.heads)}
        every = [look for looks in self.heads.values() for look in looks]
        if len(every) // 4 >= LONG_QUARTER:
            expect_flat("one head after the other", every, slacks)
        return longest
