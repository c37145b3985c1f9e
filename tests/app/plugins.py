#!/usr/bin/python3
"""Plug-ins as their authors meet them: installed headers, the example built against them, a family that trains, dies and
comes back like a built-in one, and what is said of libraries that are none.

    plugins.py BINARY [CASE...]      BINARY lies in the build folder that is installed from
"""

import collections
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "engine"), str(ROOT / "tests" / "actors")]
from parity_layouts import by_replicas  # noqa: E402
from tests.support.drawn_cases import third_here  # noqa: E402
from tests.support.recorded_runs import read_lines, read_lines_so_far, sample_of  # noqa: E402
from tests.support.run_cases import expect, run_cases  # noqa: E402
from whole_jobs import children  # noqa: E402

EXAMPLE = ROOT / "examples" / "resampler"
STEPS = 20
WITHIN_S = 90
THREE_TO_TWO = by_replicas(('"vision","audio"', *['{node=N,vision="all",audio="all"}'] * 3),
                           ('"llm"', *['{node=N,llm="all"}'] * 2))


def rebuilt(program):
    """A program beside this one that does the same, with other bytes in its file."""
    other = program.with_name(f"{program.name}-rebuilt")
    shutil.copy(program, other)
    with open(other, "ab") as file:
        file.write(b"another build")
    return other


def defers(line, groups):
    """Whether a step has samples of one microbatch of an encoder in several of the llm. `groups`: names by replica."""
    of_llm = {sample_of(line, unit): (replica, place) for replica, made in enumerate(line["replicas"]) if groups[replica] == "llm"
              for place, microbatch in enumerate(made) for part in microbatch for unit in part}
    return any(len({of_llm[sample_of(line, unit)] for part in microbatch for unit in part}) > 1
               for replica, made in enumerate(line["replicas"]) if "vision" in groups[replica] for microbatch in made)


def ran(command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **options)
    expect(done.returncode == 0, f"{command[:3]}: exit {done.returncode}:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
    return done.stdout


# What registers nothing, and says why; or never says anything.
REFUSING = """#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include "runtime/plugins/entry_point.hpp"
static troupe::Status register_all() {
  while (std::getenv("OWN_ASLEEP") != nullptr) std::this_thread::sleep_for(std::chrono::hours(1));
  throw std::runtime_error("of its own accord");
}
TROUPE_PLUGIN(register_all)
"""

# Projectors whose layers throw or never return, some once a file says it, and one that is at a loss when it has read some of its configurations; an llm whose losses
# stand in a column; the example with pixels by another scale, and with the middle of each picture, whose last two pixels are of no patch.
OWN = r"""
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>
#include "models/built_on.hpp"
#include "models/family/registry.hpp"
#include "models/plugin.hpp"
#include "runtime/plugins/entry_point.hpp"
using namespace troupe;
using namespace troupe::models;

struct Tired : ParameterLayer {
  using ParameterLayer::ParameterLayer;
  at::Tensor forward(const at::Tensor&, const PackedBatch&) override { throw std::runtime_error("too tired"); }
};
struct Asleep : ParameterLayer {
  using ParameterLayer::ParameterLayer;
  at::Tensor forward(const at::Tensor&, const PackedBatch&) override { for (;;) std::this_thread::sleep_for(std::chrono::hours(1)); }
};

struct Drowsy : Layer {
  explicit Drowsy(std::unique_ptr<Layer> of) : inner(std::move(of)) {}
  at::Tensor forward(const at::Tensor& rows, const PackedBatch& batch) override {
    std::string mood;
    if (const char* file = std::getenv("DROWSY")) std::ifstream(file) >> mood;
    if (mood == "tired") throw std::runtime_error("too tired");
    if (mood == "asleep") for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    at::Tensor made = inner->forward(rows, batch);
    static std::vector<at::Tensor> kept;
    if (mood == "keeps") kept.push_back(made.detach().clone());
    if (mood == "nods") made.register_hook([](const at::Tensor&) { for (;;) std::this_thread::sleep_for(std::chrono::hours(1)); });
    return made;
  }
  std::vector<Parameter>& parameters() override { return inner->parameters(); }
  const std::unique_ptr<Layer> inner;
};

struct Spread : Layer {
  explicit Spread(std::unique_ptr<Layer> of) : inner(std::move(of)) {}
  at::Tensor forward(const at::Tensor& rows, const PackedBatch& batch) override { return inner->forward(rows, batch).unsqueeze(1); }
  std::vector<Parameter>& parameters() override { return inner->parameters(); }
  const std::unique_ptr<Layer> inner;
};

template <class Own>
Status add_projector(const char* name) {
  Family family = *find_family("mlp");
  family.name = name;
  family.make = [](const ModuleConfig&, int, std::vector<Parameter> list) { return std::make_unique<Own>(std::move(list)); };
  return register_family(std::move(family));
}

Status register_all() {
  if (auto added = add_projector<Tired>("tired"); !added.ok()) return added;
  if (auto added = add_projector<Asleep>("asleep"); !added.ok()) return added;
  Family drowsy = built_on(*find_family("mlp"), "drowsy");
  drowsy.make = [of = drowsy.make](const ModuleConfig& module, int layer, std::vector<Parameter> list) {
    return std::make_unique<Drowsy>(of(module, layer, std::move(list)));
  };
  if (auto added = register_family(std::move(drowsy)); !added.ok()) return added;
  Family spread = built_on(*find_family("llama"), "spread");
  spread.make = [sizes = spread.sizes, of = spread.make](const ModuleConfig& module, int layer, std::vector<Parameter> list) -> std::unique_ptr<Layer> {
    auto made = of(module, layer, std::move(list));
    if (layer + 1 < sizes(module.config).layers) return made;
    return std::make_unique<Spread>(std::move(made));
  };
  if (auto added = register_family(std::move(spread)); !added.ok()) return added;
  if (const Family* eyes = find_family("resampler")) {  // Its library was loaded before.
    Family dim = *eyes;
    dim.name = "dim";
    dim.media = [of = dim.media](const FamilyConfig& config) {
      MediaInput input = of(config);
      input.vision.scale = {{0.5, 0.5, 0.5}, {1, 1, 1}};
      return input;
    };
    if (auto added = register_family(std::move(dim)); !added.ok()) return added;
    Family framed = *eyes;
    framed.name = "framed";
    framed.media = [of = framed.media](const FamilyConfig& config) {
      MediaInput input = of(config);
      input.vision.resize = {ResizeMode::crop, 58};
      return input;
    };
    if (auto added = register_family(std::move(framed)); !added.ok()) return added;
  }
  Family family = *find_family("mlp");
  family.name = "own";  // It may fall asleep, too, or when it is asked for the work of a job's layers.
  family.fields = [of = family.fields](ConfigFields& v, FamilyConfig& config) {
    bool at_a_loss = false, asleep = false;
    v.flag("at_a_loss", at_a_loss);
    v.flag("asleep", asleep);
    of(v, config);
    if (at_a_loss) throw 42;
    while (asleep) std::this_thread::sleep_for(std::chrono::hours(1));
  };
  family.works = [of = family.works](const ModuleConfig& module, const Widths& widths) {
    while (module.name == "vision_projector" && std::getenv("OWN_ASLEEP") != nullptr) std::this_thread::sleep_for(std::chrono::hours(1));
    return of(module, widths);
  };
  family.make = [](const ModuleConfig&, int, std::vector<Parameter>) { return std::unique_ptr<Layer>(); };
  return register_family(std::move(family));
}

TROUPE_PLUGIN(register_all)
"""


class Bench:
    example, library_name, replicas = EXAMPLE, "resampler.so", THREE_TO_TWO
    deferral = ["balancer.policy=deferral"]
    frozen = ()  # Modules of the example that do not train.

    def __init__(self, binary, folder):
        self.cmake, self.folder, self.prefix, self.build = shutil.which("cmake"), folder, folder / "prefix", binary.parent
        ran([self.cmake, "--install", self.build, "--prefix", self.prefix])
        self.binary = self.prefix / "bin" / "troupe"
        self.library = self.built(self.example) / self.library_name
        ran([self.binary, "data", "make", folder / "data", "--uneven", "--samples", "200"])

    def built(self, source):
        """The plug-in of this folder, built as its author would."""
        build = self.folder / f"build-{source.name}"
        package = f"-Dtroupe_DIR={next(self.prefix.glob('lib*/cmake/troupe'), self.prefix / 'lib/cmake/troupe')}"
        ran([self.cmake, "-S", source, "-B", build, "-G", "Ninja", package])
        ran([self.cmake, "--build", build])
        return build

    def built_beside(self, text, called="own"):
        """The library of another plug-in with this source, built as the example is."""
        source, name = self.folder / called, self.library_name.removesuffix(".so")
        source.mkdir()
        (source / f"{called}.cpp").write_text(text)
        (source / "CMakeLists.txt").write_text((self.example / "CMakeLists.txt").read_text().replace(name, called))
        return self.built(source) / f"{called}.so"

    def own_family(self):
        """The library of `OWN`, built once."""
        built = self.folder / "build-own" / "own.so"
        return built if built.exists() else self.built_beside(OWN)

    def words(self, library=None):
        return [self.example / "job.toml", f'plugins.libraries=["{library or self.library}"]', "train.dtype=fp64",
                f'data.sources=[{{json="{self.folder}/data/samples.json"}}]', f"train.steps={STEPS}",
                "train.global_batch_size=8", "optimizer.warmup_steps=2", "data.max_pixels=12544"]

    def job(self, name, *words):
        return [str(word) for word in (self.binary, "train", *self.words(), f"job.run_dir={self.folder / name}", *words)]

    def equal(self, *names):
        """Whether both runs trained the same parameters."""
        ran([self.binary, "compare", *[self.folder / name for name in names], "--rtol", "1e-10", "--loss-rtol", "1e-10"])

    def reference(self):
        if not (self.folder / "reference").exists():
            ran(self.job("reference", "--reference"))
        return "reference"

    def survives(self, name, *words):
        """On 3:2 replicas with a split backward: a node is killed, the job stopped, and gone on with on devices that complete
        their work late, on threads of their own."""
        run = self.folder / name
        command = self.job(name, *self.replicas, "scheduler.schedule=split-1f1b", "train.microbatches=4", "cluster.fault_tolerance=1", *words)
        with Running(command, run) as job:
            job.wait_for(3)
            os.kill(children(job.process.pid)[1], signal.SIGKILL)
            job.wait_for(len(read_lines_so_far(run / "metrics.jsonl")) + 3)
            job.stop()
        ran([*command, "debug.delayed_device_ms=0.4"])
        self.equal(self.reference(), name)
        kinds = [line["kind"] for line in read_lines(run / "events.jsonl")]
        expect("lost" in kinds and "resumed" in kinds, f"events: {kinds}")
        self.ran_on_replicas(run, deferred=set(self.deferral) <= set(words))

    def ran_on_replicas(self, run, deferred):
        """Equal parameters show neither: as many replicas of each group as asked for, and that samples were `deferred`."""
        plan = json.loads((run / "plan.json").read_text())
        groups = [plan["module_groups"][replica["group"]]["name"] for replica in plan["replicas"]]
        counts = [collections.Counter(of) for of in (groups, re.findall(r"modules=\[(.*?)\]", self.replicas[0]))]
        expect(sorted(counts[0].values()) == sorted(counts[1].values()), f"replicas: {counts[0]}")
        lines = [line for line in read_lines(run / "iterations.jsonl") if len(line["replicas"]) == len(groups)]
        expect(lines and (not deferred or any(defers(line, groups) for line in lines)), f"nothing is deferred in {len(lines)} steps")

    def keeps_its_promises(self):
        """`troupe check` of the example's job: each stage is tried to the last promise, and breaks none."""
        stages = json.loads(ran([self.binary, "check", *self.words(), "--json"]))["stages"]
        names = [stage["stage"].partition(" ")[0] for stage in stages]
        expect(set(names) == {"vision", "audio", "llm", *self.frozen}, f"{stages}")
        for name, stage in zip(names, stages):
            last = "frozen" if name in self.frozen else "moved"
            expect({"gradients", last} <= set(stage["kept"]) and not stage["breaches"] and not stage["not_tried"], f"{stage}")

    def node_job(self, name, library):
        """The job file of a node that has the plug-in and the data where it says."""
        own = self.folder / f"{name}.toml"
        own.write_text(f'extends = "{self.example}/job.toml"\n[plugins]\nlibraries = ["{library}"]\n'
                       f'[[data.sources]]\n{self.own_source()}\n')
        return own

    def own_source(self):
        """Of a job file for one node."""
        return f'json = "{self.folder}/data/samples.json"'

    @contextlib.contextmanager
    def waiting_for_nodes(self, name, *more):
        """A head that waits for two nodes, and what starts one. Its own library goes away when it has read it: its path is
        nothing on their machines."""
        here = self.folder / f"library-of-{name}"
        here.mkdir()
        shutil.copy(self.library, here)
        words = [word for word in self.job(name, *more) if not word.startswith("plugins.")]
        library = here / self.library_name
        with self.head_of_two(name, [*words, f'plugins.libraries=["{library}"]']) as (job, join):
            library.unlink()
            yield job, join

    @contextlib.contextmanager
    def head_of_two(self, name, command):
        """The same of any training: `join` may start another program as a node."""
        run, nodes = self.folder / name, []
        with Running([*command, "cluster.nodes=2", "cluster.local_nodes=0"], run) as job:
            deadline = time.monotonic() + WITHIN_S
            while not (run / "control").exists():
                expect(job.process.poll() is None and time.monotonic() < deadline, "the head does not begin")
                time.sleep(0.05)
            door = json.loads((run / "control").read_text())

            def join(*flags, program=self.binary):
                nodes.append(node_of(door, program, *flags))
                return nodes[-1]

            try:
                yield job, join
            finally:
                for node in nodes:
                    node.kill()
                    node.wait()

    def new_one_passes(self, kind, taken):
        """`troupe new KIND` under a name of the user's own; returns what its test prints."""
        folder, example = self.folder / "mine", self.library_name.removesuffix(".so")
        said = ran([self.binary, "new", kind, "mine", "--dir", folder])
        expect(f" {kind} of your own" in said and f"Next:  {folder}/test.sh {self.prefix}" in said, said)
        expect(not any(example in path.read_text() for path in folder.iterdir()), "the example's name is left in it")
        (folder / "data").symlink_to(self.folder / "data")
        shown = ran([folder / "test.sh", self.prefix])
        expect(f"is a {kind} already" in self.said("new", kind, taken, "--dir", self.folder / "x"), "a name that is taken")
        return shown

    def names_what_there_is(self, known):
        """Without its library a job hears of the built-in ones; of one that is not there it hears that alone."""
        said = self.said("validate", *self.words(), "plugins.libraries=[]")
        expect(f"'{self.library_name.removesuffix('.so')}' is not one of" in said and known in said, said)
        said = self.said("validate", *self.words(self.folder / "none.so"))
        expect("is not there" in said and "is not one of" not in said, f"a second complaint, which only misleads:\n{said}")

    def said(self, command, *words, code=2):
        done = subprocess.run([str(word) for word in (self.binary, command, *words)], capture_output=True, text=True,
                              timeout=60)
        expect(done.returncode == code, f"exit {done.returncode} instead of {code}:\n{done.stderr[-800:]}")
        return done.stderr


def node_of(door, program, *flags):
    """A process that comes to a job, at its `door` as the run's control file has it."""
    return subprocess.Popen([str(program), "node", "--join", door["local"], *map(str, flags)], text=True,
                            env={**os.environ, "TROUPE_KEY": door["key"]}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


class Running:
    """A training that a test looks at and ends."""

    def __init__(self, command, run):
        self.run = run
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def wait_for(self, step):
        self.wait_until(lambda: any(line["step"] >= step for line in read_lines_so_far(self.run / "metrics.jsonl")), f"step {step}")

    def wait_until(self, is_so, what):
        deadline = time.monotonic() + WITHIN_S
        while not is_so():
            expect(self.process.poll() is None, f"it ended with {self.process.returncode} before {what}")
            expect(time.monotonic() < deadline, f"no {what} within {WITHIN_S} s")
            time.sleep(0.02)

    def last_step(self):
        return read_lines_so_far(self.run / "metrics.jsonl")[-1]["step"]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        expect(self.process.wait(WITHIN_S) == 75, f"exit {self.process.returncode} instead of 75")


def the_example_trains_over_two_stages_like_its_reference(bench):
    ran(bench.job("two-stages"))
    bench.equal(bench.reference(), "two-stages")
    stages = json.loads((bench.folder / "two-stages" / "plan.json").read_text())["stages"]
    expect(len(stages) == 2, f"{stages}")


def it_survives_a_killed_node_and_a_restart_on_replicas_with_deferral(bench):
    bench.survives("replicas", *bench.deferral)


def its_layers_keep_what_stages_promise(bench):
    bench.keeps_its_promises()


def planners_know_it(bench):
    plan = ran([bench.binary, "plan", *bench.words()])
    expect("vision" in plan, plan)
    said = bench.said("validate", *bench.words(), "modules.vision.config.heads=5")
    expect("5 does not divide width 64" in said and "heads = 4" in said, said)
    said = bench.said("validate", *bench.words(), "modules.vision.config.querys=5")
    expect("queries" in said, said)


def a_job_without_its_plugin_says_which_families_there_are(bench):
    said = bench.said("validate", *bench.words(), "plugins.libraries=[]")
    expect("'resampler' is no family" in said and "qwen2-vl, whisper" in said, said)


def what_is_no_plugin_is_refused_with_the_fix(bench):
    missing = bench.folder / "none.so"
    expect("is not there" in bench.said("validate", *bench.words(missing)), "a file that is not there")
    text = bench.folder / "text.so"
    text.write_text("no library")
    said = bench.said("validate", *bench.words(text))
    expect("cannot be loaded" in said and "fix:" in said, said)
    plain = bench.folder / "plain.so"
    source = bench.folder / "plain.cpp"
    source.write_text("int nothing() { return 0; }\n")
    ran(["c++", "-shared", "-fPIC", "-o", plain, source])
    said = bench.said("validate", *bench.words(plain))
    expect("is no plug-in of Troupe" in said and "TROUPE_PLUGIN" in said, said)
    other = bench.folder / "other.so"
    source.write_text('extern "C" const char* troupe_plugin_interface() { return "Troupe of yesterday"; }\n'
                      'extern "C" void troupe_plugin_register(void*) {}\n')
    ran(["c++", "-shared", "-fPIC", "-o", other, source])
    said = bench.said("validate", *bench.words(other))
    expect("Troupe of yesterday" in said and "build the plug-in anew" in said, said)
    expect("is no family" not in said, f"a second complaint, which only misleads:\n{said}")
    source.write_text('namespace nobody { void hears(int); }\n'
                      'extern "C" const char* troupe_plugin_interface() { return "Troupe of yesterday"; }\n'
                      'extern "C" void troupe_plugin_register(void*) { nobody::hears(1); }\n')
    calls = bench.folder / "calls.so"
    ran(["c++", "-shared", "-fPIC", "-o", calls, source])
    said = bench.said("validate", *bench.words(calls))
    expect("needs nobody::hears(int), which this program does not have" in said and "build the plug-in anew" in said, said)


def a_plugin_that_cannot_register_says_why(bench):
    """One that never returns from it is ended, and named."""
    source = bench.folder / "refusing"
    source.mkdir()
    (source / "refusing.cpp").write_text(REFUSING)
    (source / "CMakeLists.txt").write_text((bench.example / "CMakeLists.txt").read_text().replace("resampler", "refusing"))
    words = bench.words(bench.built(source) / "refusing.so")
    said = bench.said("validate", *words, code=1)
    expect("refusing.so refuses: of its own accord" in said and "fix: correct the plug-in" in said, said)
    with mock.patch.dict(os.environ, OWN_ASLEEP="1"):
        said = bench.said("validate", *words, "train.stall_timeout_s=2", code=1)
    expect("train.stall_timeout_s on the command line: loading plug-in refusing.so has not returned for 2 s" in said and "look for a loop" in said, said)


def a_plugin_that_never_returns_ends_whoever_reads_a_run_of_it(bench):
    """Its records say which plug-ins it had; and so does a look at the machine with a job's file."""
    library, run = bench.built_beside(REFUSING, "silent"), bench.folder / "of-silent"
    (run / "checkpoints").mkdir(parents=True)
    (run / "resolved.toml").write_text(f'[plugins]\nlibraries = ["{library}"]\n')
    with mock.patch.dict(os.environ, OWN_ASLEEP="1"):
        for command in (["checkpoint", "list", run], ["checkpoint", "verify", run], ["data", "audit", run], ["observe", run, "--plugin", library]):
            said = bench.said(*command, "--timeout", "2", code=1)
            expect("--timeout: loading plug-in silent.so has not returned for 2 s" in said and "look for a loop without an end in it; raise --timeout" in said,
                   f"{command}: {said}")
        done = subprocess.run([str(word) for word in (bench.binary, "doctor", *bench.words(library), "--json", "--timeout", "2")],
                              capture_output=True, text=True, timeout=WITHIN_S)
    job, = [check for check in json.loads(done.stdout)["checks"] if check["name"] == "job"]
    expect(job["found"] == "no answer within 2 s; meanwhile loading plug-in silent.so has not returned", f"{job}")
    expect(job["fix"].startswith("look for a loop without an end in it; else ") and done.returncode == 2, f"exit {done.returncode}: {job}")


def a_library_that_has_moved_is_found_where_the_job_says_now(bench):
    """A run that goes on reads its old job, whose library is gone."""
    first, second = bench.folder / "first", bench.folder / "second"
    for folder in (first, second):
        folder.mkdir()
    shutil.copy(bench.library, first)
    words = [word for word in bench.job("moved") if not word.startswith("plugins.")]
    with Running([*words, f'plugins.libraries=["{first}/resampler.so"]'], bench.folder / "moved") as job:
        job.wait_for(3)
        job.stop()
    shutil.move(first / "resampler.so", second)
    ran([*words, f'plugins.libraries=["{second}/resampler.so"]', "--resume"])
    bench.equal(bench.reference(), "moved")


def a_node_finds_its_library_where_its_own_job_says(bench):
    """And is `troupe` as another machine built it from the same commit."""
    with bench.waiting_for_nodes("by-hand") as (job, join):
        own = bench.node_job("own", bench.library)
        nodes = [join("--job", own), join("--job", own, program=rebuilt(bench.binary))]
        expect(job.process.wait(WITHIN_S) == 0, f"exit {job.process.returncode}\n{nodes[1].stderr.read()[-800:]}")
    bench.equal(bench.reference(), "by-hand")


def nodes_without_a_head_save_with_their_own_library(bench):
    """Whoever has them save when the head is lost finds it where they do."""
    with bench.waiting_for_nodes("no-head", "cluster.head_timeout_s=2", "train.steps=100000") as (job, join):
        nodes = [join("--job", bench.node_job("of-both", bench.library)) for _ in range(2)]
        job.wait_for(3)
        job.process.kill()
        job.process.wait()
        said = [node.communicate(timeout=WITHIN_S)[1] for node in nodes]
        deadline = time.monotonic() + WITHIN_S
        while "exit_code" not in (facts := json.loads((job.run / "run.json").read_text())):
            expect(time.monotonic() < deadline, f"nothing is saved: {said}")
            time.sleep(0.05)
    expect(facts["exit_code"] == 75, f"the run's end: {facts}, {said}")
    steps = len(read_lines(job.run / "metrics.jsonl"))
    expect((job.run / f"checkpoints/step-{steps}/manifest.json").exists(), f"step {steps} is not saved: {facts}")


def a_node_with_another_build_of_it_is_refused(bench):
    """Replicas that ran different code would train different values, and nothing else tells."""
    other = bench.folder / "rebuilt" / bench.library_name
    other.parent.mkdir()
    other.write_bytes(bench.library.read_bytes() + b"another build")
    with bench.waiting_for_nodes("other-build") as (job, join):
        node = join("--job", bench.node_job("rebuilt", other))
        said = node.communicate(timeout=WITHIN_S)[1]
        expect(job.process.wait(WITHIN_S) == 2, f"exit {job.process.returncode} instead of 2\n{said}")
    expect(f"has another build of plug-in {bench.library_name}: its hash is " in said and ", the head's " in said, said)
    expect("plugins.libraries: the supervisor refused: " in said and "\n  fix: copy one build to every machine" in said, said)
    expect(node.returncode == 2, f"the node: exit {node.returncode} instead of 2\n{said}")
    expect(not read_lines_so_far(bench.folder / "other-build" / "metrics.jsonl"), "a step was trained")


def a_running_job_refuses_who_comes_with_another_build_or_without_it(bench):
    """In the place of one of its own nodes that was lost: whoever comes hears the fix, the job goes on, and the next one gets the place."""
    here, other = bench.folder / "library-of-joined" / bench.library_name, bench.folder / "rebuilt-later" / bench.library_name
    for library, more in ((here, b""), (other, b"another build")):
        library.parent.mkdir()
        library.write_bytes(bench.library.read_bytes() + more)
    words = [word for word in bench.job("joined", *bench.replicas, "train.microbatches=4", "cluster.fault_tolerance=1", "train.steps=100000") if not word.startswith("plugins.")]
    with Running([*words, f'plugins.libraries=["{here}"]'], bench.folder / "joined") as job:
        job.wait_for(3)
        here.unlink()  # Its path is nothing on the machines of those who come.
        os.kill(children(job.process.pid)[1], signal.SIGKILL)
        events = lambda: [line["kind"] for line in read_lines_so_far(job.run / "events.jsonl")]  # noqa: E731
        job.wait_until(lambda: "lost" in events(), "loss")
        door, said = json.loads((job.run / "control").read_text()), []
        for flags in ([], ["--job", bench.node_job("later", other)]):
            node, step = node_of(door, bench.binary, *flags), job.last_step()
            said.append(node.communicate(timeout=WITHIN_S)[1])
            expect(node.returncode == 2, f"exit {node.returncode} instead of 2: {said[-1]}")
            job.wait_for(step + 3)
        expect(f"plugins.libraries[0]: {here} is not there" in said[0] and "fix: put the plug-in there, or start this node with --job" in said[0], said[0])
        expect(f"has another build of plug-in {bench.library_name}: its hash is " in said[1] and "\n  fix: copy one build to every machine" in said[1], said[1])
        log = lambda: (job.run / "train.log").read_text()  # noqa: E731
        expect(log().count(" did not join: ") == 2, log()[-1500:])
        node = node_of(door, bench.binary, "--job", bench.node_job("fitting", bench.library))
        try:
            job.wait_until(lambda: f"pid {node.pid}) joined" in log(), "node that fits")
            job.wait_for(job.last_step() + 3)
            job.stop()
        finally:
            node.kill()
            node.communicate()
    expect(events().count("lost") == 1, f"{events()}")
    steps = [line["step"] for line in read_lines(job.run / "metrics.jsonl")]
    expect(steps == list(range(1, len(steps) + 1)), f"{steps}")


def a_family_that_throws_is_told_by_its_name(bench):
    for command in ("validate", "doctor"):  # The latter asks on a thread of its own.
        said = bench.said(command, *bench.words(bench.own_family()), 'modules.vision_projector.family="own"',
                          "modules.vision_projector.config.at_a_loss=true")
        expect("`fields` of family 'own' throws no std::exception" in said and "fix: correct the plug-in" in said, f"{command}: {said}")
        expect("defect" not in said, f"{command}: {said}")


def a_family_that_never_returns_is_told_by_its_name(bench):
    """While the job file is read, and when its layers are described, whoever asks."""
    own = [*bench.words(), f'plugins.libraries=["{bench.library}","{bench.own_family()}"]', "modules.vision_projector.family=own", "train.stall_timeout_s=2",
           f"job.run_dir={bench.folder / 'never'}"]
    for command in (["validate"], ["data", "check"], ["train"]):
        said = bench.said(*command, *own, "modules.vision_projector.config.asleep=true", code=1)
        expect("train.stall_timeout_s on the command line: `fields` of family 'own' has not returned for 2 s" in said and "look for a loop" in said,
               f"{command}: {said}")
    with mock.patch.dict(os.environ, OWN_ASLEEP="1"):
        for command in (["validate"], ["plan"], ["replay", "--cluster", "2x1xA40-48G", "--failure-every", "1h"], ["train"]):
            said = bench.said(*command, *own, code=1)
            expect("train.stall_timeout_s: `works` of family 'own' has not returned for 2 s" in said and "look for a loop" in said, f"{command}: {said}")
        said = bench.said("check", *own, "--timeout", "2", code=1)
        expect("the model: before the first stage: no answer within 2 s; `works` of family 'own' has not returned" in said and "--timeout" in said, said)
    expect(not (bench.folder / "never" / "metrics.jsonl").exists(), "a step was trained")


def a_layer_that_throws_where_no_stage_runs_it_is_no_defect_of_ours(bench):
    """In a profile, which comes before the first training, and in the oracle."""
    tired = [f'plugins.libraries=["{bench.library}","{bench.own_family()}"]', 'modules.vision_projector.family="tired"']
    said = {"vision_projector": bench.said("profile", *bench.words(), *tired, f"job.run_dir={bench.folder / 'tired'}", code=1),
            "demo": bench.said(*bench.job("tired", *tired, "--reference")[1:], code=1)}
    for where, words in said.items():
        expect(where in words and ": throws: too tired\n" in words and "troupe check JOB" in words and "troupe: defect" not in words, f"{where}: {words}")


def a_layer_that_never_returns_where_no_stage_runs_it_is_named(bench):
    asleep = [f'plugins.libraries=["{bench.library}","{bench.own_family()}"]', 'modules.vision_projector.family="asleep"', "train.stall_timeout_s=3"]
    said = {"a layer of kind 'vision_projector.": bench.said("profile", *bench.words(), *asleep, f"job.run_dir={bench.folder / 'asleep'}", code=1),
            "' of module 'vision_projector' on sample 'demo": bench.said(*bench.job("asleep", *asleep, "--reference")[1:], code=1)}
    for what, words in said.items():
        expect(what in words and "has not returned for 3 s" in words and "look for a loop" in words, f"{what}: {words}")


def a_layer_that_fails_in_either_reference_is_named(bench):
    """With module, samples and step, also where the plan's microbatches are trained: it was awake when it was measured for that plan."""
    profile, mood = bench.folder / "drowsy.json", bench.folder / "mood"
    words = [f'plugins.libraries=["{bench.library}","{bench.own_family()}"]', 'modules.vision_projector.family="drowsy"', "train.stall_timeout_s=3"]
    ran([bench.binary, "profile", *bench.words(), *words, f"job.run_dir={bench.folder / 'drowsy'}", "--budget", "2", "--out", profile])
    with mock.patch.dict(os.environ, DROWSY=str(mood)):
        for kind, more, on in (("plain", [], "sample 'demo[^']*' in step 1"), ("plan", ["--microbatches", "plan"], "samples? 'demo.* in step 1")):
            for word, says in (("asleep", rf"layer 'vision_projector\.mlp' of module 'vision_projector' on {on} has not returned for 3 s"),
                               ("nods", rf"the backward of a layer on {on} has not returned for 3 s"),
                               ("tired", rf"{on}: throws: too tired")):
                mood.write_text(word)
                said = bench.said(*bench.job(f"{kind}-{word}", *words, f"scheduler.profile={profile}", "--reference", *more)[1:], code=1)
                expect(re.search(says, said), f"{kind}, {word}: {said}")
        mood.unlink()


def losses_of_another_shape_are_refused_whoever_trains(bench):
    """A sum trains right whatever the shape is; the places of losses are those of samples."""
    spread = [f'plugins.libraries=["{bench.library}","{bench.own_family()}"]', "modules.llm.family=spread"]
    says = r"layer 'llm[^']*' of module 'llm' gives losses of the shape \d+ x 1 for samples? '[^\n]*, instead of \d+: one for each sample"
    profile = bench.folder / "spread.json"
    ran([bench.binary, "profile", *bench.words(), *spread, f"job.run_dir={bench.folder / 'spread'}", "--budget", "2", "--out", profile])
    for more in ([], ["--microbatches", "plan"]):
        said = bench.said(*bench.job(f"spread{len(more)}", *spread, f"scheduler.profile={profile}", "--reference", *more)[1:], code=1)
        expect(re.search(says, said) and "fix: correct the last layer of its family" in said, f"{more}: {said}")
    done = subprocess.run([str(word) for word in (bench.binary, "check", *bench.words(), *spread, "--module", "llm")], capture_output=True, text=True,
                          timeout=WITHIN_S)
    expect(done.returncode == 1, f"exit {done.returncode}: {done.stdout[-800:]}{done.stderr[-800:]}")
    expect(re.search(f": rows: forward of microbatch 0: {says}", done.stdout), done.stdout)


def a_layer_that_keeps_memory_is_named_by_a_check(bench):
    """In something static, which outlives stages; the stage has the encoder's layers too."""
    words = [f'plugins.libraries=["{bench.library}","{bench.own_family()}"]', 'modules.vision_projector.family="drowsy"', "--module", "vision_projector"]
    (bench.folder / "keeps").write_text("keeps")
    with mock.patch.dict(os.environ, DROWSY=str(bench.folder / "keeps")):
        done = subprocess.run([str(word) for word in (bench.binary, "check", *bench.words(), *words)], capture_output=True, text=True, timeout=WITHIN_S)
    expect(done.returncode == 1, f"exit {done.returncode}: {done.stdout[-800:]}{done.stderr[-800:]}")
    expect(re.search(r": memory: each round keeps (\d+) bytes for good; by itself layer 'vision_projector\.mlp' keeps \1\n  fix: look at tensors that a layer keeps",
                     done.stdout), done.stdout)


def pictures_are_normalised_as_their_family_says(bench):
    """Also those whose pixels come from the node of the llm, which alone sees the data."""
    dim = [f'plugins.libraries=["{bench.library}","{bench.own_family()}"]', "modules.vision.family=dim", "train.steps=6"]
    ran(bench.job("dim-reference", *dim, "--reference"))
    ran(bench.job("dim", *dim))
    bench.equal("dim-reference", "dim")
    ran(bench.job("dim-elsewhere", *dim, f'data.sources=[{{json="{bench.folder}/data/samples.json",nodes=[1]}}]'))
    bench.equal("dim-reference", "dim-elsewhere")
    ran(bench.job("bright", "train.steps=1"))
    losses = [read_lines(bench.folder / name / "metrics.jsonl")[0]["loss"] for name in ("dim", "bright")]
    expect(abs(losses[0] - losses[1]) > 1e-9 * losses[1], f"the scale of pixels changes nothing: {losses}")


def pictures_come_in_the_square_that_their_family_says(bench):
    """In training and in replays, whatever the job's limits of pixels are; also where they come from the llm's node."""
    framed = [f'plugins.libraries=["{bench.library}","{bench.own_family()}"]', "modules.vision.family=framed", "train.steps=6"]
    ran(bench.job("framed-reference", *framed, "--reference"))
    ran(bench.job("framed", *framed, "data.max_pixels=1003520"))
    bench.equal("framed-reference", "framed")
    ran(bench.job("framed-elsewhere", *framed, f'data.sources=[{{json="{bench.folder}/data/samples.json",nodes=[1]}}]'))
    bench.equal("framed-reference", "framed-elsewhere")
    rates = []
    for limit in (12544, 1003520):
        said = ran([bench.binary, "replay", *bench.words(), *framed, f"data.max_pixels={limit}", "--cluster", "2x1xA40-48G",
                    "--failure-every", "1h", "--json"])
        rates.append([played["samples_per_s"] for played in json.loads(said)["recovery"].values()])
    expect(rates[0] and rates[0] == rates[1], f"samples a second, by other limits of pixels: {rates}")


def two_plugins_of_one_name_are_refused(bench):
    twin = bench.folder / "twin.so"
    shutil.copy(bench.library, twin)
    with open(twin, "ab") as file:
        file.write(b"another build")
    words = [word for word in bench.words() if not str(word).startswith("plugins.")]
    said = bench.said("validate", *words, f'plugins.libraries=["{bench.library}","{twin}"]')
    expect("there is a family 'resampler' already" in said, said)


def a_new_family_passes_its_own_test_under_its_own_name(bench):
    folder = bench.folder / "pooled"
    said = ran([bench.binary, "new", "family", "pooled", "--dir", folder])
    expect(f"Next:  {folder}/test.sh {bench.prefix}" in said, said)
    expect(not any("resampler" in path.read_text() for path in folder.iterdir()), "the example's name is left in it")
    (folder / "data").symlink_to(bench.folder / "data")
    ran([folder / "test.sh", bench.prefix])
    said = bench.said("new", "family", "pooled", "--dir", folder)
    expect("not empty" in said and "--dir" in said, said)
    expect("is no name of a family" in bench.said("new", "family", "My-Family", "--dir", bench.folder / "x"), "a bad name")
    for name, whose in (("embed", "source"), ("block", "source"), ("edit_cache", "build"), ("rebuild_cache", "build"), ("preinstall", "build")):
        said = bench.said("new", "family", name, "--dir", bench.folder / "x")
        expect(f"'{name}' is a word of its {whose} already" in said and "choose another name" in said, said)
    expect(not (bench.folder / "x").exists(), "a folder was made")


CASES = [the_example_trains_over_two_stages_like_its_reference,
         it_survives_a_killed_node_and_a_restart_on_replicas_with_deferral, its_layers_keep_what_stages_promise, planners_know_it,
         a_library_that_has_moved_is_found_where_the_job_says_now, a_node_finds_its_library_where_its_own_job_says,
         nodes_without_a_head_save_with_their_own_library, a_node_with_another_build_of_it_is_refused, a_running_job_refuses_who_comes_with_another_build_or_without_it, a_job_without_its_plugin_says_which_families_there_are,
         what_is_no_plugin_is_refused_with_the_fix, a_plugin_that_cannot_register_says_why,
         a_plugin_that_never_returns_ends_whoever_reads_a_run_of_it, a_family_that_throws_is_told_by_its_name,
         a_family_that_never_returns_is_told_by_its_name,
         a_layer_that_throws_where_no_stage_runs_it_is_no_defect_of_ours, a_layer_that_never_returns_where_no_stage_runs_it_is_named,
         a_layer_that_fails_in_either_reference_is_named, losses_of_another_shape_are_refused_whoever_trains, a_layer_that_keeps_memory_is_named_by_a_check,
         pictures_are_normalised_as_their_family_says, pictures_come_in_the_square_that_their_family_says,
         two_plugins_of_one_name_are_refused, a_new_family_passes_its_own_test_under_its_own_name]


def main(make_bench, cases, binary, *wanted):
    with tempfile.TemporaryDirectory(prefix="troupe-plugins-") as name:
        bench = make_bench(pathlib.Path(binary).resolve(), pathlib.Path(name))
        chosen = [case for case in cases if any(word in case.__name__ for word in wanted)] if wanted else third_here(cases)
        return run_cases(chosen, lambda case: case(bench))


if __name__ == "__main__":
    sys.exit(main(Bench, CASES, *sys.argv[1:]))
