#include "runtime/state/progress_json.hpp"

#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace troupe::state {

namespace {

/// Of one table; a planner keeps 4096 of each.
constexpr std::size_t kFactorsMax = std::size_t{1} << 16;

double positive(const Json& json, const char* what) {
  const double value = json.get<double>();
  if (!(std::isfinite(value) && value > 0))
    throw BadManifest(std::string("'") + what + "' is no number above 0");
  return value;
}

double not_negative(const Json& json, const char* what) {
  const double value = json.get<double>();
  if (!(std::isfinite(value) && value >= 0))
    throw BadManifest(std::string("'") + what + "' is no number from 0 on");
  return value;
}

}  // namespace

// ---- what was learned: tables are lists of lists, as there may be thousands of rows

Json json_of(const LearnedCosts& learned) {
  Json stages = Json::array(), samples = Json::array(), parts = Json::array();
  for (const LearnedStage& stage : learned.stages)
    stages.push_back({{"place", stage.place}, {"modules", stage.modules}, {"speed", stage.speed}});
  for (const LearnedFactor& row : learned.samples)
    samples.push_back(
        Json::array({row.stage, row.module, row.tokens, row.factor, row.measurements}));
  for (const LearnedFactor& row : learned.parts)
    parts.push_back(Json::array({row.stage, row.tokens, row.factor, row.measurements}));
  return {{"profile", learned.profile},
          {"stages", stages},
          {"speed_steps", learned.speed_steps},
          {"samples", samples},
          {"parts", parts},
          {"watches", learned.watches},
          {"benefit", learned.benefit},
          {"benefit_steps", learned.benefit_steps}};
}

namespace {

/// A row is [stage, (module,) tokens, factor, measurements].
std::vector<LearnedFactor> read_factors(const Json& rows, const LearnedCosts& learned,
                                        bool has_module) {
  if (rows.size() > kFactorsMax) throw BadManifest("it has learned too much");
  std::vector<LearnedFactor> factors;
  for (const Json& row : rows) {
    std::size_t at = 0;
    LearnedFactor factor;
    const std::int64_t stage = number_in(row.at(at++), "stage");
    if (stage >= std::ssize(learned.stages))
      throw BadManifest("what was learned names a stage that is not listed");
    factor.stage = static_cast<std::int32_t>(stage);
    if (has_module) factor.module = row.at(at++).get<std::string>();
    if (has_module && factor.module.empty()) throw BadManifest("a learned module has no name");
    factor.tokens = number_in(row.at(at++), "tokens", 1);
    factor.factor = positive(row.at(at++), "factor");
    factor.measurements = number_in(row.at(at++), "measurements", 1);
    factors.push_back(std::move(factor));
  }
  return factors;
}

/// Of records, and of epochs: their product can be counted.
constexpr std::int64_t kCountMax = std::int64_t{1} << 31;

/// Only what `data::Epochs` can go by.
std::vector<SourceCounts> read_epochs(const Json& data, std::int64_t records) {
  std::vector<SourceCounts> epochs;
  for (const Json& entry : list(data, "epochs")) {
    SourceCounts stretch{number(entry, "first"), {}};
    std::int64_t sum = 0;
    for (const Json& source : list(entry, "records")) {
      stretch.records.push_back(number_in(source, "records"));
      if (stretch.records.back() > records - sum)
        throw BadManifest("epochs have more records than there are");
      sum += stretch.records.back();
    }
    const std::int64_t first_min = epochs.empty() ? 0 : epochs.back().first_epoch + 1;
    const bool is_first = epochs.empty() && stretch.first_epoch == 0;
    if (sum > kCountMax || stretch.first_epoch > kCountMax)
      throw BadManifest("epochs count more than can be");
    if (sum == 0 || stretch.first_epoch < first_min || (epochs.empty() && !is_first))
      throw BadManifest("epochs begin out of order, or have no records");
    for (std::size_t s = 0; !epochs.empty() && s < epochs.back().records.size(); ++s)
      if (s >= stretch.records.size() || stretch.records[s] < epochs.back().records[s])
        throw BadManifest("a source of records becomes smaller");
    epochs.push_back(std::move(stretch));
  }
  if (!epochs.empty() && std::accumulate(epochs.back().records.begin(), epochs.back().records.end(),
                                         std::int64_t{0}) != records)
    throw BadManifest("the newest epochs do not have all records");
  return epochs;
}

}  // namespace

LearnedCosts read_learned(const Json& json) {
  LearnedCosts learned;
  learned.profile = text(json, "profile");
  for (const Json& entry : list(json, "stages"))
    learned.stages.push_back({text(entry, "place"),
                              list(entry, "modules").get<std::vector<std::string>>(),
                              not_negative(entry.at("speed"), "speed")});
  learned.speed_steps = number(json, "speed_steps");
  learned.samples = read_factors(list(json, "samples"), learned, true);
  learned.parts = read_factors(list(json, "parts"), learned, false);
  learned.watches = json.at("watches").get<bool>();
  learned.benefit = not_negative(json.at("benefit"), "benefit");
  learned.benefit_steps = number(json, "benefit_steps");
  return learned;
}

namespace {

PipelineShare read_share(const Json& json) {
  PipelineShare share{json.at(0).get<double>(), json.at(1).get<double>()};
  // Checkpoints of older builds have no more.
  if (json.size() > 2)
    share.llm_work_ms = json.at(2).get<double>(), share.llm_busy_ms = json.at(3).get<double>();
  const auto is_sound = [](double work_ms, double busy_ms) {
    return (work_ms > 0 && busy_ms > 0) || (work_ms == 0 && busy_ms == 0);
  };
  if (!is_sound(share.work_ms, share.busy_ms) || !is_sound(share.llm_work_ms, share.llm_busy_ms) ||
      share == PipelineShare{})
    throw BadManifest("a share takes no time");
  return share;
}

}  // namespace

Json json_of(const JobProgress& progress) {
  Json bad = Json::array();
  for (const BadSampleNote& sample : progress.bad)
    bad.push_back({{"id", sample.id}, {"batch", sample.batch}});
  Json deals = Json::array();
  for (const DealNote& note : progress.deals) {
    Json shares = Json::array();
    for (const PipelineShare& share : note.shares)
      shares.push_back(
          Json::array({share.work_ms, share.busy_ms, share.llm_work_ms, share.llm_busy_ms}));
    deals.push_back({{"batch", note.batch}, {"shares", shares}});
  }
  const DataOrder& data = progress.data;
  Json epochs = Json::array();
  for (const SourceCounts& stretch : data.epochs)
    epochs.push_back({{"first", stretch.first_epoch}, {"records", stretch.records}});
  return {{"step", progress.step},
          {"tokens", progress.tokens},
          {"generation", progress.generation},
          {"data",
           {{"records", data.records},
            {"hash", data.hash},
            {"batch_size", data.batch_size},
            {"seed", data.seed},
            {"shuffle", data.shuffle},
            {"epochs", epochs}}},
          {"skipped",
           {{"count", progress.skipped.count},
            {"nonfinite_in_a_row", progress.skipped.nonfinite_in_a_row},
            {"untrained_positions", progress.skipped.untrained_positions}}},
          {"bad", bad},
          {"deals", deals},
          {"learned", json_of(progress.learned)}};
}

JobProgress read_progress(const Json& json) {
  JobProgress progress;
  progress.step = number(json, "step", 1);
  progress.tokens = number(json, "tokens");
  const std::int64_t generation = number(json, "generation");
  if (generation > std::numeric_limits<EpochNumber>::max())
    throw BadManifest("'generation' is too large");
  progress.generation = static_cast<EpochNumber>(generation);
  const Json& data = json.at("data");
  progress.data = {number(data, "records", 1), data.at("hash").get<std::uint64_t>(),
                   number(data, "batch_size", 1), number(data, "seed"),
                   data.at("shuffle").get<bool>()};
  // As the next: checkpoints of older builds have none.
  if (data.contains("epochs")) progress.data.epochs = read_epochs(data, progress.data.records);
  const Json& skipped = json.at("skipped");
  const std::int64_t in_a_row = number(skipped, "nonfinite_in_a_row");
  if (in_a_row > std::numeric_limits<std::int32_t>::max())
    throw BadManifest("'nonfinite_in_a_row' is too large");
  progress.skipped = {number(skipped, "count"), static_cast<std::int32_t>(in_a_row),
                      number(skipped, "untrained_positions")};
  for (const Json& sample : list(json, "bad"))
    progress.bad.push_back({text(sample, "id"), number(sample, "batch")});
  for (const Json& note : list(json, "deals")) {
    DealNote deal{number(note, "batch"), {}};
    for (const Json& share : list(note, "shares")) {
      deal.shares.push_back(read_share(share));
    }
    progress.deals.push_back(std::move(deal));
  }
  if (json.contains("learned")) progress.learned = read_learned(json["learned"]);
  return progress;
}

}  // namespace troupe::state
