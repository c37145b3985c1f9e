#include "engine/profiling/profile_data.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <mutex>
#include <numeric>
#include <optional>
#include <system_error>
#include <thread>

#include "engine/setup/source_nodes.hpp"
#include "runtime/data/batches/epoch_order.hpp"
#include "runtime/data/samples/measure_sample.hpp"
#include "runtime/data/samples/sample_lengths.hpp"

namespace troupe::engine {

namespace {

struct Outcomes {
  std::vector<data::MeasureOutcome> samples;
  std::atomic<std::int64_t> indexed = 0;  ///< Of them, those an index knew.
};

/// Measures the records of `indices` on several threads; results in their order.
void measure_records(const JobSetup& setup, const data::Dataset& dataset,
                     const std::vector<std::int64_t>& indices, const DataProfileOptions& options,
                     Outcomes& measured) {
  constexpr std::int64_t kProgressEvery = 256;
  const auto modules = media_modules(setup);
  auto& outcomes = measured.samples;
  outcomes.resize(indices.size());
  std::atomic<std::size_t> next = 0;
  std::atomic<std::int64_t> done = 0;
  std::mutex progress;
  const auto work = [&] {
    for (std::size_t i = next++; i < indices.size(); i = next++) {
      const data::Record& record = dataset[indices[i]];
      data::SampleLengths lengths(setup.lengths.get(), record.source);
      outcomes[i] = data::measure_sample(dataset, record, setup.data, modules, lengths);
      if (lengths.was_indexed()) ++measured.indexed;
      const std::int64_t count = ++done;
      if (!options.on_progress || count % kProgressEvery != 0) continue;
      const std::lock_guard lock(progress);
      options.on_progress(count, std::ssize(indices));
    }
  };
  std::vector<std::jthread> threads;
  try {
    for (std::int32_t i = 1; i < options.threads; ++i) threads.emplace_back(work);
  } catch (const std::system_error&) {
    // Fewer threads than asked for do the same work.
  }
  work();
  threads.clear();  // Joins.
}

/// With who sees it.
data::MeasureOutcome measure_one(const JobSetup& setup, const data::Dataset& dataset,
                                 std::int64_t index) {
  const data::Record& record = dataset[index];
  data::SampleLengths lengths(setup.lengths.get(), record.source);
  auto outcome = data::measure_sample(dataset, record, setup.data, media_modules(setup), lengths);
  if (auto* shape = std::get_if<SampleShape>(&outcome))
    shape->seen_by = nodes_that_see(setup.job, static_cast<std::size_t>(record.source));
  return outcome;
}

struct Measured {
  std::vector<SampleShape> good;
  std::optional<data::BadSample> first_bad;
  std::int64_t bad = 0;
  std::int64_t indexed = 0;
};

Measured sorted(Outcomes& outcomes) {
  Measured measured;
  measured.indexed = outcomes.indexed;
  for (auto& outcome : outcomes.samples) {
    if (auto* shape = std::get_if<SampleShape>(&outcome)) {
      measured.good.push_back(std::move(*shape));
    } else {
      ++measured.bad;
      if (!measured.first_bad) measured.first_bad = std::get<data::BadSample>(std::move(outcome));
    }
  }
  return measured;
}

Error all_bad(const Measured& measured) {
  return {Errc::bad_data,
          "none of " + std::to_string(measured.bad) +
              " samples can be used; the first: " + data::to_string(*measured.first_bad),
          "data", "run `troupe data check`"};
}

/// A random selection of at most `count` records, without repetition.
std::vector<std::int64_t> selection(std::uint64_t seed, std::int64_t records, std::int64_t count) {
  auto order = data::epoch_order(seed, 0, records);
  order.resize(static_cast<std::size_t>(std::min(records, count)));
  return order;
}

Result<Measured> measure(const JobSetup& setup, const data::Dataset& dataset,
                         const std::vector<std::int64_t>& indices,
                         const DataProfileOptions& options) {
  Outcomes outcomes;
  measure_records(setup, dataset, indices, options, outcomes);
  auto measured = sorted(outcomes);
  if (measured.good.empty()) return all_bad(measured);
  return measured;
}

std::vector<HistogramBar> histogram_of(const std::vector<std::int64_t>& ascending) {
  std::vector<HistogramBar> bars;
  for (const std::int64_t length : ascending) {
    const auto from = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(length)));
    while (bars.empty() || bars.back().from < from) {
      const std::int64_t next = bars.empty() ? from : bars.back().to;
      bars.push_back({next, std::max<std::int64_t>(1, 2 * next), 0});
    }
    ++bars.back().count;
  }
  return bars;
}

}  // namespace

LengthDistribution distribution_of(std::vector<std::int64_t> lengths) {
  LengthDistribution made;
  if (lengths.empty()) return made;
  std::sort(lengths.begin(), lengths.end());
  const auto rank = [&](std::size_t percent) {
    return lengths[(lengths.size() * percent + 99) / 100 - 1];
  };
  const auto count = static_cast<double>(lengths.size());
  double squares = 0;
  made.count = std::ssize(lengths);
  for (const auto length : lengths) made.mean += static_cast<double>(length) / count;
  for (const auto length : lengths)
    squares +=
        (static_cast<double>(length) - made.mean) * (static_cast<double>(length) - made.mean);
  made.deviation = std::sqrt(squares / count);
  made.smallest = lengths.front();
  made.p25 = rank(25);
  made.p50 = rank(50);
  made.p75 = rank(75);
  made.p95 = rank(95);
  made.p99 = rank(99);
  made.largest = lengths.back();
  made.histogram = histogram_of(lengths);
  return made;
}

DataProfile describe_shapes(const ModelGraph& model, std::span<const SampleShape> shapes) {
  DataProfile profile;
  profile.records = profile.measured = std::ssize(shapes);
  const double count = std::max(1.0, static_cast<double>(shapes.size()));
  std::vector<std::int64_t> tokens, trained;
  for (const auto& shape : shapes) {
    tokens.push_back(shape.llm_tokens);
    trained.push_back(shape.trained_tokens);
    profile.text_only_share += shape.media.empty() ? 1 / count : 0;
  }
  profile.llm_tokens = distribution_of(std::move(tokens));
  profile.trained_tokens = distribution_of(std::move(trained));
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    if (model.modules[m].kind != ModuleKind::encoder) continue;
    std::vector<std::int64_t> items, samples;
    for (const auto& shape : shapes) {
      const auto* list = shape.items(ModuleId{m});
      if (list == nullptr) continue;
      for (const auto& item : *list) items.push_back(item.hidden_rows);
      samples.push_back(shape.hidden_rows(ModuleId{m}));
    }
    const double share = static_cast<double>(samples.size()) / count;
    profile.encoders.push_back({model.modules[m].name, share, distribution_of(std::move(items)),
                                distribution_of(std::move(samples))});
  }
  return profile;
}

Result<DataProfile> profile_data(const JobSetup& setup, const DataProfileOptions& options) {
  const auto dataset = data::Dataset::open(setup.data);
  if (!dataset.ok()) return dataset.error();
  const auto indices = selection(options.seed, dataset.value().size(), options.samples_max);
  const auto measured = measure(setup, dataset.value(), indices, options);
  if (!measured.ok()) return measured.error();
  auto profile = describe_shapes(setup.model, measured.value().good);
  profile.records = dataset.value().size();
  profile.measured = std::ssize(indices);
  profile.bad = measured.value().bad;
  profile.indexed = measured.value().indexed;
  return profile;
}

Result<std::vector<SampleShape>> draw_shapes(const JobSetup& setup, std::int64_t count,
                                             std::uint64_t seed) {
  if (count < 1)
    return Error{Errc::invalid_argument,
                 "a planner needs at least one sample, not " + std::to_string(count),
                 {},
                 {}};
  const auto dataset = data::Dataset::open(setup.data);
  if (!dataset.ok()) return dataset.error();
  const std::int64_t records = dataset.value().size();
  // Some may turn out bad, so that one selection may not be enough. What was measured is kept: a
  // repetition reads nothing again.
  std::vector<SampleShape> drawn;
  std::optional<data::BadSample> fault;
  std::vector<std::optional<data::MeasureOutcome>> known(static_cast<std::size_t>(records));
  for (std::int64_t epoch = 0; std::ssize(drawn) < count; ++epoch) {
    if (epoch == 1 && drawn.empty()) return all_bad({{}, fault, records});
    for (const auto index : data::epoch_order(seed, epoch, records)) {
      if (std::ssize(drawn) == count) break;
      auto& outcome = known[static_cast<std::size_t>(index)];
      if (!outcome) outcome = measure_one(setup, dataset.value(), index);
      if (const auto* shape = std::get_if<SampleShape>(&*outcome)) {
        drawn.push_back(*shape);
        drawn.back().position = std::ssize(drawn) - 1;
      } else if (!fault) {
        fault = std::get<data::BadSample>(*outcome);
      }
    }
  }
  return drawn;
}

Result<std::vector<std::vector<SampleShape>>> batch_shapes(const JobSetup& setup,
                                                           std::int64_t first, std::int64_t count) {
  if (first < 0 || count < 1)
    return Error{
        Errc::invalid_argument,
        "no batches " + std::to_string(first) + " and " + std::to_string(count) + " from there on",
        {},
        "count batches from 0, and ask for at least one"};
  const auto dataset = data::Dataset::open(setup.data);
  if (!dataset.ok()) return dataset.error();
  const std::int64_t records = dataset.value().size();
  std::vector<std::vector<SampleShape>> batches;
  for (std::int64_t batch = first; batch < first + count; ++batch) {
    const auto span = data::batch_span(batch, setup.job.train.global_batch_size, records);
    const auto order = data::record_order(setup.data, span.epoch, records);
    auto& shapes = batches.emplace_back();
    for (std::int64_t position = span.begin; position < span.end; ++position) {
      auto outcome = measure_one(setup, dataset.value(), order[static_cast<std::size_t>(position)]);
      if (!std::holds_alternative<SampleShape>(outcome)) continue;
      shapes.push_back(std::get<SampleShape>(std::move(outcome)));
      shapes.back().position = position;
    }
  }
  return batches;
}

}  // namespace troupe::engine
