#include "tests/torch_catch.hpp"

#include "models/own_update.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/linear.hpp"
#include "models/family/block_work.hpp"
#include "models/family/registry.hpp"
#include "models/parameter_layer.hpp"
#include "scheduler/state/standby_holders.hpp"
#include "tests/engine/tiny_cluster.hpp"

namespace troupe::engine {
namespace {

struct CountingConfig {
  std::int32_t each = 1;  ///< What a row counts.
  friend bool operator==(const CountingConfig&, const CountingConfig&) = default;
};

/// A linear projector that counts its rows.
class CountingLayer final : public models::ParameterLayer {
 public:
  CountingLayer(std::int32_t each, std::vector<models::Parameter> parameters)
      : ParameterLayer(std::move(parameters)), each_(each) {}

  at::Tensor forward(const at::Tensor& rows, const models::PackedBatch&) override {
    const auto& p = *this;  // weight, bias, seen
    const auto count = static_cast<double>(each_ * rows.size(0));
    return models::contribute(kernels::linear(rows, p[0], p[1]), p[2],
                              at::full({1}, count, rows.options().requires_grad(false)));
  }

 private:
  const std::int32_t each_;
};

/// Adds the family `counting`, once. Its rule: seen += what was counted, and how often it was
/// asked.
void register_counting_family() {
  if (models::find_family("counting") != nullptr) return;
  models::Family family{"counting", ModuleKind::projector, CountingConfig{}};
  family.fields = models::fields_of<CountingConfig>(
      +[](models::ConfigFields& v, CountingConfig& x) { v.integer("each", x.each, 1, 1 << 20); });
  family.sizes =
      models::asked<CountingConfig>(+[](const CountingConfig&) { return models::ModuleSizes{}; });
  family.describe = [](const ModuleConfig& module, const models::Widths& widths) {
    models::LayerDescription layer{module.name + ".counting", {}};
    models::add_linear(layer, module.name, widths.output, widths.input);
    layer.parameters.push_back(
        {module.name + ".seen", {1}, models::Initial::zeros, false, {}, true});
    return models::ModuleDescription{{std::move(layer)}, widths.output, widths.output};
  };
  family.works = [](const ModuleConfig& module, const models::Widths& widths) {
    return std::vector{models::dense_work(module.name + ".counting",
                                          static_cast<double>(widths.input * widths.output),
                                          widths.output, static_cast<double>(widths.input))};
  };
  family.make = [](const ModuleConfig& module, int, std::vector<models::Parameter> parameters) {
    return std::make_unique<CountingLayer>(module.config.as<CountingConfig>().each,
                                           std::move(parameters));
  };
  family.update = [](const ModuleConfig&, const models::ParameterUpdate& update) {
    update.value.add_(update.sum);
    update.first.add_(1);
  };
  REQUIRE(models::register_family(std::move(family)).ok());
}

/// The tiny job with a projector that counts; two pipelines, or one on two of the four nodes.
job::Job counting_job(std::int32_t each, bool one_pipeline) {
  register_counting_family();
  job::Job job = tiny_job();
  job.modules[1].family = "counting";
  job.modules[1].config = CountingConfig{each};
  if (!one_pipeline) return job;
  job.parallel.layout.pipelines = {
      {{0, 0, {{"vision", {}}, {"llm", LayerRange{0, 2}}}}, {1, 0, {{"llm", LayerRange{2, 4}}}}}};
  job.cluster.nodes = 2;
  return job;
}

/// All four nodes hold everything; those beyond the plan's without a stage.
ParallelPlan held_by_all(ParallelPlan plan) {
  while (plan.devices.size() < 4) plan.devices.push_back({NodeId{plan.devices.size()}, 0});
  return scheduler::add_standbys(std::move(plan), {3, Dtype::fp64}).value();
}

/// Of every parameter that trains, its value and the first of what its rule or AdamW keeps.
std::map<std::string, std::pair<at::Tensor, at::Tensor>> trained(Cluster& cluster) {
  std::map<std::string, std::pair<at::Tensor, at::Tensor>> all;
  for (std::size_t g = 0; g < cluster.plan().groups.size(); ++g) {
    ParameterShard& state = cluster.state(GroupId{g}, 0);
    for (std::size_t p = 0; p < state.parameters().size(); ++p)
      all[state.parameters()[p]->name] = {state.parameters()[p]->value.detach().clone(),
                                          state.optimizers()[p].exp_avg.clone()};
  }
  return all;
}

TEST_CASE("a parameter's own rule gets the sum of all replicas, at every holder", "[engine]") {
  for (const bool one_pipeline : {false, true})
    for (const auto& [dtype, offloads] :
         {std::pair{Dtype::fp64, "off"}, std::pair{Dtype::bf16, "off"},
          std::pair{Dtype::fp64, "moments"}}) {
      CAPTURE(one_pipeline, static_cast<int>(dtype), offloads);
      auto job = counting_job(1, one_pipeline);
      job.train.dtype = dtype;
      job.scheduler.offload_encoders = offloads;
      Cluster cluster(job, {}, {}, held_by_all);
      for (const std::int64_t batch : {0, 1}) cluster.train(batch);
      std::map<GroupId, std::set<std::uint64_t>> hashes;
      for (std::size_t device = 0; device < 4; ++device)
        for (const auto& holder : cluster.executor(device).take_report().hashes)
          hashes[holder.group].insert(holder.hash);
      for (const auto& [group, own] : hashes) CHECK(own.size() == 1);
      // Three pictures of four rows in each of two batches.
      const auto [seen, asked] = trained(cluster).at("projector.seen");
      CHECK(seen.item<double>() == 24);
      CHECK(asked.item<double>() == 2);
      static_cast<void>(cluster.loss_of(2));  // A step that is discarded.
      CHECK(trained(cluster).at("projector.seen").first.item<double>() == 24);
    }
}

TEST_CASE("contributions count in no norm, and change nothing of what AdamW moves", "[engine]") {
  Cluster few(counting_job(1, false)), many(counting_job(1 << 20, false));
  for (Cluster* cluster : {&few, &many}) cluster->train(0);
  const auto expected = trained(few), found = trained(many);
  REQUIRE(found.size() == expected.size());
  for (const auto& [name, own] : found) {
    CAPTURE(name);
    CHECK(at::equal(own.first, expected.at(name).first) == (name != "projector.seen"));
  }
  CHECK(found.at("projector.seen").first.item<double>() == 12 << 20);
}

}  // namespace
}  // namespace troupe::engine
