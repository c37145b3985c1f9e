// A step whose encoders have what they keep in host memory for a while.

#include "tests/torch_catch.hpp"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <memory>

#include "tests/engine/tiny_cluster.hpp"

namespace troupe::engine {
namespace {

TEST_CASE("what is offloaded is counted both ways, and changes no bit", "[engine]") {
  auto job = tiny_job();
  job.scheduler.schedule = "three-phase";
  job.train.global_batch_size = 12;  // Pictures in more than one microbatch.
  const auto train = [&](const char* what) {
    job.scheduler.offload_encoders = what;
    auto cluster = std::make_unique<Cluster>(job);
    cluster->train(0);
    return cluster;
  };
  const auto plain = train("off"), moved = train("activations");
  CHECK(std::ranges::equal(plain->parameters(), moved->parameters(),
                           [](const auto& a, const auto& b) { return at::equal(a, b); }));
  // The encoder's device, which the llm does not share.
  const DeviceReport report = moved->executor(0).take_report();
  std::int64_t away = 0, back = 0, most = 0;
  for (const auto& event : report.events) {
    if (event.action.kind == ActionKind::offload) away += event.bytes;
    if (event.action.kind == ActionKind::fetch) back += event.bytes;
    most = std::max(most, away - back);
  }
  CHECK(away > 0);
  CHECK(back == away);
  CHECK(report.peak_offloaded == Bytes{most});
  const DeviceReport held = plain->executor(0).take_report();
  CHECK(report.peak_activations < held.peak_activations);
  CHECK(held.peak_offloaded == Bytes{});
}

}  // namespace
}  // namespace troupe::engine
