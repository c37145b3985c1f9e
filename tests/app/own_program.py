#!/usr/bin/python3
"""Programs of the user's own: built against what is installed in an empty prefix, with the policy, or the family, that they
register; trained, killed and started again like `troupe` itself.

    own_program.py BINARY [CASE...]      BINARY lies in the build folder that is installed from
"""

import subprocess
import sys

from plugins import EXAMPLE as FAMILY
from plugins import ROOT, Bench, main, ran
from tests.support.run_cases import expect

EXAMPLE = ROOT / "examples" / "weaver"
BUILD = """cmake_minimum_required(VERSION 3.25)
set(CMAKE_BUILD_TYPE Release CACHE STRING "")
project(own LANGUAGES CXX)
find_package(troupe REQUIRED COMPONENTS engine)
troupe_program(own main.cpp {others})
"""
# The family of the example as its plug-in registers it, and a program that refuses to begin.
WITH_FAMILY = """#include "app/program.hpp"
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
    return troupe::Error{troupe::Errc::invalid_argument, "no licence", "licence", "buy one"};
  });
}
"""


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


def a_family_is_linked_in_and_trains_over_two_stages_like_its_reference(bench):
    own = bench.program("family", WITH_FAMILY, FAMILY / "resampler.cpp")
    words = [FAMILY / "job.toml", *bench.words()[1:], "plugins.libraries=[]"]
    for name, more in (("staged", []), ("whole", ["--reference"])):
        ran([own, "train", *words, f"job.run_dir={bench.folder / name}", *more])
    bench.equal("whole", "staged")


def a_program_that_cannot_register_says_why_and_runs_nothing(bench):
    own = bench.program("refuses", REFUSES)
    for command, expected, code in ((["help"], ["no licence", "licence", "buy one"], 2), (["version"], ["of its own accord"], 1)):
        done = subprocess.run([str(own), *command], capture_output=True, text=True, check=False)
        expect(done.returncode == code and not done.stdout and all(part in done.stderr for part in expected),
               f"{command}: exit {done.returncode}: {done.stdout}{done.stderr}")


CASES = [the_example_survives_a_killed_node_and_a_restart_and_equals_its_reference,
         a_new_program_passes_its_own_test_under_its_own_name, the_installed_program_does_not_know_what_another_one_registers,
         a_family_is_linked_in_and_trains_over_two_stages_like_its_reference, a_program_that_cannot_register_says_why_and_runs_nothing]


if __name__ == "__main__":
    sys.exit(main(ProgramBench, CASES, *sys.argv[1:]))
