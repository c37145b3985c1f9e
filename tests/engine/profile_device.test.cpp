#include "tests/torch_catch.hpp"

#include <cstdlib>

#include "engine/execution/device_place.hpp"
#include "engine/profiling/profile_file.hpp"
#include "engine/profiling/profile_run.hpp"
#include "kernels/gpu_query.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/support/scratch_folder.hpp"

namespace troupe::engine {
namespace {

/// A profile of the tiny job in a file that the job names, measured on this CPU.
struct Named {
  testing::ScratchFolder folder;
  JobSetup setup = prepare(tiny_job()).value();
  ProfileOptions options;

  Named() {
    options.file = folder / "mine.json";
    options.tokens_max = 64;
    options.budget_s = 0.5;
    REQUIRE(obtain_profile(setup, options).ok());
  }

  /// As if it had been measured on another device.
  void call_it(const std::string& device) {
    auto stored = load_profile(options.file).value();
    stored.key.device = device;
    REQUIRE(save_profile(options.file, stored).ok());
  }
};

TEST_CASE("a profile of another kind of device is refused", "[engine][errors]") {
  Named named;
  named.setup.job.cluster.device = "abacus";
  CHECK(obtain_profile(named.setup, named.options).error().code == Errc::invalid_argument);
}

TEST_CASE("a device that is not here can be named and not measured", "[engine][errors]") {
  Named named;
  named.setup.job.cluster.device = "abacus";
  named.call_it("abacus");
  CHECK(obtain_profile(named.setup, named.options).value().reused);
  named.options.force = true;
  const auto measured = obtain_profile(named.setup, named.options);
  REQUIRE_FALSE(measured.ok());
  CHECK(measured.error().code == Errc::unavailable);
  CHECK(measured.error().where == "cluster.device");
}

TEST_CASE("a head without GPUs takes the profile of theirs that is named", "[engine]") {
  if (kernels::query_gpus().ok()) return;  // It knows its own.
  Named named;
  named.setup.job.cluster.device = "cuda";
  named.call_it("NVIDIA H100 80GB HBM3");
  CHECK(obtain_profile(named.setup, named.options).value().reused);
}

}  // namespace
}  // namespace troupe::engine
