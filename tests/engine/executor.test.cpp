#include "tests/torch_catch.hpp"

#include "engine/execution/executor.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>

#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/engine/failing_transport.hpp"
#include "tests/engine/hooked_stage.hpp"
#include "tests/engine/tiny_cluster.hpp"

namespace troupe::engine {
namespace {

bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!at::equal(a[i], b[i])) return false;
  return true;
}

TEST_CASE("no parameter changes before COMMIT, and all holders agree after it", "[engine]") {
  Cluster cluster;
  const auto before = cluster.parameters();
  cluster.begin(0);
  REQUIRE(cluster.advance_to(Progress::committing).ok());
  CHECK(equal(before, cluster.parameters()));

  cluster.decide(cluster.outcome().decision);
  REQUIRE(cluster.advance_to(Progress::finished).ok());

  CHECK_FALSE(equal(before, cluster.parameters()));
  std::map<GroupId, std::uint64_t> hashes;
  for (std::size_t device = 0; device < 4; ++device)
    for (const auto& holder : cluster.executor(device).take_report().hashes)
      CHECK(hashes.emplace(holder.group, holder.hash).first->second == holder.hash);
  CHECK(hashes.size() == cluster.plan().groups.size());
}

TEST_CASE("DISCARD leaves every parameter as it was, and training goes on", "[engine]") {
  Cluster discarded, fresh;
  const auto before = discarded.parameters();
  discarded.begin(0);
  REQUIRE(discarded.advance_to(Progress::committing).ok());
  discarded.decide({1, false, 1, 0, "a test says so"});
  REQUIRE(discarded.advance_to(Progress::finished).ok());
  CHECK(equal(before, discarded.parameters()));

  // The next step gives what it gives without the discarded one before it.
  for (Cluster* cluster : {&discarded, &fresh}) {
    cluster->train(1);
  }
  CHECK(equal(discarded.parameters(), fresh.parameters()));
}

TEST_CASE("an update follows the decision: clip, learning rate, and the module's own", "[engine]") {
  // A large eps keeps AdamW's first step from hiding the size of the gradient.
  auto job = tiny_job();
  job.optimizer.eps = 1;
  job.modules[0].lr = 5 * job.optimizer.lr;
  Cluster cluster(job);
  cluster.begin(0);
  REQUIRE(cluster.advance_to(Progress::committing).ok());
  std::vector<at::Tensor> expected;
  for (std::size_t g = 0; g < cluster.plan().groups.size(); ++g) {
    const auto module = cluster.plan().groups[g].uses.front().layer.module;
    ParameterShard& state = cluster.state(GroupId{g}, 0);
    std::map<std::string, at::Tensor> gradients;
    state.copy_gradients(gradients);
    for (const auto* parameter : state.parameters()) {
      at::Tensor value = parameter->value.detach().clone();
      auto moments = state::make_adamw_state(value);
      state::adamw_step(value, moments, gradients.at(parameter->name), cluster.setup().adamw,
                        (module == ModuleId{0} ? 5 : 1) * 0.01, 0.25, 1);
      expected.push_back(value);
    }
  }
  cluster.decide({1, true, 0.25, 0.01, ""});
  REQUIRE(cluster.advance_to(Progress::finished).ok());

  std::vector<at::Tensor> changed;
  for (std::size_t g = 0; g < cluster.plan().groups.size(); ++g)
    for (const auto* parameter : cluster.state(GroupId{g}, 0).parameters())
      changed.push_back(parameter->value.detach());
  CHECK(equal(changed, expected));
}

TEST_CASE("a failure before COMMIT loses the iteration and nothing else", "[engine]") {
  Cluster cluster;
  const auto before = cluster.parameters();
  cluster.begin(0);
  // Every device is PREPARED; then, before the decision arrives, the iteration is dropped.
  REQUIRE(cluster.advance_to(Progress::committing).ok());
  for (std::size_t device = 0; device < 4; ++device)
    REQUIRE(cluster.executor(device).abandon().ok());
  CHECK(equal(before, cluster.parameters()));
}

TEST_CASE("a stage that throws where it is abandoned is named, and others drop what they have",
          "[engine][errors]") {
  std::vector<std::unique_ptr<HookedStage>> hooked;
  std::map<StageId, ModelStage*> stages;
  const StageId tired{2};  // Of device 2, which has the first layers of the llm, too.
  Cluster cluster(tiny_job(), {}, {}, {}, {}, [&](StageId id, ModelStage& inner) -> StageProgram* {
    stages[id] = &inner;
    hooked.push_back(std::make_unique<HookedStage>(
        inner, [] {},
        [id, tired] {
          if (id == tired) throw std::runtime_error("too tired");
        }));
    return hooked.back().get();
  });
  cluster.begin(0);
  for (int round = 0; round < 5000 && stages.at(StageId{3})->activations() == Bytes{}; ++round)
    REQUIRE(cluster.executor(2).advance().ok());
  REQUIRE(stages.at(StageId{3})->activations() > Bytes{});
  const auto dropped = cluster.executor(2).abandon();
  REQUIRE_FALSE(dropped.ok());
  CHECK(dropped.error().code == Errc::internal);
  CHECK(dropped.error().message == "`abandon` of stage 2 on device 2 throws: too tired");
  CHECK(stages.at(StageId{3})->activations() == Bytes{});
}

// Window: between COMMIT and the last optimizer step
TEST_CASE("who is prepared needs no peer to finish a step that is decided", "[engine][recovery]") {
  std::vector<LateTransport*> late;
  Cluster lonely(tiny_job(), {}, {}, {}, [&](std::unique_ptr<transport::Transport>& transport) {
    auto wrapped = std::make_unique<LateTransport>(std::move(transport));
    late.push_back(wrapped.get());
    transport = std::move(wrapped);
  });
  Cluster undisturbed;
  for (Cluster* cluster : {&lonely, &undisturbed}) {
    cluster->begin(0);
    REQUIRE(cluster->advance_to(Progress::committing).ok());
  }
  const Decision decision = undisturbed.outcome().decision;
  const bool is_before_decision = GENERATE(true, false);
  if (!is_before_decision) lonely.decide(decision);
  for (LateTransport* transport : late) transport->fail_sends();
  if (is_before_decision) {
    REQUIRE(lonely.advance_to(Progress::committing).ok());
    lonely.decide(decision);
  }
  undisturbed.decide(decision);
  REQUIRE(lonely.advance_to(Progress::finished).ok());
  REQUIRE(undisturbed.advance_to(Progress::finished).ok());
  CHECK(equal(lonely.parameters(), undisturbed.parameters()));
}

TEST_CASE("a send that fails before a device is prepared is an error", "[engine][recovery]") {
  std::vector<LateTransport*> late;
  Cluster cluster(tiny_job(), {}, {}, {}, [&](std::unique_ptr<transport::Transport>& transport) {
    auto wrapped = std::make_unique<LateTransport>(std::move(transport));
    late.push_back(wrapped.get());
    transport = std::move(wrapped);
  });
  cluster.begin(0);
  auto& first = cluster.executor(0);
  REQUIRE(first.advance().value() == Progress::waiting);  // Rows are on their way to the llm.
  late[0]->fail_sends();
  CHECK_FALSE(first.advance().ok());
  REQUIRE(first.abandon().ok());
  CHECK(cluster.activations(0) == Bytes{});
}

TEST_CASE("no parameter changes while a checkpoint is copied, and the wait is measured",
          "[engine]") {
  bool free = false;
  Cluster cluster(tiny_job(), {},
                  [&](ExecutorOptions& options) { options.may_update = [&] { return free; }; });
  const auto before = cluster.parameters();
  cluster.begin(0);
  REQUIRE(cluster.advance_to(Progress::committing).ok());  // Forward and backward went on.
  cluster.decide(cluster.outcome().decision);
  REQUIRE(cluster.advance_to(Progress::waiting).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  REQUIRE(cluster.advance_to(Progress::waiting).ok());
  CHECK(equal(before, cluster.parameters()));
  free = true;
  REQUIRE(cluster.advance_to(Progress::finished).ok());
  CHECK_FALSE(equal(before, cluster.parameters()));
  for (std::size_t device = 0; device < 4; ++device)
    CHECK(cluster.executor(device).take_report().stall_ms >= 20);
}

TEST_CASE("a discarded step waits for no checkpoint", "[engine]") {
  Cluster cluster(tiny_job(), {},
                  [](ExecutorOptions& options) { options.may_update = [] { return false; }; });
  cluster.begin(0);
  REQUIRE(cluster.advance_to(Progress::committing).ok());
  cluster.decide({1, false, 1, 0, "a test says so"});
  REQUIRE(cluster.advance_to(Progress::finished).ok());
  CHECK(cluster.executor(0).take_report().stall_ms == 0);
}

TEST_CASE("a device yields between two actions and goes on as if it had not", "[engine]") {
  int yields = 0;
  Cluster yielding(tiny_job(), {}, [&](ExecutorOptions& options) {
    options.yields = [&yields, asked = 0]() mutable {
      const bool yields_now = ++asked % 2 == 1 && asked < 10;  // All before COMMIT.
      yields += yields_now ? 1 : 0;
      return yields_now;
    };
  });
  Cluster plain;
  for (Cluster* cluster : {&yielding, &plain}) {
    cluster->train(0);
  }
  CHECK(yields == 4 * 5);
  CHECK(equal(yielding.parameters(), plain.parameters()));
}

TEST_CASE("after COMMIT a device can finish although another one is gone", "[engine]") {
  Cluster cluster;
  const auto before = cluster.parameters();
  cluster.begin(0);
  REQUIRE(cluster.advance_to(Progress::committing).ok());
  cluster.decide(cluster.outcome().decision);
  for (std::size_t node = 0; node < 3; ++node)
    cluster.transport(node).disconnect(3, {Errc::transport_failed, "node 3 is gone", {}, {}});

  for (std::size_t device = 0; device < 3; ++device) {
    auto progress = cluster.executor(device).advance();
    REQUIRE(progress.ok());
    CHECK(progress.value() == Progress::finished);
  }
  CHECK_FALSE(equal(before, cluster.parameters()));
}

TEST_CASE("a vanished peer is an error that names it, not a wait", "[engine][errors]") {
  Cluster cluster;
  cluster.begin(0);
  cluster.transport(1).disconnect(0, {Errc::transport_failed, "node 0 is gone", {}, {}});

  const auto ended = cluster.advance_to(Progress::committing);

  REQUIRE_FALSE(ended.ok());
  CHECK(ended.error().code != Errc::timed_out);
  CHECK(ended.error().message.find("peer 1 ") != std::string::npos);  // Device 0 looks first.
  const auto there = cluster.executor(1).advance();
  CHECK((!there.ok() && there.error().message.find("peer 0 ") != std::string::npos));
}

TEST_CASE("the same iteration twice gives the same bits", "[engine][property]") {
  Cluster first, second;
  for (Cluster* cluster : {&first, &second}) {
    for (std::int64_t batch = 0; batch < 3; ++batch) {
      cluster->train(batch);
    }
  }
  CHECK(equal(first.parameters(), second.parameters()));
}

TEST_CASE("posted receives stay within what the plan has in flight", "[engine][property]") {
  auto job = tiny_job();
  job.train.global_batch_size = 12;
  job.train.microbatches = GENERATE(1, 3, 6);
  Cluster cluster(job);
  std::int64_t posted = 0;
  for (std::int64_t batch = 0; batch < 2; ++batch) {
    cluster.train(batch);
    for (std::size_t device = 0; device < 4; ++device) {
      const Bytes peak = cluster.executor(device).take_report().peak_received;
      CHECK(peak <= cluster.executor(device).receive_bound());
      posted += peak.count();
    }
  }
  CHECK(posted > 0);
}

/// Parameters after two steps of the tiny job with a schedule.
std::vector<at::Tensor> trained_with(const std::string& schedule, job::Job job = tiny_job()) {
  job.scheduler.schedule = schedule;
  Cluster cluster(job);
  for (std::int64_t batch = 0; batch < 2; ++batch) {
    cluster.train(batch);
  }
  return cluster.parameters();
}

TEST_CASE("weight gradients that come later are the same bits", "[engine]") {
  CHECK(equal(trained_with("zero-bubble"), trained_with("1f1b")));
}

TEST_CASE("what was held for backward is let go by the end of a step", "[engine]") {
  auto job = tiny_job();
  job.scheduler.schedule = GENERATE("1f1b", "zero-bubble", "gpipe");
  job.modules[0].freeze = GENERATE(false, true);
  Cluster cluster(job);
  cluster.begin(0);
  REQUIRE(cluster.advance_to(Progress::committing).ok());
  for (std::size_t device = 0; device < 4; ++device) CHECK(cluster.activations(device) == Bytes{});
  cluster.decide(cluster.outcome().decision);
  REQUIRE(cluster.advance_to(Progress::finished).ok());
  for (std::size_t device = 0; device < 4; ++device)
    CHECK(cluster.executor(device).take_report().peak_activations > Bytes{});
}

TEST_CASE("slow rows change times and nothing else", "[engine]") {
  // Parameters, and the mean time of a compute action of the llm alone on device 1.
  const auto train = [](std::vector<SlowRows> slow) {
    Cluster cluster(tiny_job(), std::move(slow));
    cluster.train(0);
    double ns = 0, count = 0;
    for (const auto& event : cluster.executor(1).take_report().events)
      if (observe::time_kind(event.action.kind) == observe::TimeKind::compute) {
        ns += static_cast<double>(event.duration_ns());
        count += 1;
      }
    return std::pair{cluster.parameters(), ns / count};
  };
  train({});  // The first use of an operator takes its time.
  const auto [plain, plain_ns] = train({{ModuleId{2}, 2000, 3000, 50}});  // Nobody has so many.
  const auto [slow, slow_ns] = train({{ModuleId{2}, 0, 1000, 50}});
  CHECK(equal(plain, slow));
  CHECK(slow_ns > 5 * plain_ns);  // Of 50: a busy machine may hide most of it.
  // Each sample by itself.
  const auto [each, each_ns] = train({{ModuleId{2}, 0, 1000, 50, true}});
  CHECK(equal(plain, each));
  CHECK(each_ns > 5 * plain_ns);
  // This is step 1.
  const auto [later, later_ns] = train({{ModuleId{2}, 0, 1000, 50, false, 2}});
  const auto [now, now_ns] = train({{ModuleId{2}, 0, 1000, 50, false, 1, 1}});
  CHECK((equal(plain, later) && equal(plain, now)));
  CHECK(now_ns > 3 * later_ns);
}

/// Moves a group's parameters at all of its holders by `distance` along `direction`.
void move(Cluster& cluster, GroupId group, const at::Tensor& direction, double distance) {
  const auto& holders = cluster.plan().groups[group.index()].uses;
  for (std::size_t i = 0; i < holders.size(); ++i) {
    std::int64_t begin = 0;
    for (auto* parameter : cluster.state(group, i).parameters()) {
      at::Tensor value = parameter->value.detach();
      value.add_(direction.narrow(0, begin, value.numel()).view(value.sizes()), distance);
      begin += value.numel();
    }
  }
}

TEST_CASE("reduced gradients are the derivative of the step's loss, at every holder", "[engine]") {
  // Along a direction d the loss L changes by (L(p + h d) - L(p - h d)) / 2h, whatever autograd,
  // microbatches and holders do. In fp64 with h = 1e-5 the quotient has eight digits or so.
  const std::string schedule = GENERATE("1f1b", "split-1f1b", "zero-bubble");
  auto job = tiny_job();
  job.scheduler.schedule = schedule;
  job.balancer.policy = GENERATE("in-order", "deferral");
  Cluster cluster(job);
  constexpr double kStep = 1e-5;
  for (std::size_t g = 0; g < cluster.plan().groups.size(); ++g) {
    const GroupId group{g};
    cluster.begin(0);
    REQUIRE(cluster.advance_to(Progress::committing).ok());
    const at::Tensor gradient = cluster.state(group, 0).gradients().clone();
    for (std::size_t i = 1; i < cluster.plan().groups[g].uses.size(); ++i)
      CHECK(at::equal(cluster.state(group, i).gradients(), gradient));
    cluster.decide({1, false, 1, 0, "only its gradients are asked for"});
    REQUIRE(cluster.advance_to(Progress::finished).ok());

    auto generator = at::detail::createCPUGenerator(7);
    const at::Tensor direction =
        at::randn(gradient.sizes(), generator, at::kDouble).add_(gradient.div(gradient.norm()));
    move(cluster, group, direction, kStep);
    const double above = cluster.loss_of(0);
    move(cluster, group, direction, -2 * kStep);
    const double below = cluster.loss_of(0);
    move(cluster, group, direction, kStep);
    const double expected = (above - below) / (2 * kStep);
    INFO(schedule << " x " << job.balancer.policy << ", group " << cluster.plan().groups[g].name);
    CHECK_THAT(
        gradient.dot(direction).item<double>(),
        Catch::Matchers::WithinRel(expected, 1e-5) || Catch::Matchers::WithinAbs(expected, 1e-9));
  }
}

TEST_CASE("frozen encoders run no backward and projectors still learn", "[engine]") {
  auto job = tiny_job();
  job.modules[0].freeze = job.modules[2].freeze = true;
  Cluster cluster(job);
  cluster.begin(0);
  REQUIRE(cluster.advance_to(Progress::committing).ok());
  const auto outcome = cluster.outcome();
  CHECK(outcome.decision.commit);
  CHECK(outcome.grad_norm > 0);
  CHECK(cluster.plan().groups.size() == 1);
}

}  // namespace
}  // namespace troupe::engine
