#include "tests/torch_catch.hpp"

#include "engine/execution/device.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <future>
#include <stdexcept>
#include <thread>

#include <catch2/generators/catch_generators.hpp>

#include "engine/execution/device_errors.hpp"
#include "tests/engine/apart_device.hpp"
#include "tests/engine/hooked_stage.hpp"
#include "tests/engine/tiny_cluster.hpp"

namespace troupe::engine {
namespace {

const DeviceOptions kDelayed{.delay_ms_max = 2, .seed = 5};

/// Devices that complete work on threads of their own.
DeviceOptions asynchronous() { return GENERATE(0, 1) == 0 ? kDelayed : apart(); }

bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!at::equal(a[i], b[i])) return false;
  return true;
}

/// The tiny job on devices whose work completes late, by up to `delay_ms`.
job::Job late_job(double delay_ms = 0.2) {
  job::Job job = tiny_job();
  job.debug.delayed_device_ms = delay_ms;
  return job;
}

TEST_CASE("a host completes work at once, where it was launched", "[engine]") {
  const auto host = make_device({});
  std::thread::id where;
  const auto launch = host->launch(
      [&]() -> Status {
        where = std::this_thread::get_id();
        return Error{Errc::internal, "it says so", {}, {}};
      },
      [] { FAIL("nobody waits for it"); });
  REQUIRE(launch->done());
  CHECK(where == std::this_thread::get_id());
  CHECK(launch->status().error().message == "it says so");
  CHECK(launch->end_ns() > 0);
}

TEST_CASE("an asynchronous device runs work in order, elsewhere, and tells when it has",
          "[engine]") {
  const auto device = make_device(asynchronous());
  std::vector<int> order;
  std::atomic<int> told = 0;
  std::vector<std::shared_ptr<const Launch>> launches;
  for (int i = 0; i < 20; ++i)
    launches.push_back(device->launch(
        [&order, i]() -> Status {
          order.push_back(i);
          return Done{};
        },
        [&] { ++told; }));
  CHECK_FALSE(launches.back()->done());
  device->wait();
  for (std::size_t i = 0; i < launches.size(); ++i) {
    REQUIRE(launches[i]->done());
    CHECK(order[i] == static_cast<int>(i));
    if (i > 0) CHECK(launches[i]->end_ns() >= launches[i - 1]->end_ns());
  }
  for (int round = 0; round < 10'000 && told < 20; ++round)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  CHECK(told == 20);
}

TEST_CASE("behind work that failed nothing runs, until it is dropped", "[engine][errors]") {
  const auto device = make_device(asynchronous());
  const auto fails = device->launch(
      []() -> Status {
        return Error{Errc::internal, "first", {}, {}};
      },
      [] {});
  bool ran = false;
  const auto behind = device->launch(
      [&]() -> Status {
        ran = true;
        return Done{};
      },
      [] {});
  REQUIRE(completes(*behind));
  CHECK(fails->status().error().message == "first");
  CHECK(behind->status().error().message == "first");
  CHECK_FALSE(ran);
  device->drop();
  const auto next = device->launch(nothing(), [] {});
  REQUIRE(completes(*next));
  CHECK(next->status().ok());
}

TEST_CASE("after a drop nothing is under way, and what was behind never runs", "[engine]") {
  const auto device = make_device(asynchronous());
  std::promise<void> entered;
  std::atomic<bool> left = false, ran = false;
  device->launch(
      [&]() -> Status {
        entered.set_value();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        left = true;
        return Done{};
      },
      [] {});
  const auto behind = device->launch(
      [&]() -> Status {
        ran = true;
        return Done{};
      },
      [] {});
  entered.get_future().wait();
  device->drop();
  CHECK(left);
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK_FALSE(ran);
  CHECK_FALSE(behind->done());
}

TEST_CASE("host memory of a delayed device holds nothing before it is filled", "[engine]") {
  const auto device = make_device(kDelayed);
  at::Tensor buffer = device->host_buffer({3}, at::kDouble);
  for (int i = 0; i < 3; ++i) CHECK(std::isnan(buffer[i].item<double>()));
  buffer.fill_(4);
  at::Tensor inside, outside;
  const auto launch = device->launch(
      [&]() -> Status {
        inside = device->to_device(buffer);
        outside = device->to_host(inside);
        return Done{};
      },
      [] {});
  REQUIRE(completes(*launch));
  CHECK(at::equal(inside, at::full({3}, 4, at::kDouble)));
  CHECK(at::equal(outside, inside));
  buffer.zero_();  // Neither is a view of it.
  CHECK(inside[0].item<double>() == 4);
  CHECK(outside[0].item<double>() == 4);
}

TEST_CASE("what is written to host memory is there when the work has completed", "[engine]") {
  const auto options = GENERATE(0, 1, 2);
  const auto device = make_device(options == 0   ? DeviceOptions{}
                                  : options == 1 ? kDelayed
                                                 : apart());
  at::Tensor host = device->host_buffer({3}, at::kDouble);
  host.fill_(4);
  const at::Tensor whole = device->host_buffer({2, 3}, at::kDouble).fill_(1);
  double early = 0;
  const auto launch = device->launch(
      [&]() -> Status {
        device->write_to_host(device->to_device(host).mul(2), whole.select(0, 1));
        if (options == 1) early = whole[1][0].item<double>();
        return Done{};
      },
      [] {});
  REQUIRE(completes(*launch));
  CHECK(at::equal(whole[1], at::full({3}, 8, at::kDouble)));
  CHECK(at::equal(whole[0], at::full({3}, 1, at::kDouble)));  // Beside it.
  CHECK(host[0].item<double>() == 4);
  if (options == 1) CHECK(std::isnan(early));
}

TEST_CASE("a delayed device tells of host memory that is written while work reads it",
          "[engine][errors]") {
  const auto device = make_device(kDelayed);
  at::Tensor buffer = device->host_buffer({3}, at::kDouble).fill_(4);
  at::Tensor inside;
  const auto launch = device->launch(
      [&]() -> Status {
        inside = device->to_device(buffer);
        buffer.zero_();  // As somebody does who does not wait.
        return Done{};
      },
      [] {});
  REQUIRE(completes(*launch));
  REQUIRE_FALSE(launch->status().ok());
  CHECK(launch->status().error().message == "host memory was written while work still read it");
  device->drop();
  // The work itself may, behind what it has read.
  const auto next = device->launch(
      [&]() -> Status {
        device->write_to_host(device->to_device(buffer).add(1), buffer);
        return Done{};
      },
      [] {});
  REQUIRE(completes(*next));
  CHECK(next->status().ok());
  CHECK(at::equal(buffer, at::full({3}, 1, at::kDouble)));
}

TEST_CASE("late devices train the parameters of prompt ones, to the bit", "[engine]") {
  Cluster prompt, late(late_job());
  for (std::int64_t batch = 0; batch < 3; ++batch) {
    prompt.train(batch);
    late.train(batch);
    CHECK(equal(prompt.parameters(), late.parameters()));
    for (std::size_t device = 0; device < 4; ++device) {
      const DeviceReport there = prompt.executor(device).take_report();
      const DeviceReport here = late.executor(device).take_report();
      REQUIRE(here.events.size() == there.events.size());
      std::int64_t end_ns = 0;
      for (std::size_t i = 0; i < here.events.size(); ++i) {
        CHECK(here.events[i].action == there.events[i].action);
        CHECK(here.events[i].begin_ns >= end_ns);
        CHECK(here.events[i].end_ns >= here.events[i].begin_ns);
        end_ns = here.events[i].end_ns;
      }
      REQUIRE(here.hashes.size() == there.hashes.size());
      for (std::size_t i = 0; i < here.hashes.size(); ++i)
        CHECK(here.hashes[i].hash == there.hashes[i].hash);
      CHECK(here.peak_activations > Bytes{});
    }
  }
}

TEST_CASE("PREPARED of a late device holds all losses and norms", "[engine]") {
  Cluster prompt, late(late_job(2));
  prompt.begin(0);
  REQUIRE(prompt.advance_to(Progress::committing).ok());
  late.begin(0);
  // Looked at as soon as it is there: that is what the supervisor gets.
  std::array<bool, 4> told{};
  for (int round = 0; round < 500'000 && !std::ranges::all_of(told, std::identity()); ++round)
    for (std::size_t device = 0; device < 4; ++device) {
      if (told[device]) continue;
      auto progress = late.executor(device).advance();
      REQUIRE(progress.ok());
      if (progress.value() != Progress::committing) continue;
      told[device] = true;
      CHECK(late.executor(device).prepared().norms.size() ==
            prompt.executor(device).prepared().norms.size());
      CHECK(late.executor(device).prepared().losses.size() ==
            prompt.executor(device).prepared().losses.size());
    }
  CHECK(late.outcome().loss == prompt.outcome().loss);
  CHECK(late.outcome().grad_norm == prompt.outcome().grad_norm);
}

TEST_CASE("a step that is given up in the middle leaves nothing under way", "[engine][recovery]") {
  Cluster late(late_job(1)), fresh;
  const auto before = late.parameters();
  for (int round = 0; round < 8; ++round) {
    late.begin(0);
    for (int turn = 0; turn < 10 * round; ++turn)
      for (std::size_t device = 0; device < 4; ++device)
        REQUIRE(late.executor(device).advance().ok());
    for (std::size_t device = 0; device < 4; ++device)
      REQUIRE(late.executor(device).abandon().ok());
    for (std::size_t device = 0; device < 4; ++device) CHECK(late.activations(device) == Bytes{});
    CHECK(equal(before, late.parameters()));
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    for (std::size_t device = 0; device < 4; ++device) CHECK(late.activations(device) == Bytes{});
  }
}

TEST_CASE("a step begins anew although the one before failed in the middle", "[engine][recovery]") {
  Cluster late(late_job(2)), fresh;
  late.begin(0);
  for (std::size_t device = 0; device < 4; ++device)
    REQUIRE(late.executor(device).advance().ok());  // Work is under way.
  late.train(0);
  fresh.train(0);
  CHECK(equal(late.parameters(), fresh.parameters()));
  // Given up twice, it is given up.
  for (std::size_t device = 0; device < 4; ++device) {
    REQUIRE(late.executor(device).abandon().ok());
    REQUIRE(late.executor(device).abandon().ok());
  }
}

TEST_CASE("a word that is said twice is one word, also on late devices", "[engine]") {
  Cluster late(late_job(2)), once;
  for (Cluster* cluster : {&late, &once}) {
    cluster->begin(0);
    REQUIRE(cluster->advance_to(Progress::committing).ok());
    cluster->decide(cluster->outcome().decision);
  }
  for (std::size_t device = 0; device < 4; ++device) {
    REQUIRE(late.executor(device).advance().value() == Progress::waiting);
    Decision other{1, true, 0.5, 1, ""};  // As nobody would say it.
    late.executor(device).decide(other);
  }
  REQUIRE(late.advance_to(Progress::finished).ok());
  REQUIRE(once.advance_to(Progress::finished).ok());
  CHECK(equal(late.parameters(), once.parameters()));
}

TEST_CASE("what was received counts until work has it", "[engine]") {
  Cluster prompt, late(late_job(2));
  for (Cluster* cluster : {&prompt, &late}) cluster->train(0);
  for (std::size_t device = 0; device < 4; ++device) {
    const DeviceReport here = late.executor(device).take_report();
    const DeviceReport there = prompt.executor(device).take_report();
    CHECK(here.peak_received <= late.executor(device).receive_bound());
    // How much lies received beside the stages' own is a matter of who was faster; the rest is not.
    CHECK(here.peak_activations + there.peak_received >= there.peak_activations);
  }
}

TEST_CASE("what COMMIT has launched is completed although the step is given up",
          "[engine][recovery]") {
  Cluster late(late_job(5)), whole;
  for (Cluster* cluster : {&late, &whole}) {
    cluster->begin(0);
    REQUIRE(cluster->advance_to(Progress::committing).ok());
    cluster->decide(cluster->outcome().decision);
  }
  for (std::size_t device = 0; device < 4; ++device) {
    REQUIRE(late.executor(device).advance().value() == Progress::waiting);
    REQUIRE(late.executor(device).abandon().ok());
  }
  REQUIRE(whole.advance_to(Progress::finished).ok());
  CHECK(equal(late.parameters(), whole.parameters()));
}

/// As LibTorch throws what CUDA says.
[[noreturn]] void throw_on_device(int code, const std::string& words) {
  throw c10::AcceleratorError({"launch", "kernel.cu", 1}, code, "CUDA error: " + words);
}

TEST_CASE("what a stage throws is an error that names stage, step and samples",
          "[engine][errors]") {
  const std::vector<std::pair<std::function<void()>, std::string>> throwers{
      {[] { throw std::runtime_error("no such row\nand a trace of calls"); }, "no such row, in"},
      {[] { throw std::bad_alloc(); }, "out of memory, in"},
      {[] { at::empty({2}, at::kFloat).view({3}); }, "LibTorch: shape '[3]' is invalid"},
      {[] { throw_on_device(214, "uncorrectable ECC error encountered"); }, "CUDA error: uncorr"},
      {[] { throw_on_device(9, "invalid configuration"); }, "LibTorch: CUDA error: invalid"},
      {[] { TORCH_CHECK(false, "put_ does not have a deterministic implementation, but"); },
       "LibTorch: operator 'put_' has no fixed order on its device, in"},
      {[] { throw 7; }, "an exception of unknown type, in"}};
  for (const job::Job& job : {tiny_job(), late_job()})
    for (const auto& [thrower, words] : throwers) {
      std::vector<std::unique_ptr<HookedStage>> throwing;
      bool throws = true;
      Cluster cluster(job, {}, {}, {}, {}, [&](StageId stage, ModelStage& inner) -> StageProgram* {
        if (stage != StageId{1}) return &inner;
        throwing.push_back(std::make_unique<HookedStage>(inner, [&] {
          if (throws) thrower();
        }));
        return throwing.back().get();
      });
      cluster.begin(0);
      const Status ended = cluster.advance_to(Progress::committing);
      REQUIRE_FALSE(ended.ok());
      CHECK(ended.error().code == Errc::internal);
      INFO(ended.error().message);
      CHECK(ended.error().message.starts_with(words));
      for (const std::string part :
           {"step 1", "device 1", "forward of stage 1", "llm layers 0 to 3", "'s"})
        CHECK(ended.error().message.find(part) != std::string::npos);
      CHECK(ended.error().message.find("trace") == std::string::npos);
      CHECK((ended.error().fix == kMemoryFix) == words.starts_with("out of memory"));
      CHECK((ended.error().fix == kIndeterminateFix) == words.starts_with("LibTorch: operator"));
      CHECK_FALSE(ended.error().fix.empty());
      // Who lost its memory would do no better elsewhere.
      const auto thrown = cluster.executor(1).take_thrown();
      REQUIRE(thrown.has_value() == !words.starts_with("out of memory"));
      if (thrown) {
        CHECK(thrown->step == 1);
        CHECK((thrown->error == ended.error()));
        CHECK(thrown->by_device == words.starts_with("CUDA error: uncorr"));
        CHECK(ended.error().message.find(thrown->thrown + ", in step 1") != std::string::npos);
        REQUIRE_FALSE(thrown->samples.empty());
        for (const std::string& sample : thrown->samples) CHECK(sample.starts_with("s"));
      }
      // The step can be given up.
      for (std::size_t device = 0; device < 4; ++device)
        REQUIRE(cluster.executor(device).abandon().ok());
      throws = false;
    }
}

}  // namespace
}  // namespace troupe::engine
