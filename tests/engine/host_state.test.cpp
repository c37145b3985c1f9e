// Moments of encoders in host memory but for their update: the same bits, counted bytes, and
// nothing lost where a step is given up.

#include "tests/torch_catch.hpp"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "runtime/vocabulary/host_state.hpp"
#include "scheduler/cost/state_bytes.hpp"
#include "tests/engine/tiny_cluster.hpp"

namespace troupe::engine {
namespace {

job::Job tiny_job_with(const char* offloads, Dtype dtype = Dtype::fp64) {
  job::Job job = tiny_job();
  job.train.dtype = dtype;
  job.scheduler.offload_encoders = offloads;
  return job;
}

bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) { return at::equal(x, y); });
}

/// Masters and moments as the first user of each group has them, in order.
std::vector<at::Tensor> moments_of(Cluster& cluster) {
  std::vector<at::Tensor> copies;
  for (std::size_t g = 0; g < cluster.plan().groups.size(); ++g)
    for (const state::AdamWState& own : cluster.state(GroupId{g}, 0).optimizers())
      for (const at::Tensor& tensor : {own.master, own.exp_avg, own.exp_avg_sq})
        if (tensor.defined()) copies.push_back(tensor.clone());
  return copies;
}

TEST_CASE("moments in host memory are counted both ways, and change no bit", "[engine]") {
  for (const Dtype dtype : {Dtype::fp64, Dtype::bf16})
    for (const double late_ms : {0.0, 0.2}) {
      CAPTURE(static_cast<int>(dtype), late_ms);
      auto job = tiny_job_with("moments", dtype);
      job.debug.delayed_device_ms = late_ms;
      Cluster plain(tiny_job_with("off", dtype)), moved(job);
      for (Cluster* cluster : {&plain, &moved})
        for (const std::int64_t batch : {0, 1}) cluster->train(batch);
      CHECK(equal(plain.parameters(), moved.parameters()));
      CHECK(equal(moments_of(plain), moments_of(moved)));
      // The first encoder's device, which has nothing else.
      double away = 0;
      for (std::size_t g = 0; g < moved.plan().groups.size(); ++g) {
        if (!moments_in_host(moved.plan(), GroupId{g})) continue;
        CHECK_FALSE(moved.state(GroupId{g}, 0).has_fetched_state());
        away += static_cast<double>(moved.plan().groups[g].elements) *
                scheduler::moment_bytes_per_element(dtype);
      }
      const Bytes bytes{static_cast<std::int64_t>(away)};
      REQUIRE(bytes > Bytes{});
      const DeviceReport report = moved.executor(0).take_report();
      Bytes came, went;
      for (const auto& event : report.events) {
        if (event.action.kind == ActionKind::fetch_state) came += Bytes{event.bytes};
        if (event.action.kind == ActionKind::offload_state) went += Bytes{event.bytes};
      }
      CHECK(came == bytes);
      CHECK(went == bytes);
      CHECK(report.peak_offloaded == bytes);
      const DeviceReport kept = plain.executor(0).take_report();
      CHECK(kept.peak_offloaded == Bytes{});
      if (late_ms == 0) CHECK(report.peak_activations == kept.peak_activations);
      // Of an llm nothing is there.
      CHECK(moved.executor(1).take_report().peak_offloaded == Bytes{});
    }
}

TEST_CASE("both words offload moments and activations", "[engine]") {
  auto job = tiny_job_with("both");
  job.scheduler.schedule = "three-phase";
  job.train.global_batch_size = 12;  // Pictures in more than one microbatch.
  auto plain_job = job;
  plain_job.scheduler.offload_encoders = "off";
  Cluster plain(plain_job), moved(job);
  for (Cluster* cluster : {&plain, &moved}) cluster->train(0);
  CHECK(equal(plain.parameters(), moved.parameters()));
  const DeviceReport report = moved.executor(0).take_report();
  const auto count = [&](ActionKind kind) {
    return std::ranges::count_if(report.events,
                                 [&](const auto& event) { return event.action.kind == kind; });
  };
  CHECK(count(ActionKind::offload) > 0);
  CHECK(count(ActionKind::offload_state) > 0);
  // Moments lie there, and activations come beside them.
  Bytes moments, most;
  for (const auto& event : report.events)
    if (event.action.kind == ActionKind::offload_state) moments += Bytes{event.bytes};
  Bytes held = moments;
  for (const auto& event : report.events) {
    if (event.action.kind == ActionKind::offload) held += Bytes{event.bytes};
    if (event.action.kind == ActionKind::fetch) held -= Bytes{event.bytes};
    most = std::max(most, held);
  }
  CHECK(most > moments);
  CHECK(report.peak_offloaded == most);
}

TEST_CASE("a discarded step moves no moments", "[engine]") {
  Cluster cluster(tiny_job_with("moments"));
  const auto before = moments_of(cluster);
  static_cast<void>(cluster.loss_of(0));
  CHECK(equal(moments_of(cluster), before));
  for (const auto& event : cluster.executor(0).take_report().events)
    if (moves_state(event.action.kind)) CHECK(event.bytes == 0);
}

/// A step on a device that is given up when it has run so many actions from `commit` on.
struct GivenUp {
  int left = -1;  ///< So many more; below 0: all.
  Cluster cluster;

  GivenUp(int actions, double late_ms)
      : cluster(late(late_ms), {}, [this](ExecutorOptions& options) {
          if (options.device == DeviceId{0})
            options.yields = [this] { return left >= 0 && left-- == 0; };
        }) {
    cluster.begin(0);
    REQUIRE(cluster.advance_to(Progress::committing).ok());
    cluster.decide(cluster.outcome().decision);
    left = actions;
    auto progress = cluster.executor(0).advance();
    for (int round = 0; round < 100'000 && progress.value() == Progress::waiting; ++round) {
      ++left;  // The action that waits was asked for and has not run.
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      progress = cluster.executor(0).advance();
    }
    REQUIRE(progress.value() == Progress::yielded);
    REQUIRE(cluster.executor(0).abandon().ok());
  }

  static job::Job late(double late_ms) {
    auto job = tiny_job_with("moments");
    job.debug.delayed_device_ms = late_ms;
    return job;
  }
};

TEST_CASE("moments come when those before them have left the device", "[engine]") {
  auto job = tiny_job_with("moments");
  job.debug.delayed_device_ms = 10;  // Launching takes a small part of it.
  int asked = 0;
  Cluster cluster(job, {}, [&](ExecutorOptions& options) {
    if (options.device == DeviceId{0}) options.yields = [&asked] { return ++asked < 0; };
  });
  cluster.begin(0);
  REQUIRE(cluster.advance_to(Progress::committing).ok());
  cluster.decide(cluster.outcome().decision);
  asked = 0;
  REQUIRE(cluster.executor(0).advance().value() == Progress::waiting);
  CHECK(asked == 5);  // Commit; those of one group come, are updated and go; the next ones wait.
  REQUIRE(cluster.advance_to(Progress::finished).ok());
}

TEST_CASE("moments that came for an update go back though the step is given up",
          "[engine][recovery]") {
  Cluster whole(tiny_job_with("moments")), untouched(tiny_job_with("moments"));
  whole.train(0);
  // The first two groups of the first encoder's device.
  std::vector<GroupId> groups;
  for (std::size_t g = 0; groups.size() < 2; ++g)
    if (moments_in_host(whole.plan(), GroupId{g})) groups.push_back(GroupId{g});
  for (const double late_ms : {0.0, 2.0})
    for (int actions = 1; actions <= 6; ++actions) {  // Commit; come, update, go; come, update.
      CAPTURE(late_ms, actions);
      GivenUp given_up(actions, late_ms);
      for (int place = 0; place < 2; ++place) {
        const GroupId group = groups[static_cast<std::size_t>(place)];
        const bool updated = actions >= 3 * (place + 1);
        ParameterShard& found = given_up.cluster.state(group, 0);
        ParameterShard& expected = (updated ? whole : untouched).state(group, 0);
        CHECK_FALSE(found.has_fetched_state());
        CHECK(found.hash() == expected.hash());
        for (std::size_t p = 0; p < found.optimizers().size(); ++p) {
          CHECK(at::equal(found.optimizers()[p].exp_avg, expected.optimizers()[p].exp_avg));
          CHECK(at::equal(found.optimizers()[p].exp_avg_sq, expected.optimizers()[p].exp_avg_sq));
        }
      }
    }
}

}  // namespace
}  // namespace troupe::engine
