// An observer: for each part of a microbatch a line of JSON with the mean, the deviation and the
// largest size of what a module computed, or of its gradients, as one looks for activations that
// grow or die. Numbers that are not finite are counted, and are in none of the three.

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <stdexcept>

#include "runtime/observers/observer.hpp"
#include "runtime/plugins/entry_point.hpp"

namespace {

using namespace troupe;
using namespace troupe::observers;

const char* const kKinds[] = {"rows", "gradients", "losses"};

class Statistics final : public Observer {
 public:
  explicit Statistics(const Place& place)
      // A file per node: nodes of one machine share the folder. A job that goes on adds to it.
      : lines_(place.folder / ("node-" + std::to_string(place.node) + ".jsonl"), std::ios::app) {
    if (!lines_) throw std::runtime_error("no file can be written in " + place.folder.string());
    lines_.precision(17);
  }

  void see(const Observed& part) override {
    double sum = 0, squares = 0, largest = 0;
    std::size_t not_finite = 0;
    for (std::size_t i = 0; i < part.values.size(); ++i) {
      const double value = part.values[i];
      if (!std::isfinite(value)) {
        ++not_finite;
        continue;
      }
      sum += value;
      squares += value * value;
      largest = std::max(largest, std::abs(value));
    }
    const auto finite = std::max<std::size_t>(part.values.size() - not_finite, 1);
    const auto count = static_cast<double>(finite);
    const double mean = sum / count;
    std::int64_t rows = 0;
    for (const auto of_sample : part.rows) rows += of_sample;
    lines_ << "{\"step\":" << part.step << ",\"module\":\"" << part.module << "\",\"kind\":\""
           << kKinds[static_cast<int>(part.kind)] << "\",\"replica\":" << part.replica
           << ",\"microbatch\":" << part.microbatch << ",\"part\":" << part.part
           << ",\"samples\":" << std::set(part.ids.begin(), part.ids.end()).size()
           << ",\"rows\":" << rows << ",\"width\":" << part.width
           << ",\"not_finite\":" << not_finite;
    put("mean", mean);
    put("deviation", std::sqrt(std::max(squares / count - mean * mean, 0.0)));
    put("largest", largest);
    lines_ << "}\n";
  }

  /// The word on a step comes behind all that it showed: what was written can be read from here on.
  void see(const ObservedStep&) override { lines_.flush(); }
  void end() override { lines_.flush(); }

 private:
  /// JSON has no infinity, which squares of large numbers come to.
  void put(const char* key, double value) {
    lines_ << ",\"" << key << "\":";
    if (std::isfinite(value))
      lines_ << value;
    else
      lines_ << "null";
  }

  std::ofstream lines_;
};

Status register_all() {
  return register_observer(
      {"statistics", [](const Place& place) { return std::make_unique<Statistics>(place); }});
}

}  // namespace

TROUPE_PLUGIN(register_all)
