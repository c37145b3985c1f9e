#include "scheduler/recovery/template_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe::scheduler {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kStepsBeforeProbes = 4;

double layer_ms(const TemplateLayer& layer, std::int32_t gpus) {
  const auto sync = layer.in_node_sync_ms.find(gpus);
  return (layer.forward_ms + layer.backward_ms) / gpus +
         (sync == layer.in_node_sync_ms.end() ? 0 : sync->second);
}

bool may_use(const TemplateLayer& layer, std::int32_t gpus) {
  return gpus == 1 || layer.in_node_sync_ms.contains(gpus);
}

// No sum of stages exceeds this.
double largest_work(std::span<const TemplateLayer> layers, std::int32_t gpus_per_node) {
  double work = 0;
  for (const auto& layer : layers) {
    double slowest = layer_ms(layer, 1);
    for (const auto& [gpus, sync] : layer.in_node_sync_ms)
      if (gpus <= gpus_per_node) slowest = std::max(slowest, layer_ms(layer, gpus));
    work += slowest;
  }
  return work;
}

}  // namespace

TemplateSearch::TemplateSearch(std::span<const TemplateLayer> layers, std::int32_t gpus_per_node,
                               Bytes device_memory)
    : layers_(layers),
      layer_count_(static_cast<std::int32_t>(layers.size())),
      gpus_per_node_(gpus_per_node) {
  const double work = largest_work(layers, gpus_per_node);
  const double quantum = work > 0 ? std::ldexp(work, -48) : 1;
  for (std::int32_t gpus = 1; gpus <= gpus_per_node; ++gpus)
    if (std::any_of(layers.begin(), layers.end(),
                    [&](const auto& layer) { return may_use(layer, gpus); }))
      widths_.push_back(make_width(gpus, quantum, device_memory));
  ahead_.assign(at(1, 0), kInfinity);
  behind_ = work_ = ahead_;
  ahead_[0] = 0;
  behind_[at(0, layer_count_)] = 0;
  work_[at(0, layer_count_)] = 0;
}

TemplateSearch::Width TemplateSearch::make_width(std::int32_t gpus, double quantum,
                                                 Bytes device_memory) const {
  Width width{gpus, {0}, {}, {}};
  for (const auto& layer : layers_)
    width.prefix.push_back(width.prefix.back() + (may_use(layer, gpus)
                                                      ? std::round(layer_ms(layer, gpus) / quantum)
                                                      : 0));
  // Longest stage by memory and by layers that allow this width: both ends only move forward.
  const double room = static_cast<double>(device_memory.count()) * gpus;
  std::int32_t end = 0;
  double bytes = 0;
  for (std::int32_t begin = 0; begin < layer_count_; ++begin) {
    if (end < begin) end = begin, bytes = 0;
    for (; end < layer_count_; ++end) {
      const auto& layer = layers_[static_cast<std::size_t>(end)];
      const auto needed = static_cast<double>(layer.memory.count());
      if (!may_use(layer, gpus) || bytes + needed > room) break;
      bytes += needed;
    }
    width.memory_end.push_back(end);
    if (end > begin)
      bytes -= static_cast<double>(layers_[static_cast<std::size_t>(begin)].memory.count());
  }
  width.memory_end.push_back(layer_count_);
  std::int32_t begin = 0;
  for (end = 0; end <= layer_count_; ++end) {
    while (begin < end && width.memory_end[static_cast<std::size_t>(begin)] < end) ++begin;
    width.memory_begin.push_back(begin);
  }
  return width;
}

bool TemplateSearch::extend(std::int32_t node_count) {
  const std::int32_t gpu_count = node_count * gpus_per_node_;
  for (; rows_ <= gpu_count; ++rows_) {
    add_ahead_row(rows_);
    add_behind_row(rows_);
  }
  return ahead_[at(gpu_count, layer_count_)] < kInfinity;
}

void TemplateSearch::add_ahead_row(std::int32_t position) {
  ahead_.resize(at(position + 1, 0), kInfinity);
  // A stage that ends here began in the same node.
  const std::int32_t in_node = (position - 1) % gpus_per_node_ + 1;
  for (const Width& width : widths_) {
    if (width.gpus > in_node) break;
    const double* before = &ahead_[at(position - width.gpus, 0)];
    double* row = &ahead_[at(position, 0)];
    for (std::int32_t end = 1; end <= layer_count_; ++end) {
      const auto e = static_cast<std::size_t>(end);
      double best = row[e];
      // Longer stages only cost more, so the first one that is no better ends the search.
      for (std::int32_t begin = end - 1; begin >= width.memory_begin[e]; --begin) {
        const double cost = width.prefix[e] - width.prefix[static_cast<std::size_t>(begin)];
        if (cost >= best) break;
        best = std::min(best, std::max(before[begin], cost));
      }
      row[e] = best;
    }
  }
}

void TemplateSearch::add_behind_row(std::int32_t remaining) {
  behind_.resize(at(remaining + 1, 0), kInfinity);
  work_.resize(at(remaining + 1, 0), kInfinity);
  // With r GPUs left, the current node has (r - 1) mod G + 1 of them: a stage takes no more.
  const std::int32_t in_node = (remaining - 1) % gpus_per_node_ + 1;
  double* row = &behind_[at(remaining, 0)];
  double* work_row = &work_[at(remaining, 0)];
  for (const Width& width : widths_) {
    if (width.gpus > in_node) break;
    const double* after = &behind_[at(remaining - width.gpus, 0)];
    const double* work_after = &work_[at(remaining - width.gpus, 0)];
    for (std::int32_t begin = layer_count_ - 1; begin >= 0; --begin) {
      const auto b = static_cast<std::size_t>(begin);
      double best = row[b];
      double least = work_row[b];
      for (std::int32_t end = begin + 1; end <= width.memory_end[b]; ++end) {
        const double cost = width.prefix[static_cast<std::size_t>(end)] - width.prefix[b];
        best = std::min(best, std::max(after[end], cost));
        least = std::min(least, work_after[end] + cost);
      }
      row[b] = best;
      work_row[b] = least;
    }
  }
}

void TemplateSearch::relax_from(std::int32_t position, std::int32_t gpu_count, double bottleneck,
                                double value_limit) {
  const std::int32_t in_node = gpus_per_node_ - position % gpus_per_node_;
  for (std::int32_t begin = 0; begin < layer_count_; ++begin) {
    const double so_far = sum_[at(position, begin)];
    if (so_far == kInfinity) continue;
    const auto b = static_cast<std::size_t>(begin);
    for (std::size_t w = 0; w < widths_.size() && widths_[w].gpus <= in_node; ++w) {
      const Width& width = widths_[w];
      const std::int32_t remaining = gpu_count - position - width.gpus;
      const double* behind = &behind_[at(remaining, 0)];
      const double* work = &work_[at(remaining, 0)];
      const std::size_t row = at(position + width.gpus, 0);
      const double* ahead = &ahead_[row];
      const double* value = &value_[at(remaining, 0)];
      for (std::int32_t end = begin + 1; end <= width.memory_end[b]; ++end) {
        const double cost = width.prefix[static_cast<std::size_t>(end)] - width.prefix[b];
        if (cost > bottleneck) break;
        const double sum = so_far + cost;
        if (behind[end] > bottleneck) continue;
        // The slowest stage of any path through this state is at least what either end needs.
        const double slowest = std::max(least_max_, std::max(ahead[end], behind[end]));
        if (sum + std::max(value[end], work[end] + repeats_ * slowest) > value_limit) continue;
        double& known = sum_[row + static_cast<std::size_t>(end)];
        if (sum >= known) continue;
        known = sum;
        steps_[row + static_cast<std::size_t>(end)] = {begin, static_cast<std::int32_t>(w)};
      }
    }
  }
}

TemplateSearch::Path TemplateSearch::evaluate(std::int32_t node_count, double bottleneck,
                                              double value_limit) {
  const std::int32_t gpu_count = node_count * gpus_per_node_;
  sum_.assign(at(gpu_count + 1, 0), kInfinity);
  steps_.resize(sum_.size());
  sum_[0] = 0;
  for (std::int32_t position = 0; position < gpu_count; ++position)
    relax_from(position, gpu_count, bottleneck, value_limit);
  Path path{sum_[at(gpu_count, layer_count_)], 0};
  if (path.sum == kInfinity) return path;
  std::int32_t end = layer_count_;
  for (std::int32_t position = gpu_count; position > 0;) {
    const Step& step = steps_[at(position, end)];
    const Width& width = widths_[static_cast<std::size_t>(step.width)];
    path.max = std::max(path.max, width.prefix[static_cast<std::size_t>(end)] -
                                      width.prefix[static_cast<std::size_t>(step.begin)]);
    position -= width.gpus;
    end = step.begin;
  }
  return path;
}

std::vector<TemplateStage> TemplateSearch::stages_of(std::int32_t node_count) const {
  std::vector<TemplateStage> stages;
  std::int32_t end = layer_count_;
  for (std::int32_t position = node_count * gpus_per_node_; position > 0;) {
    const Step& step = steps_[at(position, end)];
    const std::int32_t gpus = widths_[static_cast<std::size_t>(step.width)].gpus;
    position -= gpus;
    stages.push_back({{step.begin, end}, position / gpus_per_node_, gpus});
    end = step.begin;
  }
  std::reverse(stages.begin(), stages.end());
  return stages;
}

std::vector<TemplateStage> TemplateSearch::best(std::int32_t node_count,
                                                std::int64_t microbatches) {
  const std::int32_t gpu_count = node_count * gpus_per_node_;
  least_max_ = ahead_[at(gpu_count, layer_count_)];
  if (least_max_ == kInfinity) return {};
  set_repeats(static_cast<double>(microbatches - 1), gpu_count);
  const double least_sum = work_[at(gpu_count, 0)];
  double best_value = kInfinity;
  std::vector<TemplateStage> stages;
  const auto consider = [&](const Path& path) {
    const double value = path.sum + repeats_ * path.max;
    // A gain below the rounding of the sums is no gain.
    if (path.sum == kInfinity || value >= best_value * (1 - 1e-13)) return;
    best_value = value;
    stages = stages_of(node_count);
  };
  // First the two ends of the trade: the least sum whatever its bottleneck, and the least
  // bottleneck.
  const Path cheapest = least_sum_path(node_count);
  consider(cheapest);
  if (repeats_ == 0 || cheapest.max <= least_max_) return stages;
  consider(evaluate(node_count, least_max_, best_value));
  // In between, a bottleneck must pay for itself with a smaller sum; `bound` falls until none
  // below it can. Each step needs a path; where they get many, a few probes towards the least
  // bottleneck find a better value first, which shortens the rest.
  double bound = std::min(cheapest.max - 1, (best_value - least_sum) / repeats_);
  for (int step = 0; bound > least_max_; ++step) {
    if (step == kStepsBeforeProbes)
      for (double share = 0.5; share > 0.01; share /= 2)
        consider(evaluate(node_count, least_max_ + share * (bound - least_max_), best_value));
    const Path path = evaluate(node_count, bound, best_value);
    if (path.sum == kInfinity) break;
    consider(path);
    bound = std::min(path.max - 1, (best_value - path.sum) / repeats_);
  }
  return stages;
}

TemplateSearch::Path TemplateSearch::least_sum_path(std::int32_t node_count) {
  const std::int32_t gpu_count = node_count * gpus_per_node_;
  steps_.resize(at(gpu_count + 1, 0));
  Path path{work_[at(gpu_count, 0)], 0};
  std::int32_t begin = 0;
  for (std::int32_t remaining = gpu_count; remaining > 0;) {
    const Stage stage = least_sum_stage(remaining, begin);
    path.max = std::max(path.max, stage.cost);
    remaining -= widths_[static_cast<std::size_t>(stage.width)].gpus;
    steps_[at(gpu_count - remaining, stage.end)] = {begin, stage.width};
    begin = stage.end;
  }
  return path;
}

// The first stage of a path of least sum; among several the fastest. Sums are whole numbers, so
// that the test for "this one leads to the least sum" is exact.
TemplateSearch::Stage TemplateSearch::least_sum_stage(std::int32_t remaining,
                                                      std::int32_t begin) const {
  const std::int32_t in_node = (remaining - 1) % gpus_per_node_ + 1;
  const auto b = static_cast<std::size_t>(begin);
  const double sum = work_[at(remaining, begin)];
  Stage best{kInfinity, -1, -1};
  for (std::size_t w = 0; w < widths_.size() && widths_[w].gpus <= in_node; ++w) {
    const Width& width = widths_[w];
    const double* work_after = &work_[at(remaining - width.gpus, 0)];
    for (std::int32_t end = begin + 1; end <= width.memory_end[b]; ++end) {
      const double cost = width.prefix[static_cast<std::size_t>(end)] - width.prefix[b];
      if (cost < best.cost && cost + work_after[end] <= sum)
        best = {cost, end, static_cast<std::int32_t>(w)};
    }
  }
  return best;
}

void TemplateSearch::set_repeats(double repeats, std::int32_t gpu_count) {
  if (repeats != repeats_) {
    value_.assign(at(1, 0), kInfinity);
    value_[at(0, layer_count_)] = 0;
    value_rows_ = 1;
    repeats_ = repeats;
  }
  for (; value_rows_ <= gpu_count; ++value_rows_) add_value_row(value_rows_);
}

void TemplateSearch::add_value_row(std::int32_t remaining) {
  value_.resize(at(remaining + 1, 0), kInfinity);
  const std::int32_t in_node = (remaining - 1) % gpus_per_node_ + 1;
  double* row = &value_[at(remaining, 0)];
  for (const Width& width : widths_) {
    if (width.gpus > in_node) break;
    const double* after = &value_[at(remaining - width.gpus, 0)];
    const double* work_after = &work_[at(remaining - width.gpus, 0)];
    for (std::int32_t begin = layer_count_ - 1; begin >= 0; --begin) {
      const auto b = static_cast<std::size_t>(begin);
      double best = row[b];
      for (std::int32_t end = begin + 1; end <= width.memory_end[b]; ++end) {
        const double cost = width.prefix[static_cast<std::size_t>(end)] - width.prefix[b];
        if (cost * repeats_ >= best) break;
        best = std::min(best, cost + std::max(after[end], work_after[end] + repeats_ * cost));
      }
      row[b] = best;
    }
  }
}

double TemplateSearch::stage_ms(const TemplateStage& stage) const {
  double sum = 0;
  for (auto layer = stage.layers.begin; layer < stage.layers.end; ++layer)
    sum += layer_ms(layers_[static_cast<std::size_t>(layer)], stage.gpu_count);
  return sum;
}

}  // namespace troupe::scheduler
