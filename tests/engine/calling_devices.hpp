// Devices of the tiny job in one process that call the fake NCCL.

#pragma once

#include "tests/torch_catch.hpp"

#include <ATen/ops/equal.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/execution/nccl_device.hpp"
#include "tests/engine/tiny_cluster.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/transport/nccl/fake_device.hpp"
#include "tests/transport/nccl/fake_stream.hpp"
#include "transport/nccl/nccl_streams.hpp"

namespace troupe::engine {

/// The fake library for this process's calls, until the end of a test.
class FakeCalls {
 public:
  FakeCalls() : nccl_((set_up(folder_.path().string()), "fake_nccl")) {
    nccl_.script("");
    transport::register_nccl_streams("cpu", [](std::int32_t node, std::int32_t index) {
      return Result(transport::testing::fake_stream(
          transport::testing::FakeNccl::file(),
          "gpu " + std::to_string(node) + "." + std::to_string(index)));
    });
  }
  ~FakeCalls() {
    transport::register_nccl_streams("cpu", {});
    unsetenv("TROUPE_NCCL_LIBRARY");
  }
  FakeCalls(const FakeCalls&) = delete;
  FakeCalls& operator=(const FakeCalls&) = delete;

  transport::testing::FakeNccl& operator*() { return nccl_; }

 private:
  static void set_up(const std::string& folder) {
    setenv("FAKE_NCCL_FOLDER", folder.c_str(), 1);
    setenv("TROUPE_NCCL_LIBRARY", transport::testing::FakeNccl::file().c_str(), 1);
  }

  troupe::testing::ScratchFolder folder_;
  transport::testing::FakeNccl nccl_;
};

inline job::Job late_job() {
  job::Job job = tiny_job();
  job.debug.delayed_device_ms = 0.1;  // So that the loop around the devices leaves NCCL time.
  return job;
}

/// How long what opens a group may take.
constexpr std::chrono::milliseconds kOpening{60'000};

/// Of node `node`, the only one there, whose calls end within `limit`.
inline std::shared_ptr<NcclDevice> calling_device(transport::Transport& transport, std::size_t node,
                                                  std::chrono::milliseconds limit,
                                                  std::chrono::milliseconds opening) {
  NcclDeviceOptions options{c10::kCPU, {NodeId{node}, 0}};
  options.call = limit;
  options.opening = opening;
  options.limits = transport::testing::short_limits();
  return std::make_shared<NcclDevice>(transport, options);
}

template <class Calls>
std::vector<Status> open_all(const std::vector<std::shared_ptr<Calls>>& calls,
                             const ParallelPlan& plan, EpochNumber generation) {
  std::vector<std::future<Status>> running;
  for (std::size_t d = 0; d < calls.size(); ++d)
    running.push_back(std::async(std::launch::async, [&calls, &plan, d, generation] {
      return calls[d]->open(plan, DeviceId{d}, generation);
    }));
  std::vector<Status> opened;
  for (auto& one : running) opened.push_back(one.get());
  return opened;
}

inline void require_ok(const std::vector<Status>& all) {
  for (const Status& status : all) {
    INFO((status.ok() ? "" : status.error().message));
    REQUIRE(status.ok());
  }
}

/// The tiny job's cluster, each of whose devices calls by one `Calls`: `NcclRows` or `NcclSums`.
/// Devices 0 and 1 are a pipeline, and 2 and 3.
template <class Calls>
struct CallingCluster {
  std::vector<std::shared_ptr<Calls>> of_device;  // They outlive the executors.
  std::unique_ptr<Cluster> cluster;
  ParallelPlan plan;

  /// Calls end within `limit`, and what opens a group within `opening`. `use` gives an executor
  /// those of its device, `place` may put another plan, `program` another program of a stage, in
  /// place of the usual.
  CallingCluster(std::chrono::milliseconds limit,
                 const std::function<void(ExecutorOptions&, Calls&)>& use,
                 const std::function<ParallelPlan(ParallelPlan)>& place = {},
                 std::chrono::milliseconds opening = kOpening,
                 std::function<StageProgram*(StageId, ModelStage&)> program = {}) {
    std::vector<transport::Transport*> transports;
    cluster = std::make_unique<Cluster>(
        late_job(), std::vector<SlowRows>{},
        [&](ExecutorOptions& options) {
          const auto d = options.device.index();
          of_device.push_back(
              std::make_shared<Calls>(calling_device(*transports[d], d, limit, opening)));
          use(options, *of_device.back());
        },
        [&](ParallelPlan made) { return plan = place ? place(std::move(made)) : std::move(made); },
        [&](std::unique_ptr<transport::Transport>& made) { transports.push_back(made.get()); },
        std::move(program));
  }

  /// Opens what all devices have for a generation, at once.
  std::vector<Status> open(EpochNumber generation) const {
    return open_all(of_device, plan, generation);
  }
  void require_open(EpochNumber generation) const { require_ok(open(generation)); }

  /// What devices say of a call that failed; nothing of those that have not said it first.
  std::vector<FailedWork> take_thrown() {
    std::vector<FailedWork> all;
    for (std::size_t d = 0; d < of_device.size(); ++d)
      if (auto failed = cluster->executor(d).take_thrown()) all.push_back(std::move(*failed));
    return all;
  }

  /// All give the step up, and open anew for the next generation, in which no call fails.
  void begin_anew(FakeCalls& fake, EpochNumber generation) {
    for (std::size_t d = 0; d < of_device.size(); ++d) REQUIRE(cluster->executor(d).abandon().ok());
    (*fake).script("");
    require_open(generation);
  }
};

inline bool are_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!at::equal(a[i], b[i])) return false;
  return true;
}

}  // namespace troupe::engine
