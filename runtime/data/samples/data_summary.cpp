#include "runtime/data/samples/data_summary.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <thread>

#include "runtime/data/samples/bad_sample_json.hpp"

namespace troupe::data {
namespace {

/// What is kept of one sample.
struct Measured {
  std::int64_t llm_tokens = 0;
  std::int64_t trained_tokens = 0;
  std::vector<std::int64_t> patches;
  std::vector<std::int64_t> frames;
  std::optional<BadSample> bad;
};

Measured measure(const Dataset& dataset, const Record& record, const DataOptions& options,
                 LengthIndex* index) {
  auto outcome = decode_sample(dataset, record, options, {}, index);
  Measured measured;
  if (auto* bad = std::get_if<BadSample>(&outcome)) {
    measured.bad = std::move(*bad);
    return measured;
  }
  const auto& sample = std::get<DecodedSample>(outcome);
  measured.llm_tokens = sample.llm_tokens;
  measured.trained_tokens = sample.trained_tokens;
  if (!sample.images.empty())
    for (const auto& image : sample.images.front())
      measured.patches.push_back(std::int64_t{image.grid_height} * image.grid_width);
  if (!sample.audio.empty())
    for (const auto& window : sample.audio.front()) measured.frames.push_back(window.frames);
  return measured;
}

std::vector<Measured> measure_all(const Dataset& dataset, const DataOptions& options,
                                  std::int32_t thread_count,
                                  const std::function<void(std::int64_t)>& on_progress,
                                  LengthIndex* index) {
  constexpr std::int64_t kProgressEvery = 64;
  std::vector<Measured> all(static_cast<std::size_t>(dataset.size()));
  std::atomic<std::int64_t> next = 0, done = 0;
  std::mutex progress_mutex;
  const auto work = [&] {
    while (true) {
      const std::int64_t number = next++;
      if (number >= dataset.size()) return;
      all[static_cast<std::size_t>(number)] = measure(dataset, dataset[number], options, index);
      const std::int64_t count = ++done;
      if (!on_progress || (count % kProgressEvery != 0 && count != dataset.size())) continue;
      const std::lock_guard lock(progress_mutex);
      on_progress(count);
    }
  };
  std::vector<std::jthread> threads;
  try {
    for (std::int32_t i = 1; i < thread_count; ++i) threads.emplace_back(work);
  } catch (const std::system_error&) {
    // Fewer threads than asked for do the same work.
  }
  work();
  threads.clear();  // Joins.
  return all;
}

std::string grouped(std::int64_t number) {  // 1,234,567
  std::string digits = std::to_string(number);
  for (auto at = std::ssize(digits) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

std::string percent(std::int64_t part, std::int64_t whole) {
  char text[16];
  const double share =
      whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
  std::snprintf(text, sizeof text, share < 10 ? "%.1f%%" : "%.0f%%", share);
  return text;
}

std::string line(std::string name, const LengthStatistics& lengths) {
  if (lengths.count == 0) return {};
  name.resize(18, ' ');
  return name + "p50 " + grouped(lengths.p50) + "  p95 " + grouped(lengths.p95) + "  max " +
         grouped(lengths.largest);
}

std::map<BadKind, std::int64_t> count_kinds(const std::vector<BadSample>& bad) {
  std::map<BadKind, std::int64_t> counts;
  for (const auto& sample : bad) ++counts[sample.kind];
  return counts;
}

std::string dropped_text(const DataSummary& summary, std::int32_t listed_max) {
  std::string text = "dropped " + grouped(std::ssize(summary.bad)) + " (" +
                     percent(std::ssize(summary.bad), summary.samples) + ")";
  const char* separator = ": ";
  for (const auto& [kind, count] : count_kinds(summary.bad)) {
    text += separator + grouped(count) + " " + std::string(to_string(kind));
    separator = ", ";
  }
  text += "\n";
  for (std::int32_t i = 0; i < std::min<std::int64_t>(listed_max, std::ssize(summary.bad)); ++i)
    text += "  " + to_string(summary.bad[static_cast<std::size_t>(i)]) + "\n";
  if (std::ssize(summary.bad) > listed_max)
    text += "  and " + grouped(std::ssize(summary.bad) - listed_max) + " more\n";
  return text;
}

nlohmann::ordered_json json_of(const LengthStatistics& lengths) {
  return {{"count", lengths.count}, {"sum", lengths.sum}, {"min", lengths.smallest},
          {"p50", lengths.p50},     {"p95", lengths.p95}, {"max", lengths.largest}};
}

}  // namespace

LengthStatistics statistics_of(std::vector<std::int64_t> lengths) {
  if (lengths.empty()) return {};
  std::sort(lengths.begin(), lengths.end());
  const auto rank = [&](std::size_t percent) {
    return lengths[(lengths.size() * percent + 99) / 100 - 1];
  };
  return {.count = std::ssize(lengths),
          .sum = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}),
          .smallest = lengths.front(),
          .p50 = rank(50),
          .p95 = rank(95),
          .largest = lengths.back()};
}

namespace {

/// What looks like a special token in the record's text; empty: nothing.
std::string_view find_special_name(const Record& record) {
  for (const auto& turn : record.turns)
    if (const auto name = ByteTokenizer::find_special_name(turn.text); !name.empty()) return name;
  return {};
}

void note_special_names(const Record& record, DataSummary& summary) {
  const auto name = find_special_name(record);
  if (name.empty()) return;
  if (++summary.with_special_names > 1) return;
  summary.first_special_name =
      "sample " + record.id + " (" + record.where + ") has '" + std::string(name) + "'";
}

}  // namespace

DataSummary summarize(const Dataset& dataset, const DataOptions& options, std::int32_t threads,
                      const std::function<void(std::int64_t)>& on_progress, LengthIndex* index) {
  DataSummary summary;
  summary.samples = dataset.size();
  for (const auto& record : dataset.records()) {
    summary.with_images += record.images.empty() ? 0 : 1;
    summary.with_audio += record.audio.empty() ? 0 : 1;
    summary.text_only += record.images.empty() && record.audio.empty() ? 1 : 0;
    note_special_names(record, summary);
  }
  std::vector<std::int64_t> tokens, trained, patches, frames;
  for (auto& measured : measure_all(dataset, options, threads, on_progress, index)) {
    if (measured.bad) {
      summary.bad.push_back(std::move(*measured.bad));
      continue;
    }
    tokens.push_back(measured.llm_tokens);
    trained.push_back(measured.trained_tokens);
    patches.insert(patches.end(), measured.patches.begin(), measured.patches.end());
    frames.insert(frames.end(), measured.frames.begin(), measured.frames.end());
  }
  summary.llm_tokens = statistics_of(std::move(tokens));
  summary.trained_tokens = statistics_of(std::move(trained));
  summary.image_patches = statistics_of(std::move(patches));
  summary.audio_frames = statistics_of(std::move(frames));
  return summary;
}

std::string to_text(const DataSummary& summary, std::int32_t listed_max) {
  std::string text = grouped(summary.samples) + " samples  " +
                     percent(summary.with_images, summary.samples) + " with images  " +
                     percent(summary.with_audio, summary.samples) + " with audio  " +
                     percent(summary.text_only, summary.samples) + " text only\n";
  const std::string trained = line("trained tokens", summary.trained_tokens);
  for (const auto& row :
       {line("llm tokens", summary.llm_tokens),
        trained.empty()
            ? trained
            : trained + "  (" + percent(summary.trained_tokens.sum, summary.llm_tokens.sum) +
                  " of tokens carry loss)",
        line("patches per image", summary.image_patches),
        line("frames per clip", summary.audio_frames)})
    if (!row.empty()) text += row + "\n";
  if (summary.with_special_names > 0)
    text += "special tokens written out in " + grouped(summary.with_special_names) +
            (summary.with_special_names == 1 ? " sample" : " samples") +
            ", first: " + summary.first_special_name +
            "; they are taken as plain text, letter by letter\n";
  return text + (summary.bad.empty() ? "dropped none\n" : dropped_text(summary, listed_max));
}

std::string to_json(const DataSummary& summary) {
  nlohmann::ordered_json object = {{"samples", summary.samples},
                                   {"with_images", summary.with_images},
                                   {"with_audio", summary.with_audio},
                                   {"text_only", summary.text_only},
                                   {"with_special_names", summary.with_special_names},
                                   {"llm_tokens", json_of(summary.llm_tokens)},
                                   {"trained_tokens", json_of(summary.trained_tokens)},
                                   {"patches_per_image", json_of(summary.image_patches)},
                                   {"frames_per_clip", json_of(summary.audio_frames)},
                                   {"bad_fraction", summary.bad_fraction()},
                                   {"bad", nlohmann::ordered_json::array()}};
  for (const auto& bad : summary.bad) object["bad"].push_back(to_json(bad));
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace troupe::data
