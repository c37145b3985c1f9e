#include "tests/torch_catch.hpp"

#include "engine/executor.hpp"

#include <ATen/ops/equal.h>

#include <catch2/generators/catch_generators.hpp>
#include <thread>

#include "engine/model_stage.hpp"
#include "engine/step_ledger.hpp"
#include "engine/whole_model.hpp"
#include "tests/engine/tiny_job.hpp"
#include "transport/inproc/hub.hpp"
#include "transport/registry.hpp"

namespace troupe::engine {
namespace {

/// Four nodes with one device each in this process, driven in turn by one thread.
class Cluster {
 public:
  explicit Cluster(const job::Job& job = tiny_job(), std::vector<SlowRows> slow = {})
      : slow_(std::move(slow)),
        setup_(prepare(job).value()),
        plan_(make_parallel_plan(setup_).value()) {
    transport::TransportOptions options;
    options.hub = std::make_shared<transport::InprocHub>();
    for (std::int32_t node = 0; node < 4; ++node) {
      options.self = node;
      transports_.push_back(transport::create_transport("inproc", options).value());
    }
    for (auto& transport : transports_)
      for (std::int32_t peer = 0; peer < 4; ++peer)
        REQUIRE(
            transport->connect(peer, transports_[static_cast<std::size_t>(peer)]->address()).ok());
    stages_.resize(4);
    for (std::size_t device = 0; device < 4; ++device) build(device);
  }

  const ParallelPlan& plan() const { return plan_; }
  const JobSetup& setup() const { return setup_; }
  transport::Transport& transport(std::size_t node) { return *transports_[node]; }
  Executor& executor(std::size_t device) { return *executors_[device]; }

  void begin(std::int64_t batch) {
    auto planned = plan_tiny_batch(setup_, plan_, store_, batch);
    REQUIRE(planned.ok());
    iteration_ = std::make_shared<const IterationPlan>(std::move(planned.value().iteration));
    for (auto& executor : executors_) REQUIRE(executor->begin(iteration_, store_).ok());
  }

  /// Advances all devices until each is at `goal`; returns the first error, if any.
  Status advance_to(Progress goal) {
    for (int round = 0; round < 5000; ++round) {
      std::size_t there = 0;
      for (auto& executor : executors_) {
        auto progress = executor->advance();
        if (!progress.ok()) return std::move(progress).error();
        there += progress.value() == goal ? 1 : 0;
      }
      if (there == executors_.size()) return Done{};
      std::this_thread::yield();
    }
    return Error{Errc::timed_out, "devices did not get there", {}, {}};
  }

  StepOutcome outcome() {
    StepLedger ledger(iteration_->step, 1, 4);
    for (auto& executor : executors_) REQUIRE(ledger.add(executor->prepared()));
    return ledger.outcome(iteration_->trained_tokens, {1e-2, 1});
  }

  void decide(const Decision& decision) {
    for (auto& executor : executors_) executor->decide(decision);
  }

  /// What the stages of a device keep right now.
  Bytes activations(std::size_t device) const {
    Bytes sum;
    for (const auto& [id, stage] : stages_[device]) sum += stage->activations();
    return sum;
  }

  /// Copies of all parameters of all stages, in order.
  std::vector<at::Tensor> parameters() {
    std::vector<at::Tensor> copies;
    for (auto& device : stages_)
      for (auto& [id, stage] : device)
        for (auto* parameter : stage->parameters())
          copies.push_back(parameter->value.detach().clone());
    return copies;
  }

 private:
  void build(std::size_t device) {
    std::map<StageId, StageProgram*> programs;
    for (std::size_t i = 0; i < plan_.stages.size(); ++i) {
      if (plan_.stages[i].devices.front() != DeviceId{device}) continue;
      auto stage = ModelStage::create(plan_, StageId{i}, setup_.modules(), setup_.layers);
      REQUIRE(stage.ok());
      programs[StageId{i}] = stage.value().get();
      stages_[device][StageId{i}] = std::move(stage).value();
    }
    ExecutorOptions options;
    options.device = DeviceId{device};
    options.epoch_number = 1;
    options.learning_rate_scales = setup_.learning_rate_scales;
    options.hash_parameters = true;
    options.slow_rows = slow_;
    executors_.push_back(std::make_unique<Executor>(plan_, options, *transports_[device],
                                                    std::move(programs), [] {}));
  }

  std::vector<SlowRows> slow_;
  JobSetup setup_;
  ParallelPlan plan_;
  SampleStore store_;
  std::vector<std::unique_ptr<transport::Transport>> transports_;
  std::vector<std::map<StageId, std::unique_ptr<ModelStage>>> stages_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::shared_ptr<const IterationPlan> iteration_;
};

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
    cluster->begin(1);
    REQUIRE(cluster->advance_to(Progress::committing).ok());
    cluster->decide(cluster->outcome().decision);
    REQUIRE(cluster->advance_to(Progress::finished).ok());
  }
  CHECK(equal(discarded.parameters(), fresh.parameters()));
}

TEST_CASE("a failure before COMMIT loses the iteration and nothing else", "[engine]") {
  Cluster cluster;
  const auto before = cluster.parameters();
  cluster.begin(0);
  // Every device is PREPARED; then, before the decision arrives, the iteration is dropped.
  REQUIRE(cluster.advance_to(Progress::committing).ok());
  for (std::size_t device = 0; device < 4; ++device) cluster.executor(device).abandon();
  CHECK(equal(before, cluster.parameters()));
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

TEST_CASE("a vanished peer is an error, not a wait", "[engine][errors]") {
  Cluster cluster;
  cluster.begin(0);
  cluster.transport(1).disconnect(0, {Errc::transport_failed, "node 0 is gone", {}, {}});

  const auto ended = cluster.advance_to(Progress::committing);

  REQUIRE_FALSE(ended.ok());
  CHECK(ended.error().code != Errc::timed_out);
}

TEST_CASE("the same iteration twice gives the same bits", "[engine][property]") {
  Cluster first, second;
  for (Cluster* cluster : {&first, &second}) {
    for (std::int64_t batch = 0; batch < 3; ++batch) {
      cluster->begin(batch);
      REQUIRE(cluster->advance_to(Progress::committing).ok());
      cluster->decide(cluster->outcome().decision);
      REQUIRE(cluster->advance_to(Progress::finished).ok());
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
    cluster.begin(batch);
    REQUIRE(cluster.advance_to(Progress::committing).ok());
    cluster.decide(cluster.outcome().decision);
    REQUIRE(cluster.advance_to(Progress::finished).ok());
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
    cluster.begin(batch);
    REQUIRE(cluster.advance_to(Progress::committing).ok());
    cluster.decide(cluster.outcome().decision);
    REQUIRE(cluster.advance_to(Progress::finished).ok());
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
    cluster.begin(0);
    REQUIRE(cluster.advance_to(Progress::committing).ok());
    cluster.decide(cluster.outcome().decision);
    REQUIRE(cluster.advance_to(Progress::finished).ok());
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
