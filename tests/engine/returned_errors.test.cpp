// What is told of errors that stages of a user's return.

#include "tests/torch_catch.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/execution/executor.hpp"
#include "tests/engine/hooked_stage.hpp"
#include "tests/engine/tiny_cluster.hpp"

namespace troupe::engine {
namespace {

/// Returns an error from this call.
class SayingStage final : public HookedStage {
 public:
  SayingStage(StageProgram& inner, std::string call, Error error)
      : HookedStage(inner, [] {}), call_(std::move(call)), error_(std::move(error)) {}

  Status begin(const IterationPlan& plan, const data::DecodedSamples& samples) override {
    if (call_ == "begin") return error_;
    return HookedStage::begin(plan, samples);
  }
  Status forward(PartKey part) override {
    if (call_ == "forward") return error_;
    return HookedStage::forward(part);
  }
  Status backward(PartKey part) override {
    if (call_ == "backward") return error_;
    return HookedStage::backward(part);
  }
  Result<at::Tensor> rows_for(MessageId id) override {
    if (call_ == "rows_for") return error_;
    return HookedStage::rows_for(id);
  }
  Result<at::Tensor> gradient_for(MessageId id) override {
    if (call_ == "gradient_for") return error_;
    return HookedStage::gradient_for(id);
  }

 private:
  const std::string call_;
  const Error error_;
};

/// A cluster in which this stage returns the error from the call.
class SayingCluster {
 public:
  SayingCluster(StageId saying, const std::string& call, const Error& error,
                const job::Job& job = tiny_job())
      : cluster(job, {}, {}, {}, {}, [=, this](StageId id, ModelStage& inner) -> StageProgram* {
          if (id != saying) return &inner;
          return stages_.emplace_back(std::make_unique<SayingStage>(inner, call, error)).get();
        }) {}

  /// What ends the step.
  Error told() {
    cluster.begin(0);
    const Status ended = cluster.advance_to(Progress::committing);
    REQUIRE_FALSE(ended.ok());
    return ended.error();
  }

 private:
  std::vector<std::unique_ptr<SayingStage>> stages_;  // The cluster tells them when it ends.

 public:
  Cluster cluster;
};

const Error kNoGood{Errc::bad_data, "no good", "the user's own", "look there"};

TEST_CASE("an error that a stage returns is told with stage, call, step and samples",
          "[engine][errors]") {
  struct Case {
    std::string call;
    std::size_t stage;  // And device.
    std::string action, layers;
  };
  for (const Case& one : {Case{"forward", 0, "forward", "vision layers 0 to "},
                          Case{"backward", 0, "backward", "vision layers 0 to "},
                          Case{"rows_for", 0, "send", "vision layers 0 to "},
                          Case{"gradient_for", 1, "send_gradient", "llm layers 0 to 3)"}}) {
    CAPTURE(one.call);
    SayingCluster saying(StageId{one.stage}, one.call, kNoGood);
    const Error told = saying.told();
    INFO(told.message);
    const std::string number = std::to_string(one.stage);
    CHECK(told.message.starts_with("no good, in step 1 on device " + number + ", " + one.action +
                                   " of stage " + number + " (" + one.layers));
    CHECK(told.message.find(") for samples 's") != std::string::npos);
    CHECK(told.message.find("' of microbatch ") != std::string::npos);
    CHECK(told.code == kNoGood.code);
    CHECK(told.where == kNoGood.where);
    CHECK(told.fix == kNoGood.fix);
    // No other node would hear something else.
    CHECK_FALSE(saying.cluster.executor(one.stage).take_thrown());
  }
}

TEST_CASE("an error that a stage returns as a step begins is told with stage and call",
          "[engine][errors]") {
  SayingCluster saying(StageId{2}, "begin", kNoGood);
  SampleStore store;
  auto planned = plan_tiny_batch(saying.cluster.setup(), saying.cluster.plan(), store);
  REQUIRE(planned.ok());
  const Status begun = saying.cluster.executor(2).begin(
      std::make_shared<const IterationPlan>(std::move(planned.value().iteration)), store);
  REQUIRE_FALSE(begun.ok());
  INFO(begun.error().message);
  CHECK(begun.error().message.starts_with(
      "no good, in step 1 on device 2, `begin` of stage 2 (vision layers 0 to "));
  CHECK(begun.error().code == kNoGood.code);
  CHECK(begun.error().fix == kNoGood.fix);
}

TEST_CASE("a stage that is asked to put away what it cannot is named", "[engine][errors]") {
  job::Job job = tiny_job();
  job.scheduler.schedule = "three-phase";
  job.scheduler.offload_encoders = "activations";
  job.train.global_batch_size = 12;  // Pictures in more than one microbatch.
  const Error told = SayingCluster(StageId{0}, "", {}, job).told();  // It has no `offload`.
  INFO(told.message);
  CHECK(told.code == Errc::unavailable);
  CHECK(
      told.message.starts_with("a stage of the user's own keeps its activations on the device, "
                               "in step 1 on device 0, offload of stage 0 (vision layers 0 to "));
  CHECK(told.where == "scheduler.offload_encoders");
}

TEST_CASE("samples that an error has named already are named once", "[engine][errors]") {
  const std::string words = SayingCluster(StageId{0}, "forward", kNoGood).told().message;
  const auto begin = words.find(" for samples '");
  REQUIRE(begin != std::string::npos);
  const std::string part = words.substr(begin);
  const std::string own = "layers make 3 rows" + part + ", which have 2";  // As the engine's own.
  const Error error{Errc::internal, own, {}, {}};
  const std::string told = SayingCluster(StageId{0}, "forward", error).told().message;
  INFO(told);
  CHECK(told.starts_with(own + ", in step 1 on device 0, forward of stage 0 (vision layers 0 to "));
  CHECK(told.ends_with(")"));
}

TEST_CASE("an error without words or a fix is told all the same", "[engine][errors]") {
  const Error told = SayingCluster(StageId{0}, "forward", {}).told();
  INFO(told.message);
  CHECK(told.message.starts_with("an error without words, in step 1 on device 0, forward of "));
  CHECK(told.fix.starts_with("where a plug-in computes there, correct it"));
}

}  // namespace
}  // namespace troupe::engine
