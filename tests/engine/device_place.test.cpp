// Which operators LibTorch may take on accelerators. Where devices lie: accelerator.test.cpp.

#include "tests/torch_catch.hpp"

#include "engine/execution/device_place.hpp"

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "engine/execution/device_errors.hpp"
#include "tests/engine/apart_device.hpp"

namespace troupe::engine {
namespace {

constexpr const char* kWorkspace = "CUBLAS_WORKSPACE_CONFIG";

std::optional<std::string> workspace() {
  const char* word = std::getenv(kWorkspace);
  return word == nullptr ? std::nullopt : std::optional<std::string>(word);
}

/// Leaves LibTorch's rules, and cuBLAS's word, as they were.
class Restored {
 public:
  Restored() = default;
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;
  ~Restored() {
    at::globalContext().setDeterministicAlgorithms(rule_, /*warn_only=*/false);
    at::globalContext().setDeterministicFillUninitializedMemory(fills_);
    if (word_)
      setenv(kWorkspace, word_->c_str(), 1);
    else
      unsetenv(kWorkspace);
  }

 private:
  bool rule_ = at::globalContext().deterministicAlgorithms();
  bool fills_ = at::globalContext().deterministicFillUninitializedMemory();
  std::optional<std::string> word_ = workspace();
};

/// What LibTorch says where an operator without a fixed order is taken; empty: nothing.
std::string refusal() {
  try {
    at::Context::alertNotDeterministic("put_");
  } catch (const c10::Error& error) {
    return error.msg();
  }
  return "";
}

TEST_CASE("an accelerator's operators have a fixed order, unless the job lets them be",
          "[engine][errors]") {
  const Restored restored;
  at::globalContext().setDeterministicAlgorithms(false, false);
  REQUIRE(choose_operators(c10::Device(c10::kCPU), true).ok());
  CHECK(refusal().empty());  // Nothing is asked of a CPU's.
  REQUIRE(apart().place.index() == 1);
  CHECK(refusal().empty());  // Nobody computes there yet.
  CHECK(usable_place("apart", 1, true).value() == apart().place);
  CHECK(indeterminate_operator(refusal()).value_or("") ==
        "operator 'put_' has no fixed order on its device");
  CHECK_FALSE(at::globalContext().deterministicFillUninitializedMemory());
  REQUIRE(usable_place("apart", 1, false).ok());
  CHECK(refusal().empty());
  CHECK_FALSE(indeterminate_operator("shape '[3]' is invalid"));
}

TEST_CASE("cuBLAS must add up in a fixed order, unless the job lets it be", "[engine][errors]") {
  const Restored restored;
  const c10::Device gpu(c10::kCUDA, 0);  // Nothing is asked of it.
  setenv(kWorkspace, ":0:0", 1);
  const Status refused = choose_operators(gpu, true);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::unavailable);
  CHECK(refused.error().where == "cluster.device");
  CHECK(refused.error().message.find("CUBLAS_WORKSPACE_CONFIG=':0:0'") != std::string::npos);
  CHECK(refused.error().fix.find("train.deterministic = false") != std::string::npos);
  CHECK(choose_operators(gpu, false).ok());
  for (const char* word : {":4096:8", ":16:8"}) {
    setenv(kWorkspace, word, 1);
    CHECK(choose_operators(gpu, true).ok());
  }
}

}  // namespace
}  // namespace troupe::engine
