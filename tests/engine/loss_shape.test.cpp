#include "tests/torch_catch.hpp"

#include "engine/execution/loss_shape.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/reference/plan_replica.hpp"
#include "engine/reference/whole_model.hpp"
#include "tests/engine/odd_losses.hpp"
#include "tests/engine/tiny_cluster.hpp"

namespace troupe::engine {
namespace {

using Change = std::function<at::Tensor(const at::Tensor&)>;

at::Tensor in_a_column(const at::Tensor& losses) { return losses.unsqueeze(1); }
at::Tensor as_one_sum(const at::Tensor& losses) { return losses.sum(); }
at::Tensor twice(const at::Tensor& losses) { return at::cat({losses, losses}); }
at::Tensor none(const at::Tensor& /*losses*/) { return {}; }

TEST_CASE("losses are one number for each sample", "[engine][errors]") {
  ModuleSpec llm;
  llm.name = "llm";
  llm.layers.resize(1);
  llm.layers[0].name = "llm.head";
  const auto found = [&](const at::Tensor& losses) {
    const Status checked = check_losses(llm, losses, 2, " for samples 'a', 'b'");
    return checked.ok() ? std::string() : checked.error().message;
  };
  const std::string layer = "layer 'llm.head' of module 'llm' gives ";
  const std::string asked = " for samples 'a', 'b', instead of 2: one for each sample";
  const at::Tensor losses = at::zeros({2});
  CHECK(found(losses) == "");
  CHECK(found(twice(losses)) == layer + "losses of the shape 4" + asked);
  CHECK(found(in_a_column(losses)) == layer + "losses of the shape 2 x 1" + asked);
  CHECK(found(as_one_sum(losses)) == layer + "losses of the shape of one number" + asked);
  CHECK(found(none(losses)) == layer + "no losses" + asked);
}

TEST_CASE("a step ends by losses that are not one for each sample of a part", "[engine][errors]") {
  for (const Change& change : {Change(in_a_column), Change(as_one_sum), Change(twice)}) {
    Cluster cluster(with_odd_losses(tiny_job()));
    change_of_losses() = change;
    cluster.begin(0);
    const Status ended = cluster.advance_to(Progress::committing);
    change_of_losses() = nullptr;
    REQUIRE_FALSE(ended.ok());
    INFO(ended.error().message);
    CHECK(ended.error().message.starts_with("layer 'llm."));
    CHECK(ended.error().message.find("' of module 'llm' gives losses of the shape ") !=
          std::string::npos);
    CHECK(ended.error().message.find(" of microbatch ") != std::string::npos);
  }
  Cluster cluster(with_odd_losses(tiny_job()));
  cluster.train(0);  // As they are, they train.
}

TEST_CASE("a plan's reference asks for a loss of each sample too", "[engine][errors]") {
  const JobSetup setup = prepare(with_odd_losses(tiny_job())).value();
  const ParallelPlan plan = make_parallel_plan(setup).value();
  SampleStore samples;
  const IterationPlan iteration = plan_tiny_batch(setup, plan, samples).value().iteration;
  std::vector<std::unique_ptr<PlanReplica>> replicas;
  PlanReplica::Crossings crossings;
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
    std::vector<WholeModel> models;
    for (std::size_t m = PlanReplica::models_needed(plan, PipelineId{p}); m > 0; --m)
      models.push_back(WholeModel::create(setup).value());
    replicas.push_back(std::make_unique<PlanReplica>(plan, PipelineId{p}, std::move(models)));
    replicas.back()->begin({});
    REQUIRE(replicas.back()->encode(iteration, samples, crossings).ok());
  }
  const auto trained = [&](const Change& change) {
    change_of_losses() = change;
    Status done = replicas.front()->train_llm(iteration, samples, crossings);
    change_of_losses() = nullptr;
    return done;
  };
  CHECK(trained({}).ok());
  for (const Change& change : {Change(in_a_column), Change(as_one_sum), Change(twice)}) {
    const Status refused = trained(change);
    REQUIRE_FALSE(refused.ok());
    INFO(refused.error().message);
    CHECK(refused.error().message.find("' of module 'llm' gives losses of the shape ") !=
          std::string::npos);
    CHECK(refused.error().message.find(" in step 1, instead of ") != std::string::npos);
  }
}

}  // namespace
}  // namespace troupe::engine
