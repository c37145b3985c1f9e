#include "tests/torch_catch.hpp"

#include "runtime/state/incomplete_save.hpp"

#include <ATen/ops/equal.h>

#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>
#include <functional>
#include <string>
#include <utility>

#include "runtime/state/saved_values.hpp"
#include "tests/runtime/state/example_state.hpp"
#include "tests/support/scratch_folder.hpp"

using Catch::Matchers::ContainsSubstring;
using troupe::testing::ScratchFolder;

namespace troupe::state {
namespace {

namespace fs = std::filesystem;

/// What one of the example's two files has of step 4, as the incomplete save of this number.
fs::path write_part(const fs::path& folder, std::int32_t file, std::int64_t number,
                    const std::function<void(CheckpointManifest&)>& edit = {}) {
  const ScratchFolder scratch;
  REQUIRE(write_example_checkpoint(scratch.path(), 4).ok());
  const fs::path whole = checkpoint_folder(scratch.path(), 4);
  CheckpointManifest part = read_manifest(whole).value();
  const CheckpointFile kept = part.files[static_cast<std::size_t>(file)];
  for (const CheckpointShard& shard : std::exchange(part.shards, {}))
    if (shard.file == file)
      part.shards.push_back({shard.key, 0});
    else
      part.missing.push_back({shard.key, "node " + std::to_string(1 - file) + " (host, pid 7)"});
  part.files = {kept};
  if (edit) edit(part);
  const fs::path partial = partial_folder(folder, 4, 1),
                 named = incomplete_folder(folder, 4, number);
  fs::create_directories(partial);
  fs::copy(whole / kept.name, partial / kept.name);
  REQUIRE(complete_checkpoint(partial, named, part, "the job").ok());
  return named;
}

bool are_joined(const fs::path& folder) {
  const auto joined = join_incomplete_saves(folder);
  REQUIRE(joined.ok());
  return joined.value().has_value();
}

TEST_CASE("an incomplete save is no checkpoint, and says what it lacks", "[state]") {
  const ScratchFolder scratch;
  REQUIRE(write_example_checkpoint(scratch.path(), 2).ok());
  const fs::path part = write_part(scratch.path(), 0, 1);
  CHECK(part.filename() == "step-4.incomplete-1");
  fs::create_directories(scratch.path() / "step-x.incomplete-1");
  fs::create_directories(scratch.path() / "step-0.incomplete-1");
  CHECK(checkpoints_in(scratch.path()).size() == 1);
  CHECK((incomplete_saves_in(scratch.path()) ==
         std::vector<std::pair<std::int64_t, fs::path>>{{4, part}}));
  const auto opened = Checkpoint::open(part);
  REQUIRE_FALSE(opened.ok());
  CHECK(opened.error().code == Errc::bad_data);
  CHECK(find_saved_values(part, {}).error() == opened.error());
  const auto found = find_checkpoint(scratch.path());
  REQUIRE(found.newest);
  CHECK(found.newest->manifest().progress.step == 2);
  CHECK(found.passed_over.empty());
  REQUIRE(found.incomplete);
  CHECK(*found.incomplete == opened.error());
  CHECK(found.incomplete->where == part.string());
  CHECK_THAT(
      found.incomplete->message,
      ContainsSubstring("of step 4 only a part is saved; nobody held any more "
                        "llm.a[0:4,2:6], llm.a@moments (last held by node 1 (host, pid 7))"));
  CHECK_THAT(found.incomplete->fix, ContainsSubstring("another save of step 4"));
  const ScratchFolder alone;
  write_part(alone.path(), 0, 1);
  CHECK_THAT(find_saved_values(alone.path(), alone.path()).error().message,
             ContainsSubstring("only a part is saved"));
  // Nor is it counted among those that are kept.
  CHECK(remove_older_checkpoints(scratch.path(), 1).empty());
  CHECK(fs::exists(part));
  REQUIRE(write_example_checkpoint(scratch.path(), 4).ok());
  CHECK_FALSE(find_checkpoint(scratch.path()).incomplete);
}

TEST_CASE("parts of a step say together what they lack", "[state]") {
  const ScratchFolder scratch;
  CHECK_FALSE(why_only_parts(scratch.path()));
  REQUIRE(write_example_checkpoint(scratch.path(), 2).ok());
  CHECK_FALSE(why_only_parts(scratch.path()));
  const fs::path first = write_part(scratch.path(), 0, 1);
  CHECK((why_only_parts(scratch.path()) == why_incomplete(first)));
  write_part(scratch.path(), 0, 2);
  const auto twice = why_only_parts(scratch.path());
  REQUIRE(twice);
  CHECK(twice->code == Errc::bad_data);
  CHECK(twice->where == scratch.path().string());
  CHECK(twice->message ==
        "of step 4 only parts are saved (step-4.incomplete-1 and step-4.incomplete-2), which "
        "together lack llm.a[0:4,2:6], llm.a@moments (last held by node 1 (host, pid 7))");
  CHECK_THAT(twice->fix, ContainsSubstring("another save of step 4"));
  write_part(scratch.path(), 1, 3, [](CheckpointManifest& x) { ++x.progress.tokens; });
  CHECK_THAT(why_only_parts(scratch.path())->message,
             ContainsSubstring("; step-4.incomplete-3 is of another state, or cannot be read"));
  write_part(scratch.path(), 1, 5);
  const auto all = why_only_parts(scratch.path());
  REQUIRE(all);
  CHECK_THAT(all->message, ContainsSubstring("and step-4.incomplete-5), which have all of it"));
  CHECK(all->fix == "--resume puts them together, and goes on from there");
  // Of an older step they are asked for by its number alone.
  REQUIRE(write_example_checkpoint(scratch.path(), 5).ok());
  CHECK_FALSE(why_only_parts(scratch.path()));
  CHECK((why_only_parts(scratch.path(), 4) == all));
  CHECK_FALSE(why_only_parts(scratch.path(), 5));
  CHECK_FALSE(why_only_parts(scratch.path(), 3));
}

TEST_CASE("a part whose manifest cannot be read says so", "[state][errors]") {
  const ScratchFolder scratch;
  const fs::path part = write_part(scratch.path(), 0, 1);
  std::ofstream(part / kManifestFile) << "{";
  const auto why = why_only_parts(scratch.path());
  REQUIRE(why);
  CHECK((*why == read_manifest(part).error()));
}

TEST_CASE("an incomplete save of later steps is laid aside", "[state]") {
  const ScratchFolder scratch;
  const fs::path part = write_part(scratch.path(), 0, 1);
  CHECK(supersede_checkpoints(scratch.path(), 4, 7).empty());
  CHECK(fs::exists(part));
  CHECK(supersede_checkpoints(scratch.path(), 3, 7).empty());
  CHECK_FALSE(fs::exists(part));
  CHECK(fs::exists(scratch.path() / "superseded" / "step-4.incomplete-1-7" / kManifestFile));
}

TEST_CASE("saves that have all of a state together become its checkpoint", "[state]") {
  const ScratchFolder scratch;
  REQUIRE(write_example_checkpoint(scratch.path(), 2).ok());
  write_part(scratch.path(), 0, 1);
  CHECK_FALSE(are_joined(scratch.path()));
  write_part(scratch.path(), 0, 2);  // The same once more.
  CHECK_FALSE(are_joined(scratch.path()));
  write_part(scratch.path(), 1, 3);
  CHECK(are_joined(scratch.path()));
  CHECK(incomplete_saves_in(scratch.path()).empty());
  const auto found = find_checkpoint(scratch.path());
  REQUIRE(found.newest);
  CHECK(found.newest->manifest().progress.step == 4);
  const Box all{{0, 4}, {0, 6}};
  CHECK(at::equal(found.newest->read("llm.a", StateKind::value, all, at::kFloat).value(), exact()));
  CHECK(at::equal(found.newest->read("llm.a", StateKind::moments, all, at::kFloat).value(),
                  moments()));
  CHECK(found.newest->find("vision.b").valid());
}

TEST_CASE("saves of different states, or older ones, are not put together", "[state]") {
  const ScratchFolder scratch;
  write_part(scratch.path(), 0, 1);
  SECTION("another training came to the same step") {
    write_part(scratch.path(), 1, 2, [](CheckpointManifest& x) { ++x.progress.tokens; });
  }
  SECTION("the step was trained again in another layout") {
    write_part(scratch.path(), 1, 2, [](CheckpointManifest& x) { ++x.progress.generation; });
  }
  SECTION("a checkpoint is as new") {
    write_part(scratch.path(), 1, 2);
    REQUIRE(write_example_checkpoint(scratch.path(), 5).ok());
  }
  CHECK_FALSE(are_joined(scratch.path()));
  CHECK(incomplete_saves_in(scratch.path()).size() == 2);
}

TEST_CASE("saves that are damaged stay where they are", "[state][errors]") {
  const ScratchFolder scratch;
  write_part(scratch.path(), 0, 1);
  const fs::path other = write_part(scratch.path(), 1, 2);
  const fs::path file = other / "state-1.0.safetensors";
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekp(-1, std::ios::end);
  bytes.put('x');
  bytes.close();
  const auto joined = join_incomplete_saves(scratch.path());
  REQUIRE_FALSE(joined.ok());
  CHECK(joined.error().code == Errc::bad_data);
  CHECK(incomplete_saves_in(scratch.path()).size() == 2);
}

}  // namespace
}  // namespace troupe::state
