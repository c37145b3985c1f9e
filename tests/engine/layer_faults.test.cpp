#include "tests/torch_catch.hpp"

#include "engine/execution/device_errors.hpp"
#include "engine/execution/layer_faults.hpp"

#include <c10/util/Exception.h>

#include <new>
#include <stdexcept>
#include <string>

#include "engine/profiling/profile_layers.hpp"
#include "runtime/vocabulary/user_code.hpp"
#include "tests/engine/faulty_family.hpp"
#include "tests/engine/tiny_job.hpp"

namespace troupe::engine {
namespace {

/// What is told of layers that throw this.
template <class Thrown>
Error told_of(const Thrown& thrown) {
  try {
    throw thrown;
  } catch (...) {
    return layer_fault("llm.block");
  }
}

TEST_CASE("what layers throw is told in its own words, and where", "[engine][errors]") {
  const Error own = told_of(std::runtime_error("too tired\nand more"));
  CHECK(own.code == Errc::internal);
  CHECK(own.where == "llm.block");
  CHECK(own.message == "throws: too tired");
  CHECK(own.fix.find("`troupe check JOB`") != std::string::npos);
  CHECK(told_of(c10::Error({"f", "g.cpp", 1}, "no such shape")).message.find("LibTorch: ") == 0);
  const Error orderless = told_of(c10::Error(
      {"f", "g.cpp", 1}, "put_ does not have a deterministic implementation, but you set what"));
  CHECK(orderless.message == "LibTorch: operator 'put_' has no fixed order on its device");
  CHECK(orderless.where == "llm.block");
  CHECK(orderless.fix == kIndeterminateFix);
  CHECK(told_of(42).message == "throws no std::exception");
  const Error full = told_of(std::bad_alloc());
  CHECK(full.code == Errc::unavailable);
  CHECK(full.message == "out of memory");
  // Its words name the function already.
  CHECK_THROWS_AS(told_of(UserFault("`update` of family 'mine'", "throws: no")), UserFault);
}

TEST_CASE("a layer that throws while it is measured is an error of its kind", "[engine][errors]") {
  register_faulty_family();
  const auto expect = [](const std::string& fault, const std::string& said) {
    job::Job job = tiny_job();
    job.modules[1].family = "faulty";
    job.modules[1].config = FaultyConfig{fault};
    const JobSetup setup = prepare(job).value();
    QuietWatch watch(machine_clocks(), 100);
    const auto profiles = profile_layers(setup, {0.5, 1, 64, {}}, watch);
    REQUIRE_FALSE(profiles.ok());
    CHECK(profiles.error().where == "projector.faulty");
    INFO(profiles.error().message);
    CHECK(profiles.error().message.starts_with(said));
  };
  expect("throws", "throws: too tired");
  // A value that does not lie as it was given, before anything of it runs.
  expect("turns", "LibTorch: ");
}

}  // namespace
}  // namespace troupe::engine
