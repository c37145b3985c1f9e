// Pipeline templates, their instantiation, and the distribution of a batch (Oobleck).

#include <charconv>

#include "app/solve/planning_problems.hpp"
#include "scheduler/iteration/distribute.hpp"
#include "scheduler/recovery/instantiate.hpp"
#include "scheduler/recovery/pipeline_templates.hpp"

namespace troupe::app {

namespace {

// {"2": ms, ...}: GPU counts are keys, hence text.
void read_sync(Reader& layer, std::map<std::int32_t, double>& sync_ms) {
  const std::string key = "in_node_sync_ms";
  if (!layer.has(key)) return;
  for (const auto& [text, value] : layer.object(key).items()) {
    std::int32_t gpus = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), gpus);
    if (code != std::errc{} || end != text.data() + text.size() || gpus < 1)
      return layer.fail(key, "expected a number of GPUs >= 1 as key, found '" + text + "'");
    if (!value.is_number() || !(value.get<double>() >= 0) || value.get<double>() > kLongestMs)
      return layer.fail(key + "." + text, "expected milliseconds >= 0");
    sync_ms[gpus] = value.get<double>();
  }
}

scheduler::TemplateRequest read_templates(Reader& in) {
  scheduler::TemplateRequest request;
  const std::size_t count = in.array("layers").size();
  for (std::size_t i = 0; i < count && in.ok(); ++i) {
    Reader layer = in.element("layers", i);
    layer.only({"forward_ms", "backward_ms", "memory_bytes", "in_node_sync_ms"});
    auto& read = request.layers.emplace_back();
    read.forward_ms = layer.number("forward_ms", 0, kLongestMs);
    read.backward_ms = layer.number("backward_ms", 0, kLongestMs);
    read.memory =
        Bytes{static_cast<std::int64_t>(layer.number_or("memory_bytes", 0, 0, kMostBytes))};
    read_sync(layer, read.in_node_sync_ms);
    in.absorb(layer);
  }
  request.node_count = in.integer("nodes", 1, kMostThings);
  request.gpus_per_node = in.integer("gpus_per_node", 1, kMostThings);
  request.fault_tolerance = in.integer_or("fault_tolerance", 0, 0, kMostThings);
  request.device_memory =
      Bytes{static_cast<std::int64_t>(in.number("device_memory_bytes", 1, kMostBytes))};
  if (in.has("min_nodes")) request.min_nodes = in.integer("min_nodes", 1, kMostThings);
  if (in.has("microbatches")) request.microbatches = in.integer("microbatches", 1, kMostThings);
  return request;
}

Json write_template(const scheduler::PipelineTemplate& made) {
  Json stages = Json::array();
  for (const auto& stage : made.stages)
    stages.push_back({{"layers", {stage.layers.begin, stage.layers.end}},
                      {"node", stage.node},
                      {"gpus", stage.gpu_count}});
  return {{"nodes", made.node_count},
          {"iteration_ms", made.iteration_ms},
          {"microbatch_ms", made.microbatch_ms},
          {"t1_ms", made.t1_ms},
          {"t2_ms", made.t2_ms},
          {"t3_ms", made.t3_ms},
          {"stages", std::move(stages)}};
}

Result<Json> solve_templates(const Json& input) {
  Reader in(input, "input");
  in.only({"layers", "nodes", "gpus_per_node", "fault_tolerance", "device_memory_bytes",
           "min_nodes", "microbatches"});
  const auto request = read_templates(in);
  if (!in.ok()) return in.error();
  return timed_json(
      [&] { return scheduler::make_templates(request); },
      [](const scheduler::TemplateSet& set) {
        Json templates = Json::array();
        for (const auto& made : set.templates) templates.push_back(write_template(made));
        return Json{{"min_nodes", set.min_nodes}, {"templates", std::move(templates)}};
      });
}

Result<Json> solve_instantiate(const Json& input) {
  Reader in(input, "input");
  in.only({"templates", "nodes", "fault_tolerance", "global_batch", "microbatch_size"});
  scheduler::InstantiateRequest request;
  const std::size_t count = in.array("templates").size();
  for (std::size_t i = 0; i < count && in.ok(); ++i) {
    Reader entry = in.element("templates", i);  // Other fields of a template may stay.
    request.templates.push_back(
        {entry.integer("nodes", 1, kMostThings), entry.number("microbatch_ms", 0, kLongestMs)});
    in.absorb(entry);
  }
  request.node_count = in.integer("nodes", 1, kMostThings);
  request.fault_tolerance = in.integer_or("fault_tolerance", 0, 0, kMostThings);
  request.global_batch = in.integer("global_batch", 1, kMostThings);
  request.microbatch_size = in.integer_or("microbatch_size", 1, 1, kMostThings);
  if (!in.ok()) return in.error();
  return timed_json([&] { return scheduler::instantiate(request); },
                    [](const scheduler::Instantiation& made) {
                      Json pipelines = Json::array();
                      for (const auto& pipeline : made.pipelines)
                        pipelines.push_back({{"nodes", pipeline.node_count},
                                             {"microbatches", pipeline.microbatches}});
                      return Json{{"combinations", made.combinations},
                                  {"pipelines", std::move(pipelines)},
                                  {"iteration_ms", made.iteration_ms},
                                  {"lower_bound_ms", made.lower_bound_ms},
                                  {"optimal", made.proven}};
                    });
}

Result<Json> solve_distribute(const Json& input) {
  Reader in(input, "input");
  in.only({"microbatch_ms", "global_batch", "microbatch_size"});
  const auto microbatch_ms = in.numbers("microbatch_ms", 0, kLongestMs);
  const auto batch = in.integer("global_batch", 1, kMostThings);
  const auto size = in.integer_or("microbatch_size", 1, 1, kMostThings);
  if (!in.ok()) return in.error();
  return timed_json([&] { return scheduler::distribute_proven(microbatch_ms, batch, size); },
                    [](const scheduler::Distribution& made) {
                      return Json{{"microbatches", made.microbatches}, {"optimal", made.optimal}};
                    });
}

const char* const kTemplatesSchema = R"({
  "layers": [{"forward_ms": ms on one GPU, >= 0, "backward_ms": same, after freezing,
              "memory_bytes"?: bytes on one GPU (default 0),
              "in_node_sync_ms"?: {"2": ms of collectives when split over 2 GPUs of a node...}}...],
  "nodes": N, integer >= 1, "gpus_per_node": integer >= 1,
  "fault_tolerance"?: f, integer >= 0 (default 0),
  "device_memory_bytes": bytes of one GPU,
  "min_nodes"?: n0, integer >= 1 (default: the fewest nodes that hold the model),
  "microbatches"?: Nb, integer >= 1 (default 4 x min(layers, nodes x gpus_per_node))
})";

const char* const kInstantiateSchema = R"({
  "templates": [{"nodes": integer >= 1, distinct, "microbatch_ms": ms > 0}...],
  "nodes": N, integer >= 1, all are used,
  "fault_tolerance"?: f, integer >= 0 (default 0): at least f + 1 pipelines,
  "global_batch": B, samples, integer >= 1, "microbatch_size"?: b, samples (default 1)
})";

const char* const kDistributeSchema = R"({
  "microbatch_ms": [ms > 0 per pipeline],
  "global_batch": B, samples, integer >= 1, "microbatch_size"?: b, samples (default 1)
})";

}  // namespace

std::vector<Problem> template_problems() {
  return {{"templates", "best pipeline for every node count (Oobleck 2.4.1)", kTemplatesSchema,
           solve_templates},
          {"instantiate", "which templates to use so that all nodes work (Oobleck 2.4.2)",
           kInstantiateSchema, solve_instantiate},
          {"distribute", "microbatches per pipeline by eq. 2.6, exactly", kDistributeSchema,
           solve_distribute}};
}

}  // namespace troupe::app
