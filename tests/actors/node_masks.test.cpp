// A node with one device that trains: the device and the masks of its steps have threads of their
// own, so these cases run on a real scheduler and wait.

#include "tests/torch_catch.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "actors/node/node_actor.hpp"
#include "engine/execution/stage_traffic.hpp"
#include "engine/layout/choose_layout.hpp"
#include "scheduler/state/state_moves.hpp"
#include "tests/actors/fake_actors.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/support/scratch_folder.hpp"
#include "transport/inproc/hub.hpp"
#include "transport/registry.hpp"

namespace troupe::actors {
namespace {

/// Long enough for a busy machine; reached only when a test fails.
constexpr auto kPatience = std::chrono::seconds(30);

/// Under a fake supervisor, in a layout of its own, whose llm attends by modality.
class Training {
 public:
  explicit Training(const std::string& device = "cpu") {
    seen_.welcome = {NodeId{0}, "the job", 0.05, 60, 60, 60, "/shared/run", "5f0c", 1};
    std::ofstream(folder_ / "samples.json")
        << R"([{"id": "s", "conversations": [{"from": "human", "value": "q"}, )"
        << R"({"from": "gpt", "value": "a"}]}])";
    job::Job job = engine::tiny_job();
    job.modules.back().attention = AttentionRule::modality;
    job.parallel.layout.pipelines = {{{0, 0, {{"vision", {}}, {"llm", {}}}}}};
    job.cluster.nodes = job.cluster.local_nodes = 1;
    job.train.dump_gradients = true;
    job.data.sources = {{"llava", folder_ / "samples.json", folder_.path()}};
    resources_.setup = engine::prepare(job).value();
    resources_.setup.job.cluster.device = device;
    resources_.dataset =
        std::make_shared<const data::Dataset>(data::Dataset::open(resources_.setup.data).value());
    plan_ = engine::make_parallel_plan(resources_.setup).value();
    head_ = system_.spawn(fake_supervisor, &seen_);
    NodeStart start{{"host", 7, -1, "1.0"}, "head:7000", {}, {}};
    start.open = [this](const NodeWelcome&) -> Result<NodeReady> {
      transport::TransportOptions options;
      options.hub = std::make_shared<transport::InprocHub>();
      options.self = 0;
      resources_.transport = transport::create_transport("inproc", options).value();
      return NodeReady{NodeId{0}, {1, 2}, {60, 7}};
    };
    start.on_end = [this](JobEnd) { ended_.set_value(); };
    node_ = system_.spawn(node, &resources_, head_, std::move(start));
    wait_until([this] { return seen_.readies == 1; });
  }

  ~Training() {
    say(stop_atom::value, std::string("the test is over"), std::int32_t{0});
    CHECK(ended_.get_future().wait_for(kPatience) == std::future_status::ready);
    caf::anon_send_exit(head_, caf::exit_reason::kill);
  }

  template <class... Values>
  void say(Values&&... values) {
    caf::send_as(head_, node_, std::forward<Values>(values)...);
  }

  /// The first one begins from the seed, others with what is there.
  Configuration layout(EpochNumber epoch_number) const {
    const auto& setup = resources_.setup;
    const Dtype dtype = setup.job.train.dtype;
    Configuration layout;
    layout.epoch_number = epoch_number;
    layout.plan = plan_;
    const auto want = scheduler::place_state(plan_, setup.parameters, dtype);
    if (epoch_number == 1)
      layout.moves = scheduler::plan_state_moves(setup.parameters, dtype, {}, want).value().moves;
    return layout;
  }

  /// Sends the plan of a batch; returns how many parts the llm has of it.
  std::int64_t run(std::int64_t batch) {
    auto planned = engine::plan_tiny_batch(resources_.setup, plan_, resources_.samples, batch);
    REQUIRE(planned.ok());
    IterationPlan iteration = std::move(planned.value().iteration);
    iteration.epoch_number = 1;
    const auto parts = std::ssize(engine::traffic_of(plan_, iteration, StageId{0}).parts);
    say(std::move(iteration));
    return parts;
  }

  /// Takes a layout up.
  void come_up(const Configuration& layout) {
    const int fetched = seen_.fetched, applied = seen_.applied;
    say(apply_atom::value, layout);
    wait_until([&] { return seen_.fetched == fetched + 1; });
    say(settle_atom::value, layout.epoch_number);
    wait_until([&] { return seen_.applied == applied + 1; });
  }

  void wait_until(const std::function<bool()>& is_so) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!is_so()) {
      REQUIRE(std::chrono::steady_clock::now() < deadline);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  const SupervisorSeen& seen() const { return seen_; }
  engine::MaskStore::Tally masks() const { return resources_.masks.tally(); }

 private:
  struct Config : caf::actor_system_config {
    Config() { add_messages(*this); }
  };

  testing::ScratchFolder folder_;
  SupervisorSeen seen_;
  NodeResources resources_;
  ParallelPlan plan_;
  std::promise<void> ended_;
  Config config_;
  caf::actor_system system_{config_};
  SupervisorActor head_;
  NodeActor node_;
};

TEST_CASE("a node has the masks of the next step while one runs, and none of a layout that ended",
          "[actors][recovery]") {
  Training training;
  training.come_up(training.layout(1));
  const std::int64_t first = training.run(0), second = training.run(1);
  // The first step waits for its COMMIT and has taken its own; of the second one nobody took any.
  training.wait_until([&] {
    const auto masks = training.masks();
    return masks.ahead + masks.at_once == first + second && masks.held == second;
  });
  CHECK(training.masks().ahead >= second);
  CHECK(training.masks().at_once <= first);
  training.say(apply_atom::value, training.layout(2));
  training.wait_until([&] { return training.masks().held == 0; });
}

TEST_CASE("a device offers gradients of a first step that counts, and of none that was given up",
          "[actors][recovery]") {
  const bool is_decided = GENERATE(false, true);
  Training training;
  training.come_up(training.layout(1));
  training.run(0);
  training.wait_until([&] { return training.seen().prepared == 1; });
  if (is_decided) {
    engine::StepVerdict word;
    word.decision.step = word.note.step = 1;
    word.decision.commit = true;
    training.say(word);
    training.wait_until([&] { return training.seen().finished == 1; });
  }
  Configuration next = training.layout(2);
  // Its stages are another node's now, which trains the step again where it does not count.
  for (DeviceSlot& device : next.plan.devices) device = {NodeId{1}, 0};
  training.come_up(next);
  training.say(collect_atom::value, Collection::first_gradients);
  training.wait_until([&] { return training.seen().offers == 1; });
  CHECK((training.seen().offered_tensors > 0) == is_decided);
}

TEST_CASE("a device that cannot be used is told while its first layout comes up",
          "[actors][recovery]") {
  Training training("cuda");
  Configuration layout = training.layout(1);
  for (DeviceSlot& device : layout.plan.devices) device.local_index = 99;  // No machine has it.
  training.say(apply_atom::value, layout);
  training.wait_until([&] { return training.seen().failures.size() == 1; });
  CHECK(training.seen().fetched == 0);
}

}  // namespace
}  // namespace troupe::actors
