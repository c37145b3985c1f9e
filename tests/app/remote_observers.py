#!/usr/bin/python3
"""Who looks at a job from another process: `troupe observe`, and a program of the user's own that is built against what is
installed. What it sees is what an observer in the nodes sees, and nothing that it does disturbs the job.

    remote_observers.py BINARY [CASE...]      BINARY lies in the build folder that is installed from
"""

import contextlib
import filecmp
import json
import math
import os
import signal
import subprocess
import sys
import time

from observer_plugins import ObserverBench
from plugins import Bench, Running, children, main, ran
from tests.support.free_port import free_port
from tests.support.recorded_runs import read_lines, read_lines_so_far
from tests.support.run_cases import expect
from whole_jobs import lines_of

WITHIN_S = 90

# Its observer writes a line for each part, with a hash of its bits. `own look JOB FILE [key=value...]` shows another job's to it,
# `own` with any other word is troupe. `own actor JOB` is a listener without `troupe::watch`.
OWN = r"""
#include <caf/all.hpp>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <stdexcept>
#include <thread>
#include "app/observing_hub.hpp"
#include "app/program.hpp"
#include "app/watch.hpp"
using namespace troupe;
using namespace troupe::observers;

struct Bits final : Observer {
  Bits(const std::string& file, int slow_ms, bool throws) : lines(file, std::ios::app), slow_ms(slow_ms), throws(throws) { lines.precision(17); }
  void see(const Observed& part) override {
    if (throws) throw std::runtime_error("of its own accord");
    std::this_thread::sleep_for(std::chrono::milliseconds(slow_ms));
    const std::size_t each = part.values.dtype() == Dtype::fp64 ? 8 : part.values.dtype() == Dtype::fp32 ? 4 : 2;
    std::uint64_t hash = 1469598103934665603ull;
    for (std::size_t i = 0; i < part.values.size() * each; ++i)
      hash = (hash ^ static_cast<const unsigned char*>(part.values.data())[i]) * 1099511628211ull;
    double sum = 0;
    for (std::size_t i = 0; i < part.values.size(); ++i) sum += part.values[i];
    lines << "{\"step\":" << part.step << ",\"module\":\"" << part.module << "\",\"kind\":" << int(part.kind) << ",\"replica\":" << part.replica
          << ",\"microbatch\":" << part.microbatch << ",\"part\":" << part.part << ",\"width\":" << part.width << ",\"ids\":[";
    for (std::size_t s = 0; s < part.ids.size(); ++s) lines << (s ? "," : "") << "[\"" << part.ids[s] << "\"," << part.rows[s] << "]";
    lines << "],\"size\":" << part.values.size() << ",\"hash\":\"" << hash << "\",\"sum\":" << sum << "}\n";
  }
  void see(const ObservedStep& step) override {
    lines << "{\"step\":" << step.step << ",\"committed\":" << step.committed << ",\"loss\":" << step.loss << ",\"trained\":" << step.trained_tokens
          << ",\"samples\":" << step.ids.size() << "}\n" << std::flush;
  }
  void end() override { lines << "{\"end\":1}\n" << std::flush; }
  std::ofstream lines;
  int slow_ms;
  bool throws;
};

struct Asleep final : Observer {
  void see(const Observed&) override { for (;;) std::this_thread::sleep_for(std::chrono::hours(1)); }
};

struct Clinging final : Observer {
  ~Clinging() override { for (;;) std::this_thread::sleep_for(std::chrono::hours(1)); }
  void see(const Observed&) override {}
};

int told(const Error& error) {
  std::cerr << to_string(error) << "\n";
  return exit_code(error);
}

int look(int count, char** words) {
  std::map<std::string, std::string> asked;
  for (int i = 4; i < count; ++i) {
    const std::string word = words[i];
    asked[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  }
  const auto number = [&](const std::string& name, int otherwise) { return asked.count(name) ? std::atoi(asked[name].c_str()) : otherwise; };
  Bits bits(words[3], number("slow", 0), number("throws", 0) > 0);
  WatchOptions options;
  options.what.module = asked["module"];
  options.what.gradients = options.what.losses = number("all", 1) > 0;
  options.what.every_steps = number("every", 1);
  options.what.queue = number("queue", 1000);
  options.steps = number("steps", 0);
  options.patience_s = number("patience", 10);
  const auto watched = watch(words[2], bits, options);
  if (!watched.ok()) return told(watched.error());
  const auto& how = watched.value();
  std::cout << "{\"job\":\"" << how.job << "\",\"steps\":" << how.steps << ",\"parts\":" << how.parts << ",\"missed\":" << how.missed
            << ",\"over\":" << how.is_over << ",\"code\":" << how.exit_code << "}" << std::endl;
  return 0;
}

int actor(const std::string& job) {
  const auto settings = observing_settings();
  caf::actor_system system(*settings);
  auto hub = find_observing_hub(system, job);
  if (!hub.ok()) return told(hub.error());
  caf::scoped_actor self(system);
  actors::ListenRequest request;
  request.who = "an actor";
  request.rows = false;
  self->request(hub.value(), std::chrono::seconds(10), actors::listen_atom::value, request)
      .receive([](const actors::ListenWelcome&) {}, [](const caf::error&) { std::exit(1); });
  // Rubbish, as far as types allow it.
  for (std::int32_t node = -3; node < 5; ++node) self->send(hub.value(), actors::took_atom::value, node, ~std::uint64_t{0});
  self->send(hub.value(), actors::SeenPiece{});
  self->send(hub.value(), actors::here_atom::value, std::int32_t{1});
  int steps = 0;
  while (steps < 6)
    self->receive([&](actors::SeenStep& step) { ++steps, std::cout << step.step << std::endl; },
                  caf::after(std::chrono::seconds(30)) >> [] { std::exit(2); });
  hub = Error{};
  return 0;
}

int main(int count, char** words) {
  const std::string command = count > 1 ? words[1] : "";
  if (command == "look") return look(count, words);
  if (command == "actor") return actor(words[2]);
  return run_program(count, words, []() -> Status {
    auto added = register_observer({"asleep", [](const Place&) {
      while (std::getenv("OWN_ASLEEP") != nullptr) std::this_thread::sleep_for(std::chrono::hours(1));
      return std::make_unique<Asleep>(); }});
    if (!added.ok()) return added;
    added = register_observer({"clinging", [](const Place&) { return std::make_unique<Clinging>(); }});
    if (!added.ok()) return added;
    return register_observer({"bits", [](const Place& place) {
      return std::make_unique<Bits>(place.folder / ("node-" + std::to_string(place.node)), 0, false); }});
  });
}
"""
BUILD = """cmake_minimum_required(VERSION 3.25)
set(CMAKE_BUILD_TYPE Release CACHE STRING "")
project(own LANGUAGES CXX)
find_package(troupe REQUIRED COMPONENTS engine)
troupe_program(own main.cpp)
"""
STAGES = "parallel.pipelines=[{stages=[" + ",".join(('{node=0,vision=[0,2]}', '{node=1,vision=[2,4],audio="all",llm="all"}')) + "]}]"


class RemoteBench(Bench):
    example, library_name = ObserverBench.example, ObserverBench.library_name

    def __init__(self, *arguments):
        super().__init__(*arguments)
        source = self.folder / "own"
        source.mkdir()
        (source / "main.cpp").write_text(OWN)
        (source / "CMakeLists.txt").write_text(BUILD)
        self.own = self.built(source) / "own"
        self.processes = []

    def job(self, name, *words, steps=60):
        """Over two stages, each of a node; of the program whose observers are linked in."""
        words = [*(word for word in self.words() if not str(word).startswith("plugins.")), "observe.observers=[]", "plugins.libraries=[]",
                 STAGES, f"job.run_dir={self.folder / name}", f"train.steps={steps}", *words]
        return [str(word) for word in (self.own, "train", *words)]

    def unseen(self, *words, steps=60):
        name = f"unseen-{steps}"
        if not (self.folder / name).exists():
            ran(self.job(name, *words, steps=steps))
        return self.folder / name

    def same_bits(self, name, steps=60):
        models = [run / "model" / "model.safetensors" for run in (self.unseen(steps=steps), self.folder / name)]
        expect(filecmp.cmp(*models, shallow=False), f"{name}: who looked changed what was trained")

    def log(self, name):
        return (self.folder / name / "train.log").read_text()

    def start(self, *command, **options):
        process = subprocess.Popen([str(word) for word in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        self.processes.append(process)
        return process

    def look(self, job, name, *words, **options):
        return self.start(self.own, "look", job, self.folder / f"{name}.lines", *words, **options)

    def seen(self, name):
        """Parts, and words on steps, as the program wrote them."""
        lines = read_lines_so_far(self.folder / f"{name}.lines")
        return [line for line in lines if "hash" in line], [line for line in lines if "committed" in line]

    @contextlib.contextmanager
    def running(self, name, *words, after=2, steps=60):
        with Running(self.job(name, *words, steps=steps), self.folder / name) as job:
            try:
                job.wait_for(after)
                yield job
            finally:
                for process in self.processes:
                    process.kill()
                    process.communicate()
                self.processes = []

    def wait_for_words(self, name, count):
        self.wait_until(lambda: len(self.seen(name)[1]) >= count, f"{count} words of {name}")

    @staticmethod
    def wait_until(is_so, what):
        deadline = time.monotonic() + WITHIN_S
        while not is_so():
            expect(time.monotonic() < deadline, f"no {what} within {WITHIN_S} s")
            time.sleep(0.02)


def ended(process, code=0):
    """What it said; it ends by itself."""
    out, err = process.communicate(timeout=WITHIN_S)
    expect(process.returncode == code, f"exit {process.returncode} instead of {code}:\n{out[-500:]}{err[-800:]}")
    return out, err


def done(job, code=0):
    expect(job.process.wait(WITHIN_S) == code, f"exit {job.process.returncode} instead of {code}")


def key_of(part):
    return json.dumps(part, sort_keys=True)


def it_sees_the_bits_that_one_in_the_nodes_sees(bench):
    everything = 'observe.observers=[{name="bits",rows=true,gradients=true,losses=true,queue=1000}]'
    with bench.running("seen", everything) as job:
        looking, beside = [bench.look(bench.folder / "seen", name) for name in ("seen", "seen-beside")]
        done(job)
        out, err = ended(looking)
        ended(beside)
    how = json.loads(out)
    expect(how["over"] == 1 and how["code"] == 0 and how["missed"] == 0 and not err, f"{out}{err}")
    parts, words = bench.seen("seen")
    expect(how["steps"] == len(words) and how["parts"] == len(parts) and len(words) > 5, f"{out}: {len(words)}")
    first = words[0]["step"]
    inside = [line for node in (0, 1) for line in read_lines(bench.folder / "seen" / "observers" / "bits" / f"node-{node}")]
    wanted = [line for line in inside if "hash" in line and line["step"] >= first]
    expect({line["step"] for line in parts} == set(range(first, 61)), f"steps from {first} on: {sorted({line['step'] for line in parts})}")
    expect(sorted(map(key_of, parts)) == sorted(map(key_of, wanted)), f"{len(parts)} parts, in the nodes {len(wanted)}")
    expect({line["kind"] for line in parts} == {0, 1, 2}, "kinds")
    metrics = {line["step"]: line["loss"] for line in read_lines(bench.folder / "seen" / "metrics.jsonl")}
    expect([(line["step"], line["loss"]) for line in words] == [(step, metrics[step]) for step in range(first, 61)], f"{words[:2]}")
    lines = read_lines(bench.folder / "seen.lines")
    for at, line in enumerate(lines):
        if "committed" in line:
            expect(not any(later.get("step") == line["step"] for later in lines[at + 1:]), f"behind the word on step {line['step']}")
    expect(lines[-1] == {"end": 1}, "its end")
    parts_beside, words_beside = bench.seen("seen-beside")
    both = max(first, words_beside[0]["step"])
    of_both = [sorted(key_of(part) for part in all_parts if part["step"] >= both) for all_parts in (parts, parts_beside)]
    expect(of_both[0] == of_both[1] and both < 50, f"two who look see other things: from step {both} {len(of_both[0])}, {len(of_both[1])}")
    bench.same_bits("seen")


def the_command_prints_lines_and_ends_with_the_job(bench):
    run = bench.folder / "printed"
    with bench.running("printed") as job:
        short = bench.start(bench.binary, "observe", run, "--steps", "2", "--module", "vision")
        exact = bench.start(bench.binary, "observe", run, "--json", "--kind", "losses", "--kind", "gradients", "--every", "2", "--queue", "1000")
        said_exactly = lines_of(exact)  # A pipe that is full would make it slow.
        values = bench.start(bench.binary, "observe", "--json", "--kind", "losses", run, "--values", "--steps", "3")
        out, err = ended(short)
        lines = out.splitlines()
        expect(sum(": loss " in line for line in lines) == 2 and lines[-1].startswith("seen: 2 steps, ") and not err, out + err)
        expect(any(" vision rows  replica 0 microbatch " in line and " x 96, mean " in line for line in lines), out)
        expect(not any("llm" in line or "gradients" in line for line in lines), out)
        out, _ = ended(values)
        with_values = [json.loads(line) for line in out.splitlines()]
        expect(all(math.isclose(sum(line["values"]), line["mean"] * len(line["ids"]), rel_tol=1e-9)
                   for line in with_values if "values" in line), out[:500])
        done(job)
        expect(exact.wait(WITHIN_S) == 0, f"exit {exact.returncode}: {exact.stderr.read()}")
        out, err = said_exactly.text(), exact.stderr.read()
    lines = [json.loads(line) for line in out.splitlines()]
    shown = [line for line in lines if "module" in line]
    expect({line["kind"] for line in shown} == {"losses", "gradients"} and not err, f"{lines[:2]}{err}")
    expect({line["step"] % 2 for line in shown} == {0}, "every second step")
    words = [line for line in lines if "committed" in line]
    expect(words[-1]["step"] == 60 and [line["step"] for line in words] == list(range(words[0]["step"], 61)), f"{words[-2:]}")
    expect(lines[-1] == {"job": lines[-1]["job"], "steps": len(words), "parts": len(shown), "missed": 0, "job_ended": True, "exit_code": 0, "why": ""},
           f"{lines[-1]}: {len(words)}, {len(shown)}")
    said = bench.said("observe", run)
    expect("its job has ended" in said and "exit code 0" in said and f"fix: see what it recorded: troupe report {run}" in said, said)
    said = bench.said("observe", bench.folder / "none")
    expect("no such run folder" in said, said)
    said = bench.said("observe", run, "--kind", "colours")
    expect("colours" in said, said)
    log = bench.log("printed")
    expect(log.count(" looks at ") == 3 and log.count(" looks no more: it left; it was shown ") >= 2, log[-1500:])


def one_that_hangs_or_dies_or_is_slow_disturbs_nothing(bench):
    run = bench.folder / "disturbed"
    with bench.running("disturbed") as job:
        hanging = bench.look(run, "hanging", "queue=2")
        killed = bench.look(run, "killed")
        slow = bench.look(run, "slow", "slow=300", "queue=2")
        bench.wait_for_words("hanging", 1)
        bench.wait_for_words("killed", 1)
        hanging.send_signal(signal.SIGSTOP)
        killed.kill()
        done(job)  # Neither waits for the other.
        begin = time.monotonic()
        out, _ = ended(slow)
        expect(time.monotonic() - begin < 30, "it had little left to see")
    how = json.loads(out)
    expect(how["missed"] > 0 and how["over"] == 1, out)
    log = bench.log("disturbed")
    expect(" looks no more: it left" in log and "--every and --queue of troupe observe" in log, log[-1500:])
    missed = [line for line in log.splitlines() if "observers were shown" in line and "missed" in line]
    expect(missed and int(missed[-1].split("missed ")[1].split(";")[0].split()[0]) > 0, f"{missed}")
    bench.same_bits("disturbed")


def the_command_says_what_it_misses_and_ends_in_order_by_ctrl_c(bench):
    run = bench.folder / "missed"
    with bench.running("missed", steps=2000) as job:
        silent = bench.start(bench.binary, "observe", run, "--steps", "3")
        # Nobody reads its output for a while: a pipe that is full makes it slow.
        slow = bench.start(bench.binary, "observe", run, "--json", "--values", "--queue", "1", "--kind", "rows", "--kind", "gradients")
        ended(silent)
        job.wait_for(60)
        slow.send_signal(signal.SIGINT)  # It stands in a line that nobody has read: no word told it what it missed.
        said = lines_of(slow)
        expect(slow.wait(WITHIN_S) == 130, f"exit {slow.returncode}")
        err = slow.stderr.read()
        last = json.loads(said.text().splitlines()[-1])
        expect(last["missed"] > 0 and not last["job_ended"] and last["exit_code"] is None, f"{last}")
        expect("missed: raise --every or --queue" in err, err)
        expect(job.process.poll() is None, "the job ended before")
        job.stop()
    log = bench.log("missed")
    # It knows all that nodes counted until it left, not only until their last word.
    left = [line for line in log.splitlines() if f"process {slow.pid} on " in line and " looks no more: it left" in line]
    expect(len(left) == 1 and left[0].endswith(f" and missed {last['missed']}"), f"{last}\n{left}\n{log[-1500:]}")


def an_observer_of_a_plugin_looks_from_outside(bench):
    """The example's, which knows nothing of it: its lines are those that `--json` has."""
    run, kinds = bench.folder / "outside", ["--kind", "rows", "--kind", "gradients", "--module", "vision", "--queue", "1000"]
    ours = ["--plugin", bench.library, "--observer", "statistics"]
    with bench.running("outside") as job:
        # By the name of a file that lies here, which no folder of libraries has.
        here = ["--plugin", bench.library.name, "--observer", "statistics"]
        shown = bench.start(bench.binary, "observe", run, *here, "--folder", bench.folder / "seen-outside", *kinds, cwd=bench.library.parent)
        printed = bench.start(bench.binary, "observe", run, "--json", *kinds)
        text = lines_of(printed)
        done(job)
        out, err = ended(shown)
        expect("the job has ended; seen: " in out and "; missed: 0 parts" in out and not err, out + err)
        expect(printed.wait(WITHIN_S) == 0, f"exit {printed.returncode}")
    line_of = lambda line: [line[key] for key in ("step", "module", "kind", "replica", "microbatch", "part", "width", "largest")]  # noqa: E731
    by_plugin = [line_of(line) for line in read_lines(bench.folder / "seen-outside" / "node-0.jsonl")]
    by_command = [line_of(line) for line in map(json.loads, text.text().splitlines()) if "module" in line]
    begin = max(by_plugin[0][0], by_command[0][0])
    both = [sorted(line for line in lines if line[0] >= begin) for lines in (by_plugin, by_command)]
    expect(both[0] == both[1] and begin < 50 and {line[2] for line in both[0]} == {"rows", "gradients"}, f"from step {begin}: {len(both[0])}, {len(both[1])}")
    said = bench.said("observe", run, "--observer", "statistics")
    expect("no observer is called 'statistics'" in said and "fix: name the plug-in that has it: --plugin FILE" in said, said)
    said = bench.said("observe", run, *ours, "--folder", "/proc/none")
    expect("observer 'statistics' cannot be made" in said, said)
    said = bench.said("observe", run, "--plugin", run / "plan.json")
    expect("cannot be loaded" in said, said)
    bench.same_bits("outside")


def one_that_throws_ends_alone(bench):
    with bench.running("thrown") as job:
        _, err = ended(bench.look(bench.folder / "thrown", "thrown", "throws=1"), 1)
        expect("the observer throws: of its own accord" in err and "step " in err and "the job goes on without it" in err, err)
        said = bench.said("observe", bench.folder / "thrown", "--module", "vison")
        expect("no module is called 'vison'" in said and "name one of " in said and "vision, " in said, said)
        done(job)
    bench.same_bits("thrown")


def one_that_never_returns_ends_the_command_by_its_name(bench):
    """Whether it is made, sees, or is to go. The job goes on."""
    run = bench.folder / "asleep"
    words = ["observe", run, "--folder", bench.folder / "seen-asleep", "--timeout", "2", "--steps", "1"]
    with bench.running("asleep", steps=100000) as job:
        for call, name, env in (("make", "asleep", {"OWN_ASLEEP": "1"}), ("see", "asleep", {}), ("destructor", "clinging", {})):
            _, err = ended(bench.start(bench.own, *words, "--observer", name, env={**os.environ, **env}), 1)
            expect(f"--timeout: `{call}` of observer '{name}' has not returned for 2 s" in err and "look for a loop without an end in it; raise --timeout" in err, err)
        expect(job.process.poll() is None, "the job ended before")
        job.stop()


def a_node_without_a_part_in_the_layout_is_not_waited_for(bench):
    """The second node has none any more: words on steps come while the job trains, and not when it ends."""
    run, layout = bench.folder / "moved", bench.folder / "one.toml"
    layout.write_text('[[parallel.pipelines]]\nstages = [{node = 0, vision = "all", audio = "all", llm = "all"}]\n')
    with bench.running("moved", steps=2000) as job:
        bench.look(run, "moved")
        bench.wait_for_words("moved", 2)
        ran([bench.binary, "ctl", run, "layout", layout])
        bench.wait_until(lambda: any(line["kind"] == "layout" for line in read_lines_so_far(run / "events.jsonl")), "another layout")
        moved = read_lines_so_far(run / "metrics.jsonl")[-1]["step"]
        bench.wait_until(lambda: bench.seen("moved")[1][-1]["step"] > moved, "words of the new layout")
        at = read_lines_so_far(run / "metrics.jsonl")[-1]["step"]
        expect(at < moved + 200, f"words came late: at step {at}, {moved}")
        job.stop()


def a_listener_of_the_users_own_actors_that_sends_rubbish_disturbs_nothing(bench):
    run = bench.folder / "actor"
    with bench.running("actor") as job:
        beside = bench.look(run, "beside", "steps=12")
        own = bench.start(bench.own, "actor", run)
        out, _ = ended(own)
        steps = [int(line) for line in out.splitlines()]
        expect(len(steps) == 6 and steps == sorted(steps), out)
        ended(beside)
        done(job)
    parts, words = bench.seen("beside")
    for kind in (0, 2):  # Of both nodes, to the end.
        expect({line["step"] for line in parts if line["kind"] == kind} >= {line["step"] for line in words}, f"kind {kind}")
    bench.same_bits("actor")


def strangers_are_refused(bench):
    key, other = bench.folder / "job.key", bench.folder / "other.key"
    for file in (key, other):
        ran([bench.binary, "key", "new", file])
    port = free_port()
    with bench.running("keyed", f"cluster.key={key}", f"cluster.listen=127.0.0.1:{port}") as job:
        at = f"127.0.0.1:{port}"
        said = bench.said("observe", at, "--key", other)
        expect("has another key" in said and "--key" in said, said)
        out, _ = ended(bench.start(bench.binary, "observe", at, "--key", key, "--steps", "1"))
        expect(": loss " in out, out)
        out, _ = ended(bench.start(bench.binary, "observe", at, "--steps", "1", env={**os.environ, "TROUPE_KEY": key.read_text().strip()}))
        expect(": loss " in out, out)
        begin = time.monotonic()
        said = bench.said("observe", f"127.0.0.1:{free_port()}", "--key", key, code=1)
        expect("no job answers there" in said and time.monotonic() - begin < 30, said)
        done(job)
    expect("refused" in bench.log("keyed"), bench.log("keyed")[-800:])
    bench.same_bits("keyed")


def a_node_that_is_lost_is_gone_and_the_others_are_seen(bench):
    """On 3:2 replicas: words on steps go on, and the losses of each step are those that counted."""
    run = bench.folder / "lost"
    with bench.running("lost", *bench.replicas, "scheduler.schedule=split-1f1b", "cluster.fault_tolerance=1", after=3) as job:
        looking = bench.look(run, "lost")
        bench.wait_for_words("lost", 2)
        os.kill(children(job.process.pid)[1], signal.SIGKILL)
        done(job)
        out, _ = ended(looking)
    expect(json.loads(out)["over"] == 1, out)
    changed = [line["step"] for line in read_lines(run / "events.jsonl") if line["kind"] == "lost"]
    expect(len(changed) == 1, f"no node was lost: {changed}")
    parts, words = bench.seen("lost")
    steps = [line["step"] for line in words]
    expect(steps == list(range(steps[0], 61)), f"words: {steps}")
    for word in words:
        losses = {}
        for line in parts:
            if line["kind"] == 2 and line["step"] == word["step"]:
                losses[(line["replica"], line["microbatch"], line["part"])] = line["sum"]  # The last showing of it counts.
        if word["step"] not in changed:  # There parts of the first try are seen beside those of the second.
            expect(math.isclose(sum(losses.values()) / word["trained"], word["loss"], rel_tol=1e-9),
                   f"step {word['step']}: {sum(losses.values()) / word['trained']}, {word}")


def another_head_is_found(bench):
    run = bench.folder / "headless"
    words = ["cluster.head_timeout_s=60"]
    with bench.running("headless", *words, steps=100) as job:
        looking = bench.look(run, "headless", "patience=60")
        bench.wait_for_words("headless", 2)
        job.process.kill()
        job.process.wait()
        ran([bench.own, "train", "--resume", run])
        out, _ = ended(looking)
    expect(json.loads(out)["over"] == 1, out)
    steps = [line["step"] for line in bench.seen("headless")[1]]
    expect(steps[-1] == 100 and steps == sorted(steps) and len(steps) > 4, f"{steps}")


def a_job_whose_head_dies_for_good_is_told_of(bench):
    with bench.running("dead") as job:
        looking = bench.look(bench.folder / "dead", "dead", "patience=1")
        bench.wait_for_words("dead", 1)
        job.process.kill()
        job.process.wait()
        _, err = ended(looking, 1)
    expect("the head of the job was lost, and no other came" in err, err)


CASES = [it_sees_the_bits_that_one_in_the_nodes_sees, the_command_prints_lines_and_ends_with_the_job,
         the_command_says_what_it_misses_and_ends_in_order_by_ctrl_c, an_observer_of_a_plugin_looks_from_outside,
         one_that_hangs_or_dies_or_is_slow_disturbs_nothing, one_that_throws_ends_alone,
         one_that_never_returns_ends_the_command_by_its_name, a_node_without_a_part_in_the_layout_is_not_waited_for,
         a_listener_of_the_users_own_actors_that_sends_rubbish_disturbs_nothing, strangers_are_refused,
         a_node_that_is_lost_is_gone_and_the_others_are_seen, another_head_is_found, a_job_whose_head_dies_for_good_is_told_of]


if __name__ == "__main__":
    sys.exit(main(RemoteBench, CASES, *sys.argv[1:]))
