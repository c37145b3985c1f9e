// The list of keys that `troupe help keys` prints: complete, and true to what job files are read
// by.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <set>

#include "runtime/job/key_list.hpp"
#include "runtime/job/key_meanings.hpp"
#include "tests/runtime/job/job_files.hpp"

using namespace troupe;
using namespace troupe::job;
using Catch::Matchers::ContainsSubstring;

namespace {

KeyEntry entry_of(const std::string& path) {
  for (auto& entry : key_list())
    if (entry.path == path) return entry;
  FAIL("no key " << path);
  return {};
}

/// Of a family, which tells no meanings.
bool is_of_config(const std::string& path) { return path.starts_with("modules.NAME.config."); }

}  // namespace

TEST_CASE("every key has a meaning, and every meaning a key", "[job]") {
  std::set<std::string> paths;
  for (const auto& entry : key_list()) {
    CAPTURE(entry.path);
    paths.insert(entry.path);
    CHECK_FALSE(entry.takes.empty());
    CHECK(entry.meaning.empty() == is_of_config(entry.path));
    CHECK(entry.path.ends_with(entry.key()));
  }
  for (const auto& meaning : key_meanings()) {
    CAPTURE(meaning.path);
    CHECK(paths.contains(std::string(meaning.path)));
  }
  CHECK(key_meanings().size() > 90);
}

TEST_CASE("a key is listed with what it takes and its default", "[job]") {
  const auto batch = entry_of("train.global_batch_size");
  CHECK(batch.section == "[train]");
  CHECK(batch.preset == "16");
  CHECK(batch.takes == "integer, 1 to 100000000");
  CHECK(entry_of("train.steps").takes == "integer, at least 1");
  CHECK(entry_of("optimizer.betas").preset == "[0.9, 0.95]");
  CHECK(entry_of("train.dtype").takes == "\"fp32\", \"bf16\" or \"fp64\"");
  CHECK(entry_of("train.dtype").preset == "\"fp32\"");
  CHECK(entry_of("data.shuffle").preset == "true");
  CHECK(entry_of("job.run_dir").preset == "runs/NAME OF THE JOB");
  CHECK(entry_of("data.sources[].json").section == "[[data.sources]]");
  CHECK(entry_of("modules.NAME.config.encoder_layers").section ==
        "[modules.NAME.config] of whisper");
  CHECK_THAT(entry_of("balancer.policy").takes, ContainsSubstring("\"dflop\""));
}

TEST_CASE("defaults of the list are those of a job", "[job]") {
  // Given as they are listed they change nothing. What depends on other keys is told in words.
  const JobFolder folder;
  const auto file = folder.write("job.toml", kSmallJob);
  const auto without = read_job(file, {});
  REQUIRE(without.ok());
  std::vector<std::string> given;
  for (const auto& entry : key_list()) {
    const bool is_of_table =
        entry.path.find("NAME") == std::string::npos && entry.path.find("[]") == std::string::npos;
    if (!entry.preset.empty() && is_of_table && meaning_of(entry.path).preset.empty())
      given.push_back(entry.path + "=" + entry.preset);
  }
  CHECK(given.size() > 50);
  // Of these the job says its own.
  std::erase_if(given, [&](const std::string& word) {
    return without.loaded.origins.contains(word.substr(0, word.find('=')));
  });
  const auto with = read_job(file, given);
  INFO(shown(with));
  REQUIRE(with.ok());
  CHECK(with.loaded.job == without.loaded.job);
}
