// Table A5 of Heterogeneous Parallelism by `auto_layout`, row by row at its own numbers of GPUs:
// one grid for encoder and LLM (H), layouts of their own on the same devices (C), devices of their
// own (NC). Each is what the search likes best; beside H and NC stand H1, whose encoder is whole on
// the first stage of its grid, and NC8, whose encoder has eight devices and is no pipeline: what
// these are in print. Rows beyond the table are extrapolated.
//
// State is whole on every replica, as Troupe keeps it; the paper shards its optimizer's.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "engine/layout/choose_layout.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "engine/setup/job_setup.hpp"
#include "runtime/job/load_job.hpp"
#include "scheduler/cost/device_catalog.hpp"
#include "scheduler/cost/roofline.hpp"
#include "scheduler/layout/auto_layout.hpp"
#include "scheduler/layout/encoder_placement.hpp"
#include "tests/bench/report.hpp"

using namespace troupe;
using namespace troupe::scheduler;
using Json = nlohmann::json;

namespace {

// "Across nodes, each node uses eight 400 Gb/s ConnectX-7 InfiniBand cards" (appendix A).
constexpr double kNetworkGigabytesPerS = 400.0 / 8;
// A microbatch of one sample each wherever a replica has up to as many: all of a batch but those of
// the largest, extrapolated clusters.
constexpr std::int64_t kMicrobatches = 256;
// The table calls a gain of -0.9 % on par.
constexpr double kOnPar = 0.01;

template <class T>
T needed(Result<T> made) {
  if (made.ok()) return std::move(made).value();
  std::cerr << to_string(made.error()) << '\n';
  std::exit(EXIT_FAILURE);
}

struct Row {
  std::string model;
  double vision_percent = 0;
  std::int32_t colocated = 0, apart = 0;  ///< GPUs of H and C, and of NC.
  std::string best;                       ///< In print; empty: the row is extrapolated.
};

Row row_of(const Json& row, const Json& gpus, std::string best) {
  return {row.at("model").get<std::string>(), row.at("vision_percent").get<double>(),
          gpus.at("colocated").get<std::int32_t>(), gpus.at("apart").get<std::int32_t>(),
          std::move(best)};
}

/// Those of the table, then its largest models on the larger clusters.
std::vector<Row> rows_of(const Json& table) {
  std::vector<Row> rows;
  for (const Json& row : table.at("rows"))
    rows.push_back(row_of(row, row, row.at("best").get<std::string>()));
  for (const Json& more : table.at("further"))
    for (const Json& row : table.at("rows"))
      if (row.at("colocated") == 256 && row.at("model").get<std::string>().ends_with("+120B"))
        rows.push_back(row_of(row, more, ""));
  return rows;
}

engine::JobSetup setup_of(const Json& table, const Row& row) {
  const auto plus = row.model.find('+');
  const Json& encoder = table.at("encoders").at(row.model.substr(0, plus));
  const Json& llm = table.at("llms").at(row.model.substr(plus + 1));
  std::vector<std::string> words{"modules.vision.config.hidden_size=" +
                                 llm.at("hidden_size").dump()};
  for (const char* key : {"depth", "embed_dim"})
    words.push_back(std::string("modules.vision.config.") + key + "=" + encoder.at(key).dump());
  for (const auto& [key, value] : llm.items())
    words.push_back("modules.llm.config." + key + "=" + value.dump());
  const auto job = needed(job::load_job("experiments/heterogeneous/model.toml", words));
  return needed(engine::prepare(job.job));
}

/// A sequence of pictures and text.
SampleShape sample_of(const Json& table, const Row& row, ModuleId vision) {
  const auto sequence = table.at("sequence").get<std::int32_t>();
  const auto picture = table.at("image_rows").get<std::int32_t>();
  const auto side = static_cast<std::int32_t>(std::lround(std::sqrt(picture)));
  const auto rows = static_cast<std::int32_t>(sequence * row.vision_percent / 100);
  SampleShape sample;
  sample.media.push_back({vision, {}});
  for (std::int32_t seen = 0; seen < rows; seen += picture)
    sample.media.back().items.push_back({picture, picture, picture, side, side});
  sample.llm_tokens = sequence;
  sample.trained_tokens = sequence - rows;
  return sample;
}

/// Mean step of what `auto_layout` chooses; none where nothing fits.
std::optional<AutoLayout> chosen(const AutoLayoutRequest& request) {
  auto made = auto_layout(request);
  if (!made.ok() && made.error().code == Errc::infeasible) return std::nullopt;
  return needed(std::move(made));
}

using Step = std::optional<double>;  ///< Milliseconds; none: nothing of the kind fits, or is found.

/// One grid for both: as many replicas of each, of the same degree of tensor parallelism.
Step homogeneous(AutoLayoutRequest request, const Json& degrees) {
  request.one_number = true;
  Step least;
  for (const Json& tp : degrees) {
    request.pins["vision"].tp = request.pins["llm"].tp = tp.get<std::int32_t>();
    const auto made = chosen(request);
    if (made && (!least || made->placed_ms < *least)) least = made->placed_ms;
  }
  return least;
}

constexpr std::int32_t kIsland = 8;       ///< Devices of an encoder of its own, in print.
constexpr std::int32_t kStagesMax = 16;   ///< Of a grid: four times what any row has in print.
constexpr std::int32_t kLayersLess = 12;  ///< Of the LLM on the first stage, at most.

/// Pipelines of a grid of `stages` stages of `tp` devices each, the encoder on the first one beside
/// `first` layers of the LLM, whose others are cut evenly.
HandLayout on_first_stage(const AutoLayoutRequest& request, std::int32_t tp, std::int32_t stages,
                          std::int32_t first) {
  const ModelGraph& model = request.model->graph();
  const auto layers = static_cast<std::int32_t>(model.at(model.llm()).layers.size());
  const std::int32_t per_node = request.cluster.devices_per_node;
  HandLayout layout;
  std::int32_t device = 0;
  for (std::int32_t p = 0; p < request.cluster.devices() / (tp * stages); ++p) {
    auto& pipeline = layout.pipelines.emplace_back();
    std::int32_t begin = 0;
    for (std::int32_t s = 0; s < stages; ++s, device += tp) {
      const std::int32_t end = s == 0 ? first : begin + (layers - begin) / (stages - s);
      HandStage& stage = pipeline.emplace_back();
      stage.node = device / per_node;
      for (std::int32_t rank = 0; rank < tp; ++rank)
        stage.devices.push_back(device % per_node + rank);
      stage.tp = tp;
      if (s == 0) stage.runs.push_back({"vision", std::nullopt});
      stage.runs.push_back({"llm", LayerRange{begin, end}});
      begin = end;
    }
  }
  return layout;
}

/// One grid for both as print has it: the encoder is no pipeline, and the LLM's first stage may
/// have fewer layers for it.
Step encoder_first(const AutoLayoutRequest& request, const Json& degrees) {
  const ModelGraph& model = request.model->graph();
  const auto layers = static_cast<std::int32_t>(model.at(model.llm()).layers.size());
  const auto memory = static_cast<double>(request.device_memory.count());
  Step least;
  for (const Json& degree : degrees)
    for (std::int32_t stages = 1; stages <= kStagesMax; ++stages) {
      const auto tp = degree.get<std::int32_t>();
      const std::int32_t devices = request.cluster.devices();
      if (devices % (tp * stages) != 0 || request.global_batch % (devices / (tp * stages)) != 0)
        continue;
      const std::int32_t even = layers / stages;
      for (std::int32_t first = even; first > std::max(0, even - kLayersLess); --first) {
        if (stages == 1 && first < layers) break;
        const auto plan = needed(
            place_by_hand(model, on_first_stage(request, tp, stages, first), request.cluster));
        const auto step = predict_step(plan, request);
        if (!step.ok()) continue;
        const auto& peaks = step.value().peak_memory_bytes;
        if (*std::ranges::max_element(peaks) <= memory)
          least = std::min(step.value().step_ms, least.value_or(HUGE_VAL));
      }
    }
  return least;
}

/// The best layout whose encoders stand so beside the llm.
Step placed(const AutoLayoutRequest& request, EncoderPlacement placement) {
  const auto made = chosen(request);
  if (!made) return std::nullopt;
  if (encoder_placement(made->plan) == placement) return made->placed_ms;
  const auto& other = made->other_placement;
  if (!other || other->placement != placement || !other->fits) return std::nullopt;
  return other->step_ms;
}

/// Eight devices of their own, one node, for encoders of a stage each.
Step on_an_island(AutoLayoutRequest request, const Json& degrees) {
  Step least;
  for (const Json& degree : degrees) {
    const auto tp = degree.get<std::int32_t>();
    request.pins["vision"] = {.tp = tp, .cp = {}, .pp = 1, .dp = kIsland / tp};
    const Step step = placed(request, EncoderPlacement::apart);
    if (step) least = std::min(*step, least.value_or(HUGE_VAL));
  }
  return least;
}

struct Steps {
  Step h, h1, c, nc, nc8;
};

Steps steps_of(const Json& table, const Row& row) {
  const auto setup = setup_of(table, row);
  const auto device = needed(find_device(table.at("device").get<std::string>()));
  auto network = engine::planned_network();
  network.gigabytes_per_s = kNetworkGigabytesPerS * RooflineOptions{}.link_share;
  const auto profile = engine::computed_profile(setup, device, engine::planned_degrees(), network);
  const auto model = needed(engine::cost_model(setup, profile));
  auto request = engine::layout_request(setup, model, profile.speeds);
  const auto per_node = table.at("devices_per_node").get<std::int32_t>();
  request.cluster = {row.colocated / per_node, per_node};
  request.device_memory =
      Bytes{static_cast<std::int64_t>(table.at("device_memory_gb").get<double>() * 1e9)};
  request.global_batch =
      table.at("global_batch").at(std::to_string(row.colocated)).get<std::int64_t>();
  request.microbatches = kMicrobatches;
  request.planned_only = true;
  request.samples = {sample_of(table, row, setup.model.find("vision"))};
  Steps steps;
  steps.h = homogeneous(request, table.at("tensor_degrees"));
  steps.h1 = encoder_first(request, table.at("tensor_degrees"));
  request.schedule = "three-phase";
  steps.c = placed(request, EncoderPlacement::shared);
  request.schedule = Schedule();
  request.cluster.nodes = row.apart / per_node;
  steps.nc = placed(request, EncoderPlacement::apart);
  steps.nc8 = on_an_island(request, table.at("tensor_degrees"));
  return steps;
}

/// By time per step and GPU. H and C on par are named both, as in print.
std::string best_of(const Row& row, Step of_h, Step of_c, Step of_nc) {
  const double none = HUGE_VAL;
  const double h = row.colocated * of_h.value_or(none);
  const double c = row.colocated * of_c.value_or(none);
  const double nc = row.apart * of_nc.value_or(none);
  if (nc < none && nc < std::min(h, c)) return "NC";
  if (std::min(h, c) == none) return "nothing fits";
  if (std::max(h, c) < none && std::abs(h - c) <= kOnPar * c) return "H/C";
  return h < c ? "H" : "C";
}

void print(const Row& row, const Steps& steps) {
  const auto name = row.model + ", " + Json(row.vision_percent).dump() + " % vision";
  const auto print_step = [&](const char* mode, const Step& step, std::int32_t gpus) {
    if (step)
      bench::report(name + ": step of " + mode, *step, "ms",
                    {{"size", std::to_string(gpus) + " GPUs"}, {"better", "lower"}});
  };
  print_step("H", steps.h, row.colocated);
  print_step("H1", steps.h1, row.colocated);
  print_step("C", steps.c, row.colocated);
  print_step("NC", steps.nc, row.apart);
  print_step("NC8", steps.nc8, row.apart);
  const auto print_best = [&](const char* of, const Step& h, const Step& nc) {
    const bool both = steps.c && nc;
    const double over = both ? *nc * row.apart / (*steps.c * row.colocated) - 1 : 0;
    bench::report(
        name + ": best of " + of + " is " + best_of(row, h, steps.c, nc) +
            (row.best.empty() ? " (extrapolated)" : " (in print " + row.best + ")") +
            (both ? "; C over the last per GPU" : "; C or the last does not fit or was not found"),
        100 * over, "%",
        {{"size", std::to_string(row.colocated) + ", " + std::to_string(row.apart) + " GPUs"}});
  };
  print_best("H, C and NC", steps.h, steps.nc);
  print_best("H1, C and NC8", steps.h1, steps.nc8);
}

}  // namespace

int main() {
  std::ifstream file("experiments/heterogeneous/table-a5.json");
  const Json table = Json::parse(file);
  for (const Row& row : rows_of(table)) print(row, steps_of(table, row));
}
