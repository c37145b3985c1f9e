#include "kernels/gpu_query.hpp"

#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>

using namespace troupe;
using namespace troupe::kernels;

TEST_CASE("a machine without a GPU says so and what to do", "[kernels][errors]") {
  const auto gpus = query_gpus();
  if (gpus) SKIP("this machine has a GPU");
  CHECK(gpus.error().code == Errc::unavailable);
  CHECK_FALSE(gpus.error().message.empty());
  CHECK_FALSE(gpus.error().fix.empty());
  CHECK(query_gpus().error() == gpus.error());  // Asking again is harmless.
  const auto system = query_gpu_system();
  REQUIRE_FALSE(system.ok());
  CHECK(system.error().code == Errc::unavailable);
}

TEST_CASE("GPUs are listed with their memory", "[kernels][gpu]") {
  const auto gpus = query_gpus();
  if (!gpus) SKIP(gpus.error().message);
  REQUIRE_FALSE(gpus.value().empty());
  std::set<std::string> uuids;
  for (std::size_t i = 0; i < gpus.value().size(); ++i) {
    const auto& gpu = gpus.value()[i];
    CHECK(gpu.index == static_cast<int>(i));
    CHECK_FALSE(gpu.name.empty());
    CHECK(gpu.memory > Bytes{std::int64_t{1} << 30});
    CHECK(gpu.multiprocessors > 0);
    CHECK(gpu.capability >= 50);
    CHECK(gpu.uuid.size() == 40);
    CHECK(gpu.uuid.starts_with("GPU-"));
    CHECK(uuids.insert(gpu.uuid).second);
  }
}

TEST_CASE("GPUs have a driver, and know whom they reach", "[kernels][gpu]") {
  const auto gpus = query_gpus();
  if (!gpus) SKIP(gpus.error().message);
  const auto system = query_gpu_system();
  REQUIRE(system.ok());
  CHECK(has_cuda());
  CHECK(system.value().driver_cuda >= 11000);
  CHECK(system.value().toolkit_cuda >= 11000);
  for (const auto& [one, other] : system.value().apart) {
    CHECK(one < other);
    CHECK(other < static_cast<int>(gpus.value().size()));
  }
}
