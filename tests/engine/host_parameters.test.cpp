// Parameters of encoders in host memory while the llm computes: the same bits, counted bytes, and
// nothing lost where a step is given up.

#include "tests/torch_catch.hpp"

#include "engine/execution/host_parameters.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/execution/device.hpp"
#include "kernels/linear.hpp"
#include "tests/engine/apart_device.hpp"
#include "tests/engine/tiny_cluster.hpp"

namespace troupe::engine {
namespace {

/// A matrix that trains and a vector that does not, in buffers of their own, and a second matrix
/// behind the first one.
struct Parameters {
  std::vector<models::Parameter> all;

  explicit Parameters(c10::Device place = c10::kCPU) {
    const at::Tensor buffer = at::arange(8, at::kDouble).to(place);
    const at::Tensor other = at::arange(3, at::kDouble).to(place);
    all = {{"a.first", buffer.narrow(0, 0, 4).view({2, 2}).detach()},
           {"a.second", buffer.narrow(0, 4, 4).view({2, 2}).detach()},
           {"b.frozen", other.detach()}};
    for (std::size_t i = 0; i < 2; ++i) all[i].value.requires_grad_(true);
  }
  std::vector<models::Parameter*> pointers() {
    std::vector<models::Parameter*> pointers;
    for (auto& parameter : all) pointers.push_back(&parameter);
    return pointers;
  }
};

/// As a piece of work of a device, to its end.
void run(Device& device, const std::function<void()>& work) {
  const auto launched = device.launch(
      [work]() -> Status {
        work();
        return Done{};
      },
      [] {});
  device.wait();
  REQUIRE(launched->status().ok());
}

TEST_CASE("parameters leave a device and come back with the same bits", "[engine]") {
  for (const double delay_ms : {0.0, 0.1}) {
    const auto device = make_device({.delay_ms_max = delay_ms});
    Parameters parameters;
    const at::Tensor input = at::arange(2, at::kDouble).view({1, 2}).requires_grad_(true);
    const at::Tensor output = kernels::linear(input, parameters.all[0].value, {});
    HostParameters moved(parameters.pointers(), {});
    HostParameters::Moved away;
    Bytes back;
    run(*device, [&] { away = moved.evict(*device); });
    CHECK(moved.is_away());
    CHECK(away.copied == Bytes{(8 + 3) * 8});
    CHECK(away.taken == away.copied);
    CHECK(moved.in_host() == away.taken);
    for (const auto& parameter : parameters.all) CHECK(parameter.value.storage().data() == nullptr);
    run(*device, [&] { back = moved.fetch(); });
    CHECK_FALSE(moved.is_away());
    CHECK(back == away.copied);
    CHECK(at::equal(parameters.all[1].value.detach(), at::arange(4, 8, at::kDouble).view({2, 2})));
    CHECK(at::equal(parameters.all[2].value, at::arange(3, at::kDouble)));
    // What autograd has saved is there again, and has not changed for it.
    torch::autograd::backward({output}, {at::ones_like(output)});
    // Of a sum over both outputs: columns 0 and 2, and 1 and 3.
    CHECK(at::equal(input.grad(), at::arange(2, 6, 2, at::kDouble).view({1, 2})));
  }
}

TEST_CASE("what no update has changed is not copied again", "[engine]") {
  const auto device = make_device({});
  Parameters parameters;
  HostParameters moved(parameters.pointers(), {});
  CHECK(moved.evict(*device).copied == Bytes{(8 + 3) * 8});
  static_cast<void>(moved.fetch());
  const auto again = moved.evict(*device);  // The next window of the same step.
  CHECK(again.copied == Bytes{});
  CHECK(again.taken == Bytes{});
  CHECK(moved.fetch() == Bytes{(8 + 3) * 8});
  {
    const c10::NoGradGuard no_grad;
    parameters.all[0].value.fill_(7);
  }
  moved.changed();
  CHECK(moved.evict(*device).copied == Bytes{8 * 8});  // Frozen ones are there.
  static_cast<void>(moved.fetch());
  CHECK(parameters.all[0].value.detach().eq(7).all().item<bool>());
  CHECK(at::equal(parameters.all[2].value, at::arange(3, at::kDouble)));
}

TEST_CASE("memory that others compute with stays", "[engine]") {
  const auto device = make_device({});
  Parameters parameters;
  auto shared = memory_of({&parameters.all[1]});
  HostParameters moved(parameters.pointers(), shared);
  CHECK(moved.evict(*device).copied == Bytes{3 * 8});
  CHECK(parameters.all[0].value.detach().sum().item<double>() == 0 + 1 + 2 + 3);
  CHECK(moved.fetch() == Bytes{3 * 8});
}

TEST_CASE("parameters leave once and come once", "[engine][errors]") {
  const auto device = make_device({});
  Parameters parameters;
  HostParameters moved(parameters.pointers(), {});
  CHECK_THROWS_AS(moved.fetch(), c10::Error);
  static_cast<void>(moved.evict(*device));
  CHECK_THROWS_AS(moved.evict(*device), c10::Error);
  static_cast<void>(moved.fetch());
}

TEST_CASE("parameters leave a device whose memory no processor can reach", "[engine]") {
  const auto device = make_device(apart());
  Parameters parameters(apart().place);
  HostParameters moved(parameters.pointers(), {});
  at::Tensor seen;
  run(*device, [&] { static_cast<void>(moved.evict(*device)); });
  run(*device, [&] {
    static_cast<void>(moved.fetch());
    seen = device->to_host(parameters.all[1].value.detach());
  });
  CHECK(at::equal(seen, at::arange(4, 8, at::kDouble).view({2, 2})));
}

/// Device 2 has an encoder and layers of the llm, device 0 an encoder alone.
job::Job shared_job(const char* offloads, double late_ms = 0) {
  job::Job job = tiny_job();
  job.scheduler.schedule = "three-phase";
  job.scheduler.offload_encoders = offloads;
  job.train.global_batch_size = 12;  // Pictures in more than one microbatch.
  job.debug.delayed_device_ms = late_ms;
  return job;
}

bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) { return at::equal(x, y); });
}

struct Moves {
  int left = 0, came = 0;
  Bytes away, back;

  explicit Moves(const DeviceReport& report) {
    for (const auto& event : report.events) {
      const bool leaves = event.action.kind == ActionKind::evict_parameters;
      if (leaves || event.action.kind == ActionKind::fetch_parameters) {
        ++(leaves ? left : came);
        (leaves ? away : back) += Bytes{event.bytes};
      }
    }
  }
};

TEST_CASE("parameters in host memory while the llm computes change no bit", "[engine]") {
  for (const double late_ms : {0.0, 0.2})
    for (const bool frozen : {false, true}) {
      CAPTURE(late_ms, frozen);
      auto plain_job = shared_job("off"), job = shared_job("parameters", late_ms);
      plain_job.modules[0].freeze = job.modules[0].freeze = frozen;
      Cluster plain(plain_job), moved(job);
      Bytes first;
      for (const std::int64_t batch : {0, 1}) {
        plain.train(batch);
        moved.train(batch);
        CHECK(equal(plain.parameters(), moved.parameters()));
        CHECK_FALSE(moved.executor(2).has_parameters_away());
        const DeviceReport report = moved.executor(2).take_report();
        const Moves moves(report);
        CHECK(moves.left > 0);
        CHECK(moves.came == moves.left);
        CHECK(moves.back > Bytes{});
        // Of frozen ones the copy of the first step is good.
        if (batch == 0) first = moves.away;
        CHECK((moves.away < first) == (frozen && batch == 1));
        CHECK(report.peak_offloaded == first);
      }
      // Nobody else has that device.
      CHECK(Moves(moved.executor(0).take_report()).left == 0);
      CHECK(Moves(plain.executor(2).take_report()).left == 0);
    }
}

TEST_CASE("parameters that are away come back though the step is given up", "[engine][recovery]") {
  for (const double late_ms : {0.0, 2.0}) {
    CAPTURE(late_ms);
    Executor* watched = nullptr;
    Cluster cluster(shared_job("parameters", late_ms), {}, [&watched](ExecutorOptions& options) {
      if (options.device == DeviceId{2})
        options.yields = [&watched] {
          return watched != nullptr && watched->has_parameters_away();
        };
    });
    const auto before = cluster.parameters();
    watched = &cluster.executor(2);
    cluster.begin(0);
    auto progress = watched->advance();
    for (int round = 0; round < 100'000 && progress.value() == Progress::waiting; ++round) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      progress = watched->advance();
    }
    REQUIRE(progress.value() == Progress::yielded);
    REQUIRE(watched->abandon().ok());
    CHECK_FALSE(watched->has_parameters_away());
    CHECK(equal(cluster.parameters(), before));
  }
}

/// Device 2 begins a step in which its parameters leave before anything computes.
void begin_leaving(Cluster& cluster, SampleStore& store) {
  auto planned = plan_tiny_batch(cluster.setup(), cluster.plan(), store, 0);
  REQUIRE(planned.ok());
  IterationPlan iteration = std::move(planned.value().iteration);
  auto& list = iteration.actions[2];
  const auto leaves = std::ranges::find(list, ActionKind::evict_parameters, &Action::kind);
  REQUIRE(leaves != list.end());
  std::rotate(list.begin(), leaves, leaves + 1);
  REQUIRE(cluster.executor(2).begin(std::make_shared<const IterationPlan>(iteration), store).ok());
}

TEST_CASE("a stage whose parameters are away computes nothing", "[engine][errors]") {
  Cluster cluster(shared_job("parameters"));
  const auto before = cluster.parameters();
  SampleStore store;
  begin_leaving(cluster, store);
  Executor& executor = cluster.executor(2);
  const auto progress = executor.advance();
  REQUIRE_FALSE(progress.ok());
  CHECK(progress.error().message.find("parameters are in host memory") != std::string::npos);
  REQUIRE(executor.abandon().ok());
  CHECK(equal(cluster.parameters(), before));
}

TEST_CASE("nothing is launched behind parameters before they have left", "[engine]") {
  int asked = 0;
  // Launching takes a small part of the delay, on a busy machine too.
  Cluster cluster(shared_job("parameters", 100), {}, [&asked](ExecutorOptions& options) {
    if (options.device == DeviceId{2}) options.yields = [&asked] { return ++asked < 0; };
  });
  SampleStore store;
  begin_leaving(cluster, store);
  REQUIRE(cluster.executor(2).advance().value() == Progress::waiting);
  CHECK(asked == 2);  // They leave; a computation waits.
  REQUIRE(cluster.executor(2).abandon().ok());
}

TEST_CASE("parameters do not leave while somebody copies them", "[engine]") {
  bool may = false;
  Cluster cluster(shared_job("parameters"), {}, [&may](ExecutorOptions& options) {
    if (options.device == DeviceId{2}) options.may_update = [&may] { return may; };
  });
  cluster.begin(0);
  REQUIRE(cluster.executor(2).advance().value() == Progress::waiting);
  CHECK_FALSE(cluster.executor(2).has_parameters_away());
  may = true;
  REQUIRE(cluster.executor(2).advance().ok());
  CHECK(cluster.executor(2).has_parameters_away());
  REQUIRE(cluster.advance_to(Progress::committing).ok());
  CHECK_FALSE(cluster.executor(2).has_parameters_away());
}

}  // namespace
}  // namespace troupe::engine
