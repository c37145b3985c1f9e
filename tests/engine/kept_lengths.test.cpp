#include "engine/setup/kept_lengths.hpp"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

#include "engine/profiling/profile_data.hpp"
#include "runtime/data/lengths/length_index.hpp"
#include "runtime/data/made/demo_data.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/runtime/data/temp_folder.hpp"
#include "tests/torch_catch.hpp"

namespace troupe::engine {
namespace {

namespace fs = std::filesystem;

/// A variable of the environment, as long as this lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (before_)
      setenv(name_, before_->c_str(), 1);
    else
      unsetenv(name_);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST_CASE("lengths are kept beside the run folder, where the job says, or nowhere", "[engine]") {
  const data::TempFolder folder;
  job::Job job;
  job.job.run_dir = folder.path() / "runs" / "first";
  CHECK(lengths_folder(job, {}) == folder.path() / "runs" / "lengths");
  job.data.index = (folder.path() / "here").string();
  CHECK(lengths_folder(job, {}) == folder.path() / "here");
  job.data.index = job::kIndexOff;
  CHECK_FALSE(lengths_folder(job, {}));
  job.data.index = job::kIndexAuto;
  job.job.run_dir = "runs/first";
  CHECK(lengths_folder(job, {}) == fs::current_path() / "runs" / "lengths");
}

TEST_CASE("a node without the run folder keeps lengths in its user's folder of caches",
          "[engine]") {
  const data::TempFolder folder;
  const job::Job job;
  const fs::path run = folder.path() / "runs" / "first";
  {
    const Variable cache("XDG_CACHE_HOME", folder.path() / "cache");
    CHECK(lengths_folder(job, run) == folder.path() / "cache" / "troupe" / "lengths");
  }
  {
    const Variable cache("XDG_CACHE_HOME", "");
    const Variable home("HOME", folder.path());
    CHECK(lengths_folder(job, run) == folder.path() / ".cache" / "troupe" / "lengths");
    const Variable nowhere("HOME", "");
    CHECK_FALSE(lengths_folder(job, run));
  }
  fs::create_directories(run.parent_path());
  CHECK(lengths_folder(job, run) == folder.path() / "runs" / "lengths");
}

/// The tiny job on demo data; samples with clips are bad by their record alone.
struct DemoJob {
  data::TempFolder folder;
  JobSetup setup;

  DemoJob() {
    const auto made = data::make_demo_data(folder.path() / "data", {.samples = 40, .seed = 3});
    REQUIRE(made.ok());
    auto job = tiny_job();
    job.job.run_dir = folder.path() / "runs" / "first";
    job.data.sources.resize(1);
    job.data.sources[0].json = made.value().json;
    job.data.sources[0].format = "llava";
    setup = prepare(job).value();
  }
};

TEST_CASE("a second look at the data of a job measures nothing", "[engine]") {
  DemoJob demo;
  const auto without = profile_data(demo.setup).value();
  CHECK(without.indexed == 0);
  // Files that were written a moment ago are not kept.
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));

  keep_lengths(demo.setup);
  REQUIRE(demo.setup.lengths);
  const auto cold = profile_data(demo.setup, {.threads = 2, .on_progress = {}}).value();
  CHECK(cold.indexed < 20);  // Texts that occur twice.
  CHECK(release_lengths(demo.setup).empty());
  CHECK_FALSE(demo.setup.lengths);
  CHECK_FALSE(fs::is_empty(demo.folder.path() / "runs" / "lengths"));

  keep_lengths(demo.setup);
  const auto warm = profile_data(demo.setup, {.threads = 2, .on_progress = {}}).value();
  CHECK(warm.indexed == 40);
  CHECK(warm.bad == without.bad);
  CHECK((warm.llm_tokens == without.llm_tokens));
  CHECK((warm.trained_tokens == without.trained_tokens));
  const auto drawn = draw_shapes(demo.setup, 30, 5).value();
  const auto batches = batch_shapes(demo.setup, 0, 2).value();
  release_lengths(demo.setup);
  CHECK((drawn == draw_shapes(demo.setup, 30, 5).value()));
  CHECK((batches == batch_shapes(demo.setup, 0, 2).value()));
}

TEST_CASE("lengths of a source that a node does not see are none of its business", "[engine]") {
  DemoJob demo;
  demo.setup.data.sources.front().is_here = false;
  keep_lengths(demo.setup);
  demo.setup.lengths->put(0, {}, std::vector<std::int64_t>{1});
  CHECK_FALSE(demo.setup.lengths->find(0, {}));
  CHECK(release_lengths(demo.setup).empty());
  CHECK_FALSE(fs::exists(demo.folder.path() / "runs" / "lengths"));
}

}  // namespace
}  // namespace troupe::engine
