#include <algorithm>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "app/data_commands.hpp"
#include "app/terminal.hpp"
#include "runtime/data/batch_loader.hpp"

namespace troupe::app {

namespace {

using Json = nlohmann::ordered_json;

/// Lengths of one kind over all good samples that have it.
struct Lengths {
  std::string name;
  std::vector<std::int64_t> values;

  std::int64_t at(double share) const {
    return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
  }
  std::int64_t sum() const { return std::accumulate(values.begin(), values.end(), 0LL); }
};

/// What was found so far.
struct Census {
  std::int64_t samples = 0;
  std::int64_t with_images = 0;
  std::int64_t with_audio = 0;
  std::int64_t with_both = 0;
  Lengths llm_tokens{"llm tokens", {}};
  Lengths trained_tokens{"trained tokens", {}};
  Lengths patches{"image patches", {}};
  Lengths frames{"audio frames", {}};
  std::vector<data::BadSample> bad;

  void add(const data::DecodeOutcome& outcome) {
    ++samples;
    if (const auto* fault = std::get_if<data::BadSample>(&outcome)) return bad.push_back(*fault);
    const auto& sample = std::get<data::DecodedSample>(outcome);
    const bool images = !sample.images.empty();
    const bool audio = !sample.audio.empty();
    with_both += images && audio ? 1 : 0;
    with_images += images && !audio ? 1 : 0;
    with_audio += audio && !images ? 1 : 0;
    llm_tokens.values.push_back(sample.llm_tokens);
    trained_tokens.values.push_back(sample.trained_tokens);
    for (const auto& image : sample.images)
      patches.values.push_back(std::int64_t{image.grid_height} * image.grid_width);
    for (const auto& window : sample.audio) frames.values.push_back(window.frames);
  }

  std::vector<Lengths*> lengths() { return {&llm_tokens, &trained_tokens, &patches, &frames}; }
};

/// Runs every record through the loader that training uses, in file order.
class CensusTaker {
 public:
  CensusTaker(const OpenedData& opened, data::BatchLoader& loader)
      : loader_(loader), records_(opened.dataset->size()) {}

  Result<Census> take() {
    Census census;
    for (std::int64_t batch = 0; batch < kAhead; ++batch)
      if (auto asked = request(batch); !asked.ok()) return asked.error();
    for (std::int64_t batch = 0; batch * kBatch < records_; ++batch) {
      auto decoded = loader_.take(batch, std::chrono::hours(1));
      if (!decoded.ok()) return std::move(decoded).error();
      for (const auto& outcome : decoded.value().samples) census.add(outcome);
      if (stdout_has_colours())
        std::cerr << "\r" << with_commas(census.samples) << " of " << with_commas(records_)
                  << " samples" << std::flush;
      if (auto asked = request(batch + kAhead); !asked.ok()) return asked.error();
    }
    if (stdout_has_colours()) std::cerr << "\r\x1b[K";
    for (auto* lengths : census.lengths())
      std::sort(lengths->values.begin(), lengths->values.end());
    return census;
  }

 private:
  static constexpr std::int64_t kBatch = 32;
  static constexpr std::int64_t kAhead = 4;

  Status request(std::int64_t batch) {
    data::BatchRequest wanted{batch, 0, {}};
    const auto end = std::min(records_, (batch + 1) * kBatch);
    for (auto position = batch * kBatch; position < end; ++position)
      wanted.samples.push_back({position, {}});
    return wanted.samples.empty() ? Status(Done{}) : loader_.request(std::move(wanted));
  }

  data::BatchLoader& loader_;
  std::int64_t records_;
};

void print(Census& census, std::int64_t shown_bad) {
  const auto good = census.samples - static_cast<std::int64_t>(census.bad.size());
  std::cout << with_commas(census.samples) << " samples: " << with_commas(census.with_images)
            << " with images, " << with_commas(census.with_audio) << " with audio, "
            << with_commas(census.with_both) << " with both, "
            << with_commas(good - census.with_images - census.with_audio - census.with_both)
            << " text only\n";
  for (const auto* lengths : census.lengths()) {
    if (lengths->values.empty()) continue;
    std::cout << std::left << std::setw(16) << lengths->name << "p50 "
              << with_commas(lengths->at(0.5)) << "  p95 " << with_commas(lengths->at(0.95))
              << "  max " << with_commas(lengths->values.back()) << "  sum "
              << with_commas(lengths->sum()) << '\n';
  }
  if (good > 0)
    std::cout << std::fixed << std::setprecision(1)
              << 100.0 * static_cast<double>(census.trained_tokens.sum()) /
                     static_cast<double>(census.llm_tokens.sum())
              << " % of llm tokens carry loss\n";
  std::cout << with_commas(static_cast<std::int64_t>(census.bad.size())) << " bad samples\n";
  for (std::int64_t i = 0; i < std::min<std::int64_t>(shown_bad, std::ssize(census.bad)); ++i)
    std::cout << "  " << to_string(census.bad[static_cast<std::size_t>(i)]) << '\n';
  if (std::ssize(census.bad) > shown_bad) std::cout << "  ... `--json` lists them all\n";
}

void print_json(Census& census) {
  Json json{{"samples", census.samples},
            {"with_images", census.with_images},
            {"with_audio", census.with_audio},
            {"with_both", census.with_both}};
  for (const auto* lengths : census.lengths()) {
    if (lengths->values.empty()) continue;
    auto name = lengths->name;
    std::replace(name.begin(), name.end(), ' ', '_');
    json[name] = {{"p50", lengths->at(0.5)},
                  {"p95", lengths->at(0.95)},
                  {"max", lengths->values.back()},
                  {"sum", lengths->sum()}};
  }
  json["bad_samples"] = Json::array();
  for (const auto& bad : census.bad)
    json["bad_samples"].push_back({{"id", bad.id},
                                   {"kind", data::to_string(bad.kind)},
                                   {"file", bad.file},
                                   {"where", bad.where},
                                   {"reason", bad.reason}});
  std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
}

}  // namespace

int check_data(const DataOptions& options) {
  const auto opened = open_data(options.job);
  if (!opened.ok()) return report(opened.error());
  auto in_file_order = opened.value().setup.data;
  in_file_order.shuffle = false;
  const auto threads = std::max(1U, std::thread::hardware_concurrency());
  auto loader = data::BatchLoader::start(opened.value().dataset, in_file_order,
                                         {.threads = static_cast<std::int32_t>(threads)});
  if (!loader.ok()) return report(loader.error());
  auto census = CensusTaker{opened.value(), loader.value()}.take();
  if (!census.ok()) return report(census.error());
  constexpr std::int64_t kShownBad = 10;
  if (options.json)
    print_json(census.value());
  else
    print(census.value(), kShownBad);
  const auto bad = std::ssize(census.value().bad);
  const double allowed = opened.value().setup.job.data.max_bad_fraction;
  if (static_cast<double>(bad) <= allowed * static_cast<double>(census.value().samples))
    return kDone;
  std::ostringstream limit;
  limit << allowed;
  return report({Errc::bad_data,
                 std::to_string(bad) + " of " + std::to_string(census.value().samples) +
                     " samples are bad, first: " + to_string(census.value().bad.front()),
                 "data.max_bad_fraction = " + limit.str(),
                 "correct or remove them, or raise data.max_bad_fraction"});
}

}  // namespace troupe::app
