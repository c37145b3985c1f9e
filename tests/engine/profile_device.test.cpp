#include "tests/torch_catch.hpp"

#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <set>
#include <string_view>

#include "engine/execution/device_place.hpp"
#include "engine/profiling/kind_bench.hpp"
#include "engine/profiling/profile_file.hpp"
#include "engine/profiling/profile_layers.hpp"
#include "engine/profiling/profile_run.hpp"
#include "engine/profiling/profile_speeds.hpp"
#include "kernels/gpu_query.hpp"
#include "tests/engine/apart_device.hpp"
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
    stored.key.software = profile_key(setup).software;
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

TEST_CASE("a profile of any operators is another one, on accelerators", "[engine]") {
  JobSetup setup = prepare(tiny_job()).value();
  const auto key_with = [&](const std::string& device, bool deterministic) {
    setup.job.cluster.device = device;
    setup.job.train.deterministic = deterministic;
    return profile_key(setup);
  };
  CHECK((key_with("cpu", true) == key_with("cpu", false)));
  const auto fixed = key_with("abacus", true);
  auto any = key_with("abacus", false);
  CHECK(mismatch(fixed, any).find(" with any operators, profiler ") != std::string::npos);
  any.software = fixed.software;
  CHECK((any == fixed));
}

/// Sizes of what is allocated on devices that are no processor, by this thread while it lives.
class Allocated {
 public:
  std::int64_t largest() const { return sizes_->sizes.empty() ? 0 : *sizes_->sizes.rbegin(); }
  bool has(std::int64_t bytes) const { return sizes_->sizes.contains(bytes); }

 private:
  struct Sizes final : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device place) override {
      if (!place.is_cpu() && bytes > 0) sizes.insert(bytes);
    }
    bool memoryProfilingEnabled() const override { return true; }
    std::set<std::int64_t> sizes;
  };

  std::shared_ptr<Sizes> sizes_ = std::make_shared<Sizes>();
  c10::DebugInfoGuard guard_{c10::DebugInfoKind::PROFILER_STATE, sizes_};
};

/// How often attention is called, on any thread, while it lives.
class AttentionCalls {
 public:
  AttentionCalls() {
    calls() = 0;
    handle_ = at::addGlobalCallback(
        at::RecordFunctionCallback(&count).scopes({at::RecordScope::FUNCTION}));
  }
  ~AttentionCalls() { at::removeCallback(handle_); }
  AttentionCalls(const AttentionCalls&) = delete;
  AttentionCalls& operator=(const AttentionCalls&) = delete;

  static std::atomic<int>& calls() {
    static std::atomic<int> made;
    return made;
  }

 private:
  static std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& function) {
    if (std::string_view(function.name()) == "aten::scaled_dot_product_attention") ++calls();
    return nullptr;
  }

  at::CallbackHandle handle_;
};

JobSetup setup_apart() {
  auto job = tiny_job();
  job.train.dtype = Dtype::fp32;
  JobSetup setup = prepare(job).value();
  setup.layers.device = apart().place;
  return setup;
}

TEST_CASE("updates and sums are measured where the tensors lie", "[engine]") {
  const JobSetup setup = setup_apart();
  QuietWatch watch(machine_clocks(setup.layers.device), 0);
  const Allocated allocated;
  const auto speeds = measure_speeds(setup, watch).value();
  CHECK(allocated.has(std::int64_t{10 * 64 * 4}));      // Gradients of ten small parameters.
  CHECK(allocated.largest() >= std::int64_t{4} << 24);  // A sum: much beside what a launch takes.
  CHECK(speeds.optimizer_elements_per_s > 0);
  CHECK(speeds.reduce_gigabytes_per_s > 0);
}

TEST_CASE("a device's layers are measured on few sequences, which are longer", "[engine]") {
  const JobSetup setup = setup_apart();
  QuietWatch watch(machine_clocks(setup.layers.device), 0);
  for (const LayerKind& kind : layer_kinds(setup)) {
    if (kind.name != "llm.block") continue;
    auto bench = KindBench::create(setup, kind, watch).value();
    const AttentionCalls heard;
    bench.begin(2048);
    // By hand: a layer's two sequences and the attention of one and of two, to see what they keep;
    // then the same of every copy. With sequences of 64 it would be 65 each time.
    CHECK(AttentionCalls::calls() == 5 + 5 * static_cast<int>(bench.copies()));
  }
}

TEST_CASE("a device's probe is as long as several products take", "[engine]") {
  const auto clocks = machine_clocks(apart().place);
  CHECK(clocks.pace_max == kDevicePaceMax);
  CHECK(clocks.probe_ms() >= 0.2);
}

}  // namespace
}  // namespace troupe::engine
