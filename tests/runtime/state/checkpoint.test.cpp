#include "tests/torch_catch.hpp"

#include "runtime/state/checkpoint.hpp"

#include <ATen/ops/equal.h>

#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>
#include <string>

#include "runtime/state/checkpoint_keeping.hpp"
#include "runtime/state/file_digest.hpp"
#include "runtime/state/saved_values.hpp"
#include "tests/runtime/state/example_state.hpp"
#include "tests/support/scratch_folder.hpp"

using Catch::Matchers::ContainsSubstring;
using troupe::testing::ScratchFolder;

namespace troupe::state {
namespace {

namespace fs = std::filesystem;

const Box kAll{{0, 4}, {0, 6}};

/// The example as a checkpoint of this step; where it is.
fs::path write_example(const fs::path& folder, std::int64_t step, Dtype dtype = Dtype::fp32) {
  REQUIRE(write_example_checkpoint(folder, step, dtype).ok());
  CHECK_FALSE(fs::exists(partial_folder(folder, step, 1)));
  return checkpoint_folder(folder, step);
}

void flip_a_bit(const fs::path& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-5, std::ios::end);
  const char byte = static_cast<char>(file.get());
  file.seekp(-5, std::ios::end);
  file.put(static_cast<char>(byte ^ 4));
}

TEST_CASE("any box of a checkpoint is put together from its shards", "[state]") {
  const ScratchFolder scratch;
  const auto checkpoint = Checkpoint::open(write_example(scratch.path(), 4));
  REQUIRE(checkpoint.ok());
  CHECK(checkpoint.value().verify().ok());
  const auto read = [&](StateKind kind, const Box& box, at::ScalarType type) {
    return checkpoint.value().read("llm.a", kind, box, type).value();
  };
  CHECK(at::equal(read(StateKind::value, kAll, at::kFloat), exact()));
  // Columns 1 to 5 lie in both files.
  CHECK(at::equal(read(StateKind::value, {{1, 3}, {1, 5}}, at::kFloat),
                  exact().narrow(0, 1, 2).narrow(1, 1, 4)));
  CHECK(
      at::equal(read(StateKind::moments, {{2, 4}, {0, 6}}, at::kFloat), moments().narrow(1, 2, 2)));
  // A job that goes on in another type: its values are the nearest, its masters the values.
  CHECK(at::equal(read(StateKind::value, kAll, at::kDouble), exact().to(at::kDouble)));
  CHECK(at::equal(read(StateKind::master, kAll, at::kFloat), exact()));
  CHECK(checkpoint.value().read("llm.b", StateKind::value, kAll, at::kFloat).error().code ==
        Errc::not_found);
  CHECK_THAT(
      checkpoint.value().read("vision.b", StateKind::moments, {{0, 3}}, at::kFloat).error().message,
      ContainsSubstring("no optimizer state of 'vision.b'"));
}

TEST_CASE("a wider type comes from the exact copy", "[state]") {
  const ScratchFolder scratch;
  const auto checkpoint = Checkpoint::open(write_example(scratch.path(), 4, Dtype::bf16)).value();
  const auto value = checkpoint.read("llm.a", StateKind::value, kAll, at::kFloat).value();
  CHECK(at::equal(value, exact()));
  const auto narrow = checkpoint.read("llm.a", StateKind::value, kAll, at::kBFloat16).value();
  CHECK(at::equal(narrow, exact().to(at::kBFloat16)));
}

TEST_CASE("the newest whole checkpoint is found, and why newer ones are not taken", "[state]") {
  const ScratchFolder scratch;
  CHECK(find_checkpoint(scratch.path() / "nowhere").newest == nullptr);
  for (const std::int64_t step : {2, 4, 10}) write_example(scratch.path(), step);
  fs::create_directories(scratch.path() / ".step-12.partial-1");
  fs::create_directories(scratch.path() / "step-x");
  CHECK(checkpoints_in(scratch.path()).size() == 3);
  auto found = find_checkpoint(scratch.path());
  REQUIRE(found.newest);
  CHECK(found.newest->manifest().progress.step == 10);
  CHECK(found.passed_over.empty());

  const fs::path newest = scratch.path() / "step-10";
  std::string named = "state-1.0.safetensors";
  SECTION("a flipped bit") { flip_a_bit(newest / named); }
  SECTION("a cut file") { fs::resize_file(newest / named, 50); }
  SECTION("a missing file") { fs::remove(newest / named); }
  SECTION("a changed job file") { flip_a_bit(newest / (named = kCheckpointJobFile)); }
  SECTION("a torn manifest") { fs::resize_file(newest / (named = kManifestFile), 300); }
  SECTION("no manifest") { fs::remove(newest / (named = kManifestFile)); }
  SECTION("a copy under the name of another step") {
    fs::remove_all(newest);
    fs::copy(scratch.path() / "step-2", scratch.path() / (named = "step-10"),
             fs::copy_options::recursive);
  }
  found = find_checkpoint(scratch.path());
  REQUIRE(found.newest);
  CHECK(found.newest->manifest().progress.step == 4);
  REQUIRE(found.passed_over.size() == 1);
  CHECK_THAT(found.passed_over[0].where, ContainsSubstring(named));
}

TEST_CASE("a share that is not there keeps a checkpoint from its name", "[state][errors]") {
  const ScratchFolder scratch;
  auto manifest = example_manifest();
  const fs::path partial = partial_folder(scratch.path(), 4, 1);
  fs::create_directories(partial);
  const auto complete = [&] {
    return complete_checkpoint(partial, scratch.path() / "step-4", manifest, "job");
  };
  auto done = complete();
  REQUIRE_FALSE(done.ok());
  CHECK_THAT(done.error().where, ContainsSubstring("state-0.0.safetensors"));
  CHECK_THAT(done.error().fix, ContainsSubstring("checkpoint.dir"));
  std::ofstream(partial / manifest.files[0].name) << "short";
  CHECK_THAT(complete().error().message, ContainsSubstring("5 of 10 bytes"));
  CHECK(checkpoints_in(scratch.path()).empty());
}

TEST_CASE("what nobody could read takes no name", "[state][errors]") {
  const ScratchFolder scratch;
  write_example(scratch.path(), 4);
  CheckpointManifest manifest = example_manifest(4);
  manifest.shards.pop_back();  // A parameter without value.
  for (auto& file : manifest.files) file.bytes = 1;
  const auto partial = partial_folder(scratch.path(), 4, 2);
  fs::create_directories(partial);
  for (const auto& file : manifest.files) std::ofstream(partial / file.name) << "x";
  const auto refused =
      complete_checkpoint(partial, checkpoint_folder(scratch.path(), 4), manifest, "job");
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().where == partial.string());
  CHECK(find_checkpoint(scratch.path()).newest);
}

TEST_CASE("older checkpoints go, cut-off ones too, and newer ones are laid aside", "[state]") {
  const ScratchFolder scratch;
  for (const std::int64_t step : {2, 4, 10, 12}) write_example(scratch.path(), step);
  CHECK(remove_older_checkpoints(scratch.path(), 0).empty());
  CHECK(checkpoints_in(scratch.path()).size() == 4);
  CHECK(remove_older_checkpoints(scratch.path(), 3).empty());
  CHECK(checkpoints_in(scratch.path()).begin()->first == 4);
  CHECK(supersede_checkpoints(scratch.path(), 10, 7).empty());
  CHECK(checkpoints_in(scratch.path()).rbegin()->first == 10);
  CHECK(fs::exists(scratch.path() / "superseded" / "step-12-7" / kManifestFile));
  write_example(scratch.path(), 12);
  CHECK(supersede_checkpoints(scratch.path(), 10, 7).empty());
  CHECK(fs::exists(scratch.path() / "superseded" / "step-12-7.2" / kManifestFile));
  // Of a job that begins no checkpoint is its own.
  CHECK(supersede_checkpoints(scratch.path(), 0, 1).empty());
  CHECK(checkpoints_in(scratch.path()).empty());
  fs::create_directories(scratch.path() / ".step-14.partial-3");
  fs::create_directories(scratch.path() / ".step-2.gone");
  fs::create_directories(scratch.path() / ".other");
  discard_leftovers(scratch.path());
  CHECK_FALSE(fs::exists(scratch.path() / ".step-14.partial-3"));
  CHECK_FALSE(fs::exists(scratch.path() / ".step-2.gone"));
  CHECK(fs::exists(scratch.path() / ".other"));
}

TEST_CASE("saved values are found in a run, a checkpoint, or a file", "[state]") {
  const ScratchFolder scratch;
  const fs::path run = scratch.path() / "run", folder = run / "checkpoints";
  CHECK(find_saved_values(run, run / "checkpoints").error().code == Errc::not_found);
  write_example(folder, 2);
  const fs::path newest = write_example(folder, 4);
  CHECK(find_saved_values(run, run / "checkpoints").value() == newest);
  CHECK(find_saved_values(folder / "step-2", {}).value() == folder / "step-2");
  const auto saved = SavedValues::open(newest).value();
  CHECK(saved.shapes().size() == 2);
  CHECK((saved.shapes().at("llm.a") == std::vector<std::int64_t>{4, 6}));
  CHECK(at::equal(saved.read("llm.a", at::kDouble).value(), exact().to(at::kDouble)));
  flip_a_bit(newest / "state-0.0.safetensors");
  CHECK(find_saved_values(newest, {}).error().code == Errc::bad_data);
  CHECK(find_saved_values(run, run / "checkpoints").value() == folder / "step-2");
  // A run that has come to its end has a model.
  const fs::path model = run / "model" / "model.safetensors";
  REQUIRE(write_safetensors(model, {{"llm.a", exact()}}).ok());
  CHECK(find_saved_values(run, run / "checkpoints").value() == model);
  const auto file = SavedValues::open(model).value();
  CHECK(at::equal(file.read("llm.a", at::kFloat).value(), exact()));
  CHECK(file.read("llm.b", at::kFloat).error().code == Errc::not_found);
}

TEST_CASE("a digest is that of sha256sum", "[state]") {
  CHECK(sha256_of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const ScratchFolder scratch;
  std::ofstream(scratch.path() / "abc") << "abc";
  CHECK(sha256_of_file(scratch.path() / "abc").value() == sha256_of("abc"));
  CHECK(sha256_of_file(scratch.path() / "none").error().code == Errc::io_failed);
}

}  // namespace
}  // namespace troupe::state
