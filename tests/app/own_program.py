#!/usr/bin/python3
"""Programs of the user's own: built against what is installed in an empty prefix, with the policy that they register, or with an
example linked in; trained, killed and started again like `troupe` itself.

    own_program.py BINARY [CASE...]      BINARY lies in the build folder that is installed from

Of the examples that are plug-ins each commit draws one (tests/support/drawn_cases.py); `scripts/test --thorough` runs all.
"""

import shutil
import subprocess
import sys

from observer_plugins import ObserverBench
from own_losses import Mixture
from plugins import ROOT, WITHIN_S, Bench, main, ran, rebuilt
from policy_plugins import PolicyBench
from teacher_plugins import Distill
from tests.support.drawn_cases import drawn_here
from tests.support.recorded_runs import read_lines_so_far
from tests.support.run_cases import expect

EXAMPLE = ROOT / "examples" / "weaver"
BUILD = """cmake_minimum_required(VERSION 3.25)
set(CMAKE_BUILD_TYPE Release CACHE STRING "")
project(own LANGUAGES CXX)
find_package(troupe REQUIRED COMPONENTS engine)
troupe_program(own main.cpp {others})
"""
# An example as its plug-in registers it, and a program that refuses to begin.
WITH_EXAMPLE = """#include "app/program.hpp"
extern "C" void troupe_plugin_register(troupe::Status* answer);
int main(int count, char** words) {
  return troupe::run_program(count, words, [] {
    troupe::Status answer = troupe::Done{};
    troupe_plugin_register(&answer);
    return answer;
  });
}
"""
REFUSES = """#include "app/program.hpp"
#include <stdexcept>
#include <string>
int main(int count, char** words) {
  return troupe::run_program(count, words, [&]() -> troupe::Status {
    if (count > 1 && std::string(words[1]) == "version") throw std::runtime_error("of its own accord");
    if (count > 1 && std::string(words[1]) == "doctor") throw 42;
    return troupe::Error{troupe::Errc::invalid_argument, "no licence", "licence", "buy one"};
  });
}
"""


# With the bench of its plug-in's own tests.
EXAMPLES = {"resampler": Bench, "mixture": Mixture, "distill": Distill, "statistics": ObserverBench, "snake": PolicyBench}
DRAWN = 1


class ProgramBench(Bench):
    """Its commands are those of the program that was built last."""

    example, library_name = EXAMPLE, "weaver"

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.installed, self.binary = self.binary, self.library

    def program(self, name, text, *others):
        source = self.folder / name
        source.mkdir()
        (source / "main.cpp").write_text(text)
        (source / "CMakeLists.txt").write_text(BUILD.format(others=" ".join(str(other) for other in others)))
        return self.built(source) / "own"

    def words(self, library=None):
        return [word for word in super().words(library) if not str(word).startswith("plugins.")]


def linked(bench, name):
    """The bench of an example's plug-in, but for a program that has it linked in."""
    class Linked(EXAMPLES[name]):
        def __init__(self):
            self.cmake, self.prefix, self.library, self.folder = bench.cmake, bench.prefix, None, bench.folder / f"with-{name}"
            self.binary = bench.program(name, WITH_EXAMPLE, self.example / f"{name}.cpp")
            self.folder.mkdir()
            (self.folder / "data").symlink_to(bench.folder / "data")

        def words(self, library=None):
            return [*(word for word in super().words(library) if not str(word).startswith("plugins.")), "plugins.libraries=[]"]

    return Linked()


def the_example_survives_a_killed_node_and_a_restart_and_equals_its_reference(bench):
    bench.survives("weaver")


def a_new_program_passes_its_own_test_under_its_own_name(bench):
    folder = bench.folder / "mine"
    said = ran([bench.installed, "new", "program", "mine", "--dir", folder])
    expect("a program of your own" in said and f"Next:  {folder}/test.sh {bench.prefix}" in said, said)
    expect(not any("weaver" in path.read_text() for path in folder.iterdir()), "the example's name is left in it")
    (folder / "data").symlink_to(bench.folder / "data")
    ran([folder / "test.sh", bench.prefix])


def the_installed_program_does_not_know_what_another_one_registers(bench):
    done = subprocess.run([str(word) for word in (bench.installed, "validate", *bench.words())], capture_output=True, text=True, check=False)
    expect(done.returncode == 2 and "'weaver' is not one of" in done.stderr, f"exit {done.returncode}: {done.stderr}")


def a_node_of_another_build_of_it_is_refused_and_a_copy_of_it_is_not(bench):
    """Replicas that ran different code would train different values, and the engine's commit is the same."""
    copied = shutil.copy(bench.binary, bench.binary.with_name("copied"))
    with bench.head_of_two("copies", bench.job("copies")) as (job, join):
        nodes = [join(program=copied) for _ in range(2)]
        expect(job.process.wait(WITHIN_S) == 0, f"exit {job.process.returncode}\n{nodes[0].stderr.read()[-800:]}")
    with bench.head_of_two("other-build", bench.job("other-build")) as (job, join):
        node = join(program=rebuilt(bench.binary))
        said = node.communicate(timeout=WITHIN_S)[1]
        expect(job.process.wait(WITHIN_S) == 2 and node.returncode == 2, f"exit {job.process.returncode}, {node.returncode}\n{said}")
    expect("is another build of the program: weaver-rebuilt (hash " in said and ", the head weaver (hash " in said, said)
    expect("\n  fix: copy one build of the program to every machine" in said, said)
    expect(not read_lines_so_far(bench.folder / "other-build" / "metrics.jsonl"), "a step was trained")


def examples_that_are_linked_in_survive_on_stages_and_on_replicas_with_deferral(bench):
    """A killed node and a resumed checkpoint in between, and equal to the program's own --reference."""
    for name in drawn_here(EXAMPLES, DRAWN):
        own = linked(bench, name)
        ran(own.job("stages"))
        own.equal(own.reference(), "stages")
        own.survives("replicas", *own.deferral)


def a_program_that_cannot_register_says_why_and_runs_nothing(bench):
    own = bench.program("refuses", REFUSES)
    throws = "what this program registers its parts with throws"
    for command, expected, code in ((["help"], ["no licence", "licence", "buy one"], 2), (["version"], [f"{throws}: of its own accord", "correct the program"], 1),
                                    (["doctor"], [f"{throws} no std::exception", "correct the program"], 1)):
        done = subprocess.run([str(own), *command], capture_output=True, text=True, check=False)
        expect(done.returncode == code and not done.stdout and all(part in done.stderr for part in expected),
               f"{command}: exit {done.returncode}: {done.stdout}{done.stderr}")


CASES = [the_example_survives_a_killed_node_and_a_restart_and_equals_its_reference,
         a_new_program_passes_its_own_test_under_its_own_name, the_installed_program_does_not_know_what_another_one_registers,
         a_node_of_another_build_of_it_is_refused_and_a_copy_of_it_is_not,
         examples_that_are_linked_in_survive_on_stages_and_on_replicas_with_deferral, a_program_that_cannot_register_says_why_and_runs_nothing]


if __name__ == "__main__":
    sys.exit(main(ProgramBench, CASES, *sys.argv[1:]))
