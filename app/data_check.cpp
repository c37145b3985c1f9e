#include <iostream>
#include <sstream>

#include "app/data_commands.hpp"
#include "app/terminal.hpp"
#include "engine/profiling/this_machine.hpp"
#include "engine/setup/kept_lengths.hpp"
#include "runtime/data/samples/data_summary.hpp"
#include "runtime/vocabulary/printable.hpp"

namespace troupe::app {

namespace {

constexpr std::int32_t kShownBad = 10;

/// A counter on one line of the terminal while samples are decoded.
void show_progress(std::int64_t done, std::int64_t all) {
  std::cerr << "\r" << with_commas(done) << " of " << with_commas(all) << " samples" << std::flush;
}

}  // namespace

int check_data(const DataOptions& options) {
  const auto opened = open_data(options.job);
  if (!opened.ok()) return report(opened.error());
  const auto& dataset = *opened.value().dataset;
  const auto threads = engine::core_count();
  std::function<void(std::int64_t)> on_progress;
  if (stdout_has_colours())
    on_progress = [&](std::int64_t done) { show_progress(done, dataset.size()); };
  auto setup = opened.value().setup;
  engine::keep_lengths(setup);
  const auto summary =
      data::summarize(dataset, setup.data, threads, on_progress, setup.lengths.get());
  const auto notes = engine::release_lengths(setup);
  if (on_progress) std::cerr << "\r\x1b[K";
  for (const auto& note : notes) std::cerr << "warning: " + printable(note) + "\n";
  if (options.json)
    std::cout << data::to_json(summary) << '\n';
  else
    std::cout << printable(data::to_text(summary, kShownBad));
  const double allowed = opened.value().setup.job.data.max_bad_fraction;
  if (summary.bad_fraction() <= allowed) return kDone;
  std::ostringstream limit;
  limit << allowed;
  return report({Errc::bad_data,
                 std::to_string(summary.bad.size()) + " of " + std::to_string(summary.samples) +
                     " samples are bad, first: " + to_string(summary.bad.front()),
                 "data.max_bad_fraction = " + limit.str(),
                 "correct or remove them, or raise data.max_bad_fraction"});
}

}  // namespace troupe::app
