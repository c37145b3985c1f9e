#include "scheduler/recovery/instantiate.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <set>

#include "scheduler/iteration/distribute.hpp"

namespace troupe::scheduler {

namespace {

constexpr std::int64_t kImpossible = std::numeric_limits<std::int64_t>::min();

// Microbatches that a pipeline finishes within a time, as the product n x T rounds.
std::int64_t finished(double time_ms, double microbatch_ms) {
  auto count = static_cast<std::int64_t>(time_ms / microbatch_ms);
  while (static_cast<double>(count + 1) * microbatch_ms <= time_ms) ++count;
  while (count > 0 && static_cast<double>(count) * microbatch_ms > time_ms) --count;
  return count;
}

// Finds the combination. Templates, nodes and microbatches were checked.
class Chooser {
 public:
  Chooser(const InstantiateRequest& request, std::int64_t microbatches)
      : templates_(request.templates),
        node_count_(request.node_count),
        pipelines_min_(request.fault_tolerance + 1),
        microbatches_(microbatches) {
    std::int64_t smallest = node_count_;
    for (const auto& entry : templates_) smallest = std::min(smallest, entry.node_count);
    // Where combinations may have more pipelines than there are microbatches, pipelines are
    // counted exactly; else only up to the minimum that is needed.
    count_exactly(node_count_ / smallest > microbatches_);
  }

  std::int64_t state_count() const {
    return (node_count_ + 1) * (count_max_ + 1) * static_cast<std::int64_t>(templates_.size());
  }

  Instantiation choose() {
    Instantiation result;
    result.lower_bound_ms = bound_by_counting();
    result.iteration_ms = std::numeric_limits<double>::infinity();
    best_ = &result;
    // First combinations that could meet the bound, until one does; then all that could still
    // beat the best, starting anew with a tighter level after each gain.
    search(result.lower_bound_ms, kInstantiateLeavesMax / 2, false);
    while (!met() && leaves_ < kInstantiateLeavesMax) {
      improved_ = false;
      search(std::nextafter(result.iteration_ms, 0.0), kInstantiateLeavesMax, true);
      if (!improved_) break;
    }
    result.proven = met() || leaves_ < kInstantiateLeavesMax;
    return result;
  }

 private:
  std::size_t at(std::int64_t nodes, std::int64_t pipelines) const {
    return static_cast<std::size_t>(nodes * (count_max_ + 1) + pipelines);
  }
  std::int64_t counted(std::int64_t pipelines) const { return std::min(pipelines, count_max_); }
  bool enough(std::int64_t pipelines) const { return pipelines >= pipelines_min_; }

  bool met() const { return best_->iteration_ms <= best_->lower_bound_ms; }

  void search(double level, std::int64_t leaves_max, bool until_improved) {
    if (!prepare(level)) return;
    level_ = level;
    leaves_max_ = leaves_max;
    until_improved_ = until_improved;
    chosen_.assign(templates_.size(), 0);
    descend(0, node_count_, 0, 0);
  }

  // Fills capacity_[j]: most microbatches that templates j.. finish within the level on exactly n
  // nodes, when c pipelines were chosen from the templates before. False if the whole falls short.
  bool prepare(double level) {
    // Templates that waste least of the level come first: their combinations are the most even,
    // so that eq. 2.6 agrees with the bound soonest.
    order_.resize(templates_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    const auto waste = [&](std::size_t i) {
      const double ms = templates_[i].microbatch_ms;
      return level - static_cast<double>(finished(level, ms)) * ms;
    };
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::size_t a, std::size_t b) { return waste(a) < waste(b); });
    capacity_.assign(templates_.size() + 1, {});
    auto& last = capacity_.back();
    last.assign(at(node_count_ + 1, 0), kImpossible);
    for (std::int64_t c = 0; c <= count_max_; ++c)
      if (enough(c)) last[at(0, c)] = 0;
    for (std::size_t j = templates_.size(); j-- > 0;) add_template(j, level);
    return capacity_[0][at(node_count_, 0)] >= microbatches_;
  }

  void add_template(std::size_t j, double level) {
    const auto& entry = templates_[order_[j]];
    const std::int64_t done = std::min(finished(level, entry.microbatch_ms), microbatches_);
    capacity_[j] = capacity_[j + 1];
    if (done < 1) return;
    auto& table = capacity_[j];
    for (std::int64_t nodes = entry.node_count; nodes <= node_count_; ++nodes)
      for (std::int64_t c = 0; c <= count_max_; ++c) {
        if (exact_ && c == count_max_) continue;
        const std::int64_t rest = table[at(nodes - entry.node_count, counted(c + 1))];
        if (rest != kImpossible) table[at(nodes, c)] = std::max(table[at(nodes, c)], rest + done);
      }
  }

  void count_exactly(bool exact) {
    exact_ = exact;
    count_max_ = exact ? microbatches_ : pipelines_min_;
  }

  // The bound without a limit on pipelines is quick to find and mostly holds with it as well.
  double bound_by_counting() {
    if (!exact_) return least_bound(0);
    count_exactly(false);
    const double relaxed = least_bound(0);
    count_exactly(true);
    return prepare(relaxed) ? relaxed : least_bound(relaxed);
  }

  // Least time, above `low`, within which some combination could finish the batch, microbatches
  // placed freely. It is one of the products n x T, and what is possible changes at these alone.
  double least_bound(double low) {
    double high = 0;
    for (const auto& entry : templates_)
      high = std::max(high, entry.microbatch_ms * static_cast<double>(microbatches_));
    for (;;) {
      const double next = product_above(low);
      if (next >= high) return high;
      const double level = std::max(next, product_within(low + (high - low) / 2));
      (prepare(level) ? high : low) = level;
    }
  }

  double product_within(double time_ms) const {
    double product = 0;
    for (const auto& entry : templates_)
      product = std::max(product, static_cast<double>(finished(time_ms, entry.microbatch_ms)) *
                                      entry.microbatch_ms);
    return product;
  }

  double product_above(double time_ms) const {
    double product = std::numeric_limits<double>::infinity();
    for (const auto& entry : templates_)
      product = std::min(product, static_cast<double>(finished(time_ms, entry.microbatch_ms) + 1) *
                                      entry.microbatch_ms);
    return product;
  }

  // Chooses how often template j is used; every node visited has a completion.
  void descend(std::size_t j, std::int64_t nodes, std::int64_t pipelines, std::int64_t capacity) {
    if (leaves_ >= leaves_max_ || met() || (until_improved_ && improved_)) return;
    if (j == templates_.size()) return examine();
    const auto& entry = templates_[order_[j]];
    const std::int64_t done = std::min(finished(level_, entry.microbatch_ms), microbatches_);
    const std::int64_t most = done < 1 ? 0 : nodes / entry.node_count;
    for (std::int64_t used = most; used >= 0; --used) {
      const std::int64_t count = pipelines + used;
      if (exact_ && count > count_max_) continue;
      const std::int64_t left = nodes - used * entry.node_count;
      const std::int64_t rest = capacity_[j + 1][at(left, counted(count))];
      if (rest == kImpossible || capacity + used * done + rest < microbatches_) continue;
      chosen_[order_[j]] = used;
      descend(j + 1, left, count, capacity + used * done);
    }
    chosen_[order_[j]] = 0;
  }

  void examine() {
    ++leaves_;
    std::vector<SpeedGroup> groups;
    std::vector<std::size_t> used;
    for (std::size_t i = 0; i < templates_.size(); ++i) {
      if (chosen_[i] == 0) continue;
      groups.push_back({templates_[i].microbatch_ms, chosen_[i]});
      used.push_back(i);
    }
    const auto solved = distribute_groups(groups, microbatches_);
    leaves_ += solved.work / kInstantiateLeafWork;
    if (!(solved.max_ms < best_->iteration_ms)) return;
    improved_ = true;
    best_->iteration_ms = solved.max_ms;
    best_->pipelines.clear();
    for (std::size_t i = 0; i < used.size(); ++i)
      for (std::int64_t member = 0; member < groups[i].count; ++member)
        best_->pipelines.push_back(
            {templates_[used[i]].node_count,
             solved.shares[i].microbatches + (member < solved.shares[i].extra ? 1 : 0)});
    std::stable_sort(best_->pipelines.begin(), best_->pipelines.end(),
                     [](const auto& a, const auto& b) { return a.node_count < b.node_count; });
  }

  const std::vector<TemplateSpeed>& templates_;
  std::int64_t node_count_;
  std::int64_t pipelines_min_;
  std::int64_t microbatches_;
  bool exact_ = false;
  std::int64_t count_max_ = 0;
  std::vector<std::size_t> order_;                   // Of templates in the search.
  std::vector<std::vector<std::int64_t>> capacity_;  // Per position in `order_`.
  std::vector<std::int64_t> chosen_;                 // Pipelines per template.
  double level_ = 0;
  std::int64_t leaves_ = 0;
  std::int64_t leaves_max_ = 0;
  bool until_improved_ = false;
  bool improved_ = false;
  Instantiation* best_ = nullptr;
};

Error invalid(std::string message, std::string where) {
  return {Errc::invalid_argument, std::move(message), std::move(where), {}};
}

std::optional<Error> check(const InstantiateRequest& request) {
  if (request.templates.empty()) return invalid("there are no templates", "templates");
  std::set<std::int64_t> sizes;
  double fastest = kMicrobatchMsMax, slowest = kMicrobatchMsMin;
  for (std::size_t i = 0; i < request.templates.size(); ++i) {
    const std::string where = "templates[" + std::to_string(i) + "]";
    const auto& [nodes, ms] = request.templates[i];
    if (nodes < 1) return invalid("expected nodes >= 1, found " + std::to_string(nodes), where);
    if (auto error = check_speed(ms, where)) return error;
    fastest = std::min(fastest, ms);
    slowest = std::max(slowest, ms);
    if (!sizes.insert(nodes).second)
      return invalid("a second template of " + std::to_string(nodes) + " nodes", where);
  }
  const std::pair<std::int64_t, const char*> counts[] = {
      {request.node_count, "nodes"},
      {request.global_batch, "global_batch"},
      {request.microbatch_size, "microbatch_size"}};
  for (const auto& [value, where] : counts)
    if (value < 1)
      return invalid("expected a larger number, found " + std::to_string(value), where);
  if (auto error = check_speed_ratio(fastest, slowest, "templates")) return error;
  if (request.global_batch / request.microbatch_size > kInstantiateMicrobatchesMax)
    return Error{Errc::invalid_argument,
                 "more than " + std::to_string(kInstantiateMicrobatchesMax) + " microbatches",
                 "global_batch", "use larger microbatches"};
  if (request.fault_tolerance < 0) return invalid("expected at least 0", "fault_tolerance");
  if (request.fault_tolerance >= request.node_count)
    return Error{Errc::infeasible,
                 std::to_string(request.fault_tolerance) + " failures need more than the " +
                     std::to_string(request.node_count) + " nodes there are",
                 "fault_tolerance",
                 "nearest choice: fault_tolerance = " + std::to_string(request.node_count - 1)};
  const double states = (static_cast<double>(request.node_count) + 1) *
                        static_cast<double>(request.templates.size()) *
                        (static_cast<double>(request.fault_tolerance) + 2);
  if (states > static_cast<double>(kInstantiateStatesMax))
    return Error{Errc::invalid_argument,
                 "nodes x templates x (f + 2) exceeds " + std::to_string(kInstantiateStatesMax),
                 "templates", "give fewer template sizes"};
  return std::nullopt;
}

// Least number of pipelines, at least `pipelines_min`, that use exactly n nodes; 0 if none do. For
// every n up to `nodes_max`.
std::vector<std::int64_t> least_pipelines(const std::vector<TemplateSpeed>& templates,
                                          std::int64_t nodes_max, std::int64_t pipelines_min) {
  const std::int64_t none = std::numeric_limits<std::int64_t>::max() / 2;
  const auto at = [&](std::int64_t nodes, std::int64_t pipelines) {
    return static_cast<std::size_t>(nodes * (pipelines_min + 1) + pipelines);
  };
  std::vector<std::int64_t> least(at(nodes_max + 1, 0), none);
  least[0] = 0;
  for (std::int64_t nodes = 1; nodes <= nodes_max; ++nodes)
    for (const auto& entry : templates) {
      if (entry.node_count > nodes) continue;
      for (std::int64_t c = 0; c <= pipelines_min; ++c) {
        auto& now = least[at(nodes, std::min(c + 1, pipelines_min))];
        now = std::min(now, least[at(nodes - entry.node_count, c)] + 1);
      }
    }
  std::vector<std::int64_t> result;
  for (std::int64_t nodes = 0; nodes <= nodes_max; ++nodes) {
    const std::int64_t value = least[at(nodes, pipelines_min)];
    result.push_back(value < none ? value : 0);
  }
  return result;
}

Error no_combination(const InstantiateRequest& request, const std::vector<std::int64_t>& least) {
  const std::int64_t wanted = request.node_count;
  std::int64_t nearest = 0;
  for (std::int64_t nodes = 1; nodes < static_cast<std::int64_t>(least.size()); ++nodes)
    if (least[static_cast<std::size_t>(nodes)] > 0 &&
        (nearest == 0 || std::abs(nodes - wanted) < std::abs(nearest - wanted)))
      nearest = nodes;
  return {Errc::infeasible,
          "no combination of these templates uses exactly " + std::to_string(wanted) +
              " nodes with at least " + std::to_string(request.fault_tolerance + 1) + " pipelines",
          "nodes",
          nearest > 0 ? "nearest choice: " + std::to_string(nearest) + " nodes"
                      : "lower the fault tolerance or add smaller templates"};
}

}  // namespace

Result<Instantiation> instantiate(const InstantiateRequest& request) {
  if (auto error = check(request)) return *error;
  std::vector<std::int64_t> sizes;
  for (const auto& entry : request.templates) sizes.push_back(entry.node_count);
  const std::int64_t pipelines_min = request.fault_tolerance + 1;
  // A little beyond the cluster, so that the nearest node count that works can be named.
  const std::int64_t nodes_max =
      request.node_count +
      std::min(*std::max_element(sizes.begin(), sizes.end()), request.node_count * pipelines_min);
  const auto least = least_pipelines(request.templates, nodes_max, pipelines_min);
  const std::int64_t needed = least[static_cast<std::size_t>(request.node_count)];
  if (needed == 0) return no_combination(request, least);
  const std::int64_t microbatches = request.global_batch / request.microbatch_size;
  if (request.global_batch % request.microbatch_size != 0 || microbatches < needed)
    return Error{
        Errc::infeasible,
        "a batch of " + std::to_string(request.global_batch) +
            " cannot be split into whole microbatches of " +
            std::to_string(request.microbatch_size) + ", one or more for each of the " +
            std::to_string(needed) + " pipelines that are needed",
        "global_batch",
        "nearest batch that works: " +
            std::to_string(nearest_batch(request.global_batch, request.microbatch_size, needed))};
  Chooser chooser(request, microbatches);
  if (chooser.state_count() > kInstantiateStatesMax)
    return invalid("so few microbatches on so many nodes make " +
                       std::to_string(chooser.state_count()) + " states, at most " +
                       std::to_string(kInstantiateStatesMax) + " work",
                   "global_batch");
  Instantiation result = chooser.choose();
  result.combinations = count_combinations(sizes, request.node_count, pipelines_min);
  return result;
}

}  // namespace troupe::scheduler
