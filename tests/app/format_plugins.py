#!/usr/bin/python3
"""Data formats of the user's own: the example built against installed headers and trained, that what it reads is what is
trained, and what faulty ones do.

    format_plugins.py BINARY [CASE...]      BINARY lies in the build folder that is installed from
"""

import json
import sys

from plugins import ROOT, Bench, a_node_finds_its_library_where_its_own_job_says, by_replicas, main, ran
from tests.support.recorded_runs import read_lines
from tests.support.run_cases import expect

EXAMPLE = ROOT / "examples" / "captions"
QUESTION = "<image>\nWhat is this?"

OWN = r"""
#include <stdexcept>
#include <thread>
#include "runtime/data/formats/registry.hpp"
#include "runtime/plugins/entry_point.hpp"
using namespace troupe;
using namespace troupe::data;
using Records = Result<std::vector<Record>>;

Status register_all() {
  for (const auto& [name, read] : std::initializer_list<std::pair<const char*, Records (*)()>>{
           {"endless", []() -> Records { for (;;) std::this_thread::sleep_for(std::chrono::hours(1)); }},
           {"throws", []() -> Records { throw std::runtime_error("of its own accord"); }},
           {"finds-none", []() -> Records { return std::vector<Record>{}; }},
           {"odd-ids", []() -> Records { Record odd; odd.id = "\xff"; return std::vector{odd}; }},
           {"twins", []() -> Records { Record one; one.id = "x"; return std::vector{one, one}; }}})
    if (auto added = register_format({name, [read = read](auto, const auto&) { return read(); }}); !added.ok()) return added;
  return Done{};
}

TROUPE_PLUGIN(register_all)
"""
FAULTS = {"throws": "format 'throws' throws: of its own accord", "finds-none": "format 'finds-none' finds no record",
          "odd-ids": "no UTF-8, of record 0", "twins": "1 sample ids are used again: 'x'"}


class FormatBench(Bench):
    example, library_name = EXAMPLE, "captions.so"
    replicas = by_replicas(('"vision"', *['{node=N,vision="all"}'] * 3), ('"llm"', *['{node=N,llm="all"}'] * 2))

    def __init__(self, *arguments):
        super().__init__(*arguments)
        data = self.folder / "data"
        samples = json.loads((data / "samples.json").read_text())
        first = [sample["image"] if isinstance(sample["image"], str) else sample["image"][0] for sample in samples if sample.get("image")]
        self.pairs = [(image, f"picture {place}\twith a tab") for place, image in enumerate(first)]
        (data / "captions.tsv").write_text("".join(f"{image}\t{text}\n" for image, text in self.pairs))
        self.own = self.built_beside(OWN)

    def words(self, library=None):
        return [*super().words(library), self.source("captions.tsv", "captions")]

    def own_source(self):
        return f'format = "captions"\njson = "{self.folder}/data/captions.tsv"'

    def source(self, file, form):
        return f'data.sources=[{{json="{self.folder}/data/{file}", format="{form}"}}]'


def the_example_survives_a_killed_node_and_a_restart_and_equals_its_reference(bench):
    bench.survives("captions")


def what_a_format_reads_is_what_is_trained(bench):
    """The same conversations in LLaVA's JSON train the same parameters."""
    (bench.folder / "data" / "same.json").write_text(json.dumps(
        [{"id": f"captions.tsv#{place}", "image": image,
          "conversations": [{"from": "human", "value": QUESTION}, {"from": "gpt", "value": text}]}
         for place, (image, text) in enumerate(bench.pairs)]))
    ran(bench.job("of-lines", "train.steps=4"))
    ran(bench.job("of-json", bench.source("same.json", "llava"), "train.steps=4"))
    bench.equal("of-lines", "of-json")
    trained = [line["ids"] for line in read_lines(bench.folder / "of-lines" / "samples.jsonl")]
    expect(len(trained) == 4 and all(name.startswith("captions.tsv#") for step in trained for name in step), f"{trained[:1]}")
    shown = ran([bench.binary, "data", "show", *bench.words(), "-n", "1"])
    expect("picture " in shown, shown[-600:])


def a_line_that_is_no_sample_is_left_out_and_told(bench):
    lines = (bench.folder / "data" / "captions.tsv").read_text().splitlines(keepends=True)
    # As other systems write it: a mark at the begin, two characters at the end of a line.
    text = "\ufeff" + "".join([*lines[:2], "no tab in this one\n", "\n", *lines[2:]]).replace("\n", "\r\n")
    (bench.folder / "data" / "holes.tsv").write_bytes(text.encode())
    ran(bench.job("holes", bench.source("holes.tsv", "captions"), "train.steps=30", "data.max_bad_fraction=0.5"))
    bad = read_lines(bench.folder / "holes" / "bad_samples.jsonl")
    expect({line["id"] for line in bad} == {"holes.tsv#2"}, f"{bad}")
    expect("no tab between picture and caption" in json.dumps(bad) and "holes.tsv:3" in json.dumps(bad), f"{bad}")


def a_faulty_format_ends_by_its_name_before_anything_is_trained(bench):
    for form, fault in FAULTS.items():
        words = [*bench.words(), f'plugins.libraries=["{bench.own}"]', bench.source("captions.tsv", form)]
        for command in (["data", "check", *words], ["train", *words, f"job.run_dir={bench.folder / form}"]):
            said = bench.said(*command, code=3)
            expect(fault in said and "captions.tsv" in said and "fix:" in said, f"{form}: {said[-600:]}")
        expect(not (bench.folder / form).exists(), f"{form}: a run was begun")


def a_format_that_never_returns_ends_whatever_reads_it_by_its_name(bench):
    words = [*bench.words(), f'plugins.libraries=["{bench.own}"]', bench.source("captions.tsv", "endless"), "train.stall_timeout_s=2"]
    for command in (["data", "check", *words], ["train", *words, f"job.run_dir={bench.folder / 'endless'}"]):
        said = bench.said(*command, code=1)
        expect("train.stall_timeout_s: `read` of format 'endless' on captions.tsv has not returned for 2 s" in said, said[-600:])


def a_job_without_its_plugin_names_the_formats_there_are(bench):
    said = bench.said("validate", *bench.words(), "plugins.libraries=[]")
    expect("'captions' is not one of llava" in said, said)
    said = bench.said("validate", *bench.words(bench.folder / "none.so"))
    expect("is not there" in said and "is not one of" not in said, f"a second complaint, which only misleads:\n{said}")


def a_node_without_the_plugin_says_so(bench):
    with bench.waiting_for_nodes("without") as (_, join):
        node = join()
        said = node.communicate(timeout=60)[1]
        expect(node.returncode != 0 and "plugins.libraries[0]" in said and "is not there" in said, f"{node.returncode}: {said}")
        expect("unknown format" not in said, said)


def a_new_format_passes_its_own_test_under_its_own_name(bench):
    folder = bench.folder / "mine"
    said = ran([bench.binary, "new", "format", "mine", "--dir", folder])
    expect("a format of your own" in said and f"Next:  {folder}/test.sh {bench.prefix}" in said, said)
    expect(not any("captions" in path.read_text() for path in folder.iterdir()), "the example's name is left in it")
    said = ran([folder / "test.sh", bench.prefix])
    expect("mine.tsv" in said, said[-800:])
    expect("is a format already" in bench.said("new", "format", "llava", "--dir", bench.folder / "x"), "a name that is taken")


CASES = [the_example_survives_a_killed_node_and_a_restart_and_equals_its_reference, what_a_format_reads_is_what_is_trained,
         a_line_that_is_no_sample_is_left_out_and_told, a_faulty_format_ends_by_its_name_before_anything_is_trained,
         a_format_that_never_returns_ends_whatever_reads_it_by_its_name,
         a_job_without_its_plugin_names_the_formats_there_are, a_node_finds_its_library_where_its_own_job_says,
         a_node_without_the_plugin_says_so, a_new_format_passes_its_own_test_under_its_own_name]


if __name__ == "__main__":
    sys.exit(main(FormatBench, CASES, *sys.argv[1:]))
