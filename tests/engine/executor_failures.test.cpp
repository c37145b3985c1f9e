// What stages of a user's throw where no action of the list runs.

#include "tests/torch_catch.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/execution/executor.hpp"
#include "tests/engine/hooked_stage.hpp"
#include "tests/engine/hooked_state.hpp"
#include "tests/engine/tiny_cluster.hpp"

namespace troupe::engine {
namespace {

/// Tells its stage which call comes.
class TiredState final : public HookedState {
 public:
  TiredState(GroupState& inner, std::function<void(const std::string&)> tell)
      : HookedState(inner), tell_(std::move(tell)) {}

  at::Tensor& gradients() override {
    tell_("gradients");
    return HookedState::gradients();
  }
  const std::vector<IndexRange>& own_updates() const override {
    tell_("own_updates");
    return HookedState::own_updates();
  }
  void update(const state::AdamWOptions& options, std::int64_t step, double learning_rate,
              double clip) override {
    tell_("update");
    HookedState::update(options, step, learning_rate, clip);
  }
  std::uint64_t hash() const override {
    tell_("hash");
    return HookedState::hash();
  }
  void copy_gradients(std::map<std::string, at::Tensor>& target) const override {
    tell_("copy_gradients");
    HookedState::copy_gradients(target);
    if (is_empty) target.begin()->second = at::Tensor{};
  }
  Bytes optimizer_bytes() const override {
    tell_("optimizer_bytes");
    return HookedState::optimizer_bytes();
  }
  void forget_fetched_state() override {
    tell_("forget_fetched_state");
    HookedState::forget_fetched_state();
  }

  bool is_empty = false;  ///< Of the first parameter it has no gradient.

 private:
  std::function<void(const std::string&)> tell_;
};

/// Throws what is no `std::exception` in this call, its own or of its states, as long as it is
/// named.
class TiredStage final : public HookedStage {
 public:
  TiredStage(StageProgram& inner, const std::string& call)
      : HookedStage(inner, [] {}), call_(call) {}

  bool show_to(Viewer* /*viewer*/) override {
    throw_in("show_to");
    return false;
  }
  Status begin(const IterationPlan& plan, const data::DecodedSamples& samples) override {
    throw_in("begin");
    return HookedStage::begin(plan, samples);
  }
  std::vector<PartLoss> losses() const override {
    throw_in("losses");
    return HookedStage::losses();
  }
  std::vector<PartAuxiliary> auxiliary() const override {
    throw_in("auxiliary");
    return {};
  }
  std::vector<models::Parameter*> parameters() override {
    throw_in("parameters");
    return HookedStage::parameters();
  }
  GroupState& state(GroupId group, LayerId layer) override {
    throw_in("state");
    auto& own = states_[{group, layer}];
    if (!own)
      own = std::make_unique<TiredState>(HookedStage::state(group, layer),
                                         [this](const std::string& call) { throw_in(call); });
    own->is_empty = call_ == "nothing copied";
    return *own;
  }

  int thrown() const { return thrown_; }

 private:
  void throw_in(const std::string& call) const {
    if (call_ != call) return;
    ++thrown_;
    throw 7;
  }

  const std::string& call_;
  mutable int thrown_ = 0;
  std::map<std::pair<GroupId, LayerId>, std::unique_ptr<TiredState>> states_;
};

/// What is said of it where it is of device 2, up to its layers.
std::string told_of(const std::string& call) {
  return "an exception of unknown type, in step 1 on device 2, `" + call +
         "` of stage 2 (vision layers 0 to ";
}

/// The tiny job with this of encoders in host memory.
job::Job offloading_job(const std::string& offloads) {
  job::Job job = tiny_job();
  job.scheduler.offload_encoders = offloads;
  if (offloads == "parameters") {  // Only where the llm has a phase of its own.
    job.scheduler.schedule = "three-phase";
    job.train.global_batch_size = 12;
  }
  return job;
}

TEST_CASE("whatever a stage throws as it tells of its losses is an error of its step",
          "[engine][errors]") {
  for (const std::string call : {"losses", "auxiliary"}) {
    CAPTURE(call);
    std::unique_ptr<TiredStage> tired;
    Cluster cluster(tiny_job(), {}, {}, {}, {},
                    [&](StageId id, ModelStage& inner) -> StageProgram* {
                      if (id != StageId{2}) return &inner;  // Of device 2.
                      tired = std::make_unique<TiredStage>(inner, call);
                      return tired.get();
                    });
    cluster.begin(0);
    const Status ended = cluster.advance_to(Progress::committing);
    REQUIRE_FALSE(ended.ok());
    CHECK(ended.error().code == Errc::internal);
    INFO(ended.error().message);
    CHECK(ended.error().message.starts_with(told_of(call)));
    const auto thrown = cluster.executor(2).take_thrown();
    REQUIRE(thrown);
    CHECK(thrown->thrown == "an exception of unknown type");
    CHECK(tired->thrown() == 1);
  }
}

TEST_CASE("what a stage throws that is asked what it has as a step begins is an error of its step",
          "[engine][errors]") {
  using Case = std::pair<std::string, std::string>;
  for (const auto& [name, offloads] :
       {Case{"show_to", "off"}, Case{"begin", "off"}, Case{"parameters", "parameters"},
        Case{"state", "moments"}, Case{"optimizer_bytes", "moments"}}) {
    CAPTURE(name);
    std::string call = name;
    std::vector<std::unique_ptr<TiredStage>> tired;  // The cluster tells them when it ends.
    Cluster cluster(offloading_job(offloads), {}, {}, {}, {},
                    [&](StageId id, ModelStage& inner) -> StageProgram* {
                      if (id != StageId{2}) return &inner;  // Of device 2.
                      return tired.emplace_back(std::make_unique<TiredStage>(inner, call)).get();
                    });
    SampleStore store;
    auto planned = plan_tiny_batch(cluster.setup(), cluster.plan(), store);
    REQUIRE(planned.ok());
    const auto iteration =
        std::make_shared<const IterationPlan>(std::move(planned.value().iteration));
    Executor& executor = cluster.executor(2);
    const Status begun = executor.begin(iteration, store);
    REQUIRE_FALSE(begun.ok());
    CHECK(begun.error().code == Errc::internal);
    INFO(begun.error().message);
    CHECK(begun.error().message.starts_with(told_of(name)));
    const auto thrown = executor.take_thrown();
    REQUIRE(thrown);
    CHECK(thrown->step == 1);
    CHECK((thrown->error == begun.error()));
    // The step can be given up, and begun anew.
    REQUIRE(executor.abandon().ok());
    call.clear();
    CHECK(executor.begin(iteration, store).ok());
  }
}

TEST_CASE("what a stage throws in sums and updates names the stage", "[engine][errors]") {
  struct Case {
    std::string call, told;
    Progress up_to;
  };
  const std::string device = "an exception of unknown type, in step 1 on device ";
  for (const Case& one : {Case{"gradients", " of stage ", Progress::committing},
                          Case{"own_updates", ", `own_updates` of stage ", Progress::committing},
                          Case{"update", ", optimizer_step of stage ", Progress::finished},
                          Case{"hash", ", optimizer_step of stage ", Progress::finished}}) {
    CAPTURE(one.call);
    std::string call;
    std::vector<std::unique_ptr<TiredStage>> tired;  // The cluster tells them when it ends.
    Cluster cluster(tiny_job(), {}, {}, {}, {}, [&](StageId, ModelStage& inner) -> StageProgram* {
      return tired.emplace_back(std::make_unique<TiredStage>(inner, call)).get();
    });
    cluster.begin(0);
    if (one.up_to == Progress::finished) {
      REQUIRE(cluster.advance_to(Progress::committing).ok());
      cluster.decide(cluster.outcome().decision);
    }
    call = one.call;
    const Status ended = cluster.advance_to(one.up_to);
    call.clear();  // Updates that were launched are completed.
    REQUIRE_FALSE(ended.ok());
    INFO(ended.error().message);
    CHECK(ended.error().message.starts_with(device));
    const auto place = ended.error().message.find(one.told);
    REQUIRE(place != std::string::npos);
    CHECK(ended.error().message.find(" layers ", place) != std::string::npos);
  }
}

TEST_CASE("what a stage throws as an update is given up does not end the process",
          "[engine][errors][recovery]") {
  using Case = std::pair<std::string, std::string>;
  for (const auto& [name, told] :
       {Case{"forget_fetched_state",
             "`forget_fetched_state` of stage 0 on device 0 throws no std::exception"},
        // As the moments were to go back.
        Case{
            "state",
            "an exception of unknown type, in step 1 on device 0, `offload_state` of stage 0 ("}}) {
    CAPTURE(name);
    std::string call;
    int left = -1;  // So many actions of device 0 more; below 0: all.
    std::vector<std::unique_ptr<TiredStage>> tired;  // The cluster tells them when it ends.
    Cluster cluster(
        offloading_job("moments"), {},
        [&left](ExecutorOptions& options) {
          if (options.device == DeviceId{0})
            options.yields = [&left] { return left >= 0 && left-- == 0; };
        },
        {}, {},
        [&](StageId id, ModelStage& inner) -> StageProgram* {
          if (id != StageId{0}) return &inner;
          return tired.emplace_back(std::make_unique<TiredStage>(inner, call)).get();
        });
    cluster.begin(0);
    REQUIRE(cluster.advance_to(Progress::committing).ok());
    cluster.decide(cluster.outcome().decision);
    left = 2;  // Commit; the moments of a group come.
    REQUIRE(cluster.executor(0).advance().value() == Progress::yielded);
    call = name;
    const Status given_up = cluster.executor(0).abandon();
    REQUIRE_FALSE(given_up.ok());
    CHECK(given_up.error().code == Errc::internal);
    INFO(given_up.error().message);
    CHECK(given_up.error().message.starts_with(told));
    CHECK(tired.front()->thrown() > 0);
  }
}

TEST_CASE("what a stage throws that is asked for its gradients or values is an error with its name",
          "[engine][errors]") {
  const std::string stage = "of stage 0 (vision layers 0 to ";
  std::string call;
  std::vector<std::unique_ptr<TiredStage>> tired;  // The cluster tells them when it ends.
  Cluster cluster(
      tiny_job(), {}, [](ExecutorOptions& options) { options.last_step = 7; }, {}, {},
      [&](StageId id, ModelStage& inner) -> StageProgram* {
        if (id != StageId{0}) return &inner;
        return tired.emplace_back(std::make_unique<TiredStage>(inner, call)).get();
      });
  Executor& executor = cluster.executor(0);
  const auto expect = [&](const auto& asked, const std::string& message, std::int64_t step) {
    REQUIRE_FALSE(asked.ok());
    CHECK(asked.error().code == Errc::internal);
    INFO(asked.error().message);
    CHECK(asked.error().message.starts_with(message));
    CHECK(asked.error().message.find(stage) != std::string::npos);
    const auto thrown = executor.take_thrown();
    REQUIRE(thrown);
    CHECK(thrown->step == step);
    CHECK((thrown->error == asked.error()));
  };
  const std::string unknown = "an exception of unknown type, ";
  call = "parameters";  // In a layout that comes up behind a step.
  expect(executor.parameters(), unknown + "behind step 7 on device 0, `parameters` " + stage, 7);
  call.clear();
  cluster.begin(0);
  REQUIRE(cluster.advance_to(Progress::committing).ok());
  std::map<std::string, at::Tensor> gradients;
  call = "copy_gradients";
  expect(executor.copy_gradients(gradients),
         unknown + "in step 1 on device 0, `copy_gradients` " + stage, 1);
  call = "nothing copied";
  expect(executor.copy_gradients(gradients), "there is no gradient of 'vision.", 1);
  CHECK(gradients.empty());
  call.clear();
  CHECK(executor.copy_gradients(gradients).ok());
  CHECK_FALSE(gradients.empty());
  cluster.decide(cluster.outcome().decision);
  REQUIRE(cluster.advance_to(Progress::finished).ok());
  call = "parameters";
  expect(executor.parameters(), unknown + "behind step 1 on device 0, `parameters` " + stage, 1);
  call.clear();
  const auto values = executor.parameters();
  REQUIRE(values.ok());
  CHECK(values.value().size() >= gradients.size());
  // Of the second pipeline nothing is taken.
  CHECK(cluster.executor(2).parameters().value().empty());
}

TEST_CASE("a stage that throws as its executor ends does not end the process", "[engine][errors]") {
  std::string call;
  std::vector<std::unique_ptr<TiredStage>> tired;  // The cluster tells them when it ends.
  {
    Cluster cluster(tiny_job(), {}, {}, {}, {}, [&](StageId, ModelStage& inner) -> StageProgram* {
      return tired.emplace_back(std::make_unique<TiredStage>(inner, call)).get();
    });
    cluster.train(0);
    call = "show_to";
  }
  REQUIRE_FALSE(tired.empty());
  for (const auto& stage : tired) CHECK(stage->thrown() == 1);
}

}  // namespace
}  // namespace troupe::engine
