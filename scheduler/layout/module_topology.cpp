#include "scheduler/layout/module_topology.hpp"

#include <algorithm>
#include <map>

#include "runtime/vocabulary/nearest_word.hpp"

namespace troupe::scheduler {

namespace {

std::string where_of(std::size_t module) { return "modules[" + std::to_string(module) + "]"; }

Error invalid(std::string message, std::string where, std::string fix = {}) {
  return {Errc::invalid_argument, std::move(message), std::move(where), std::move(fix)};
}

class Resolver {
 public:
  explicit Resolver(const std::vector<PlannedModule>& modules) : modules_(modules) {}

  Result<ModuleTopology> resolve() {
    if (auto status = name_modules(); !status.ok()) return status.error();
    topology_.attachments.resize(modules_.size());
    for (std::size_t i = 0; i < modules_.size(); ++i) {
      auto& next = topology_.next.emplace_back();
      for (const auto& name : modules_[i].next) {
        const auto target = find(name, where_of(i) + ".next");
        if (!target.ok()) return target.error();
        next.push_back(target.value());
      }
    }
    if (auto status = sort(); !status.ok()) return status.error();
    for (std::size_t i = 0; i < modules_.size(); ++i)
      if (auto status = attach(i); !status.ok()) return status.error();
    if (auto status = check_loops(); !status.ok()) return status.error();
    return std::move(topology_);
  }

 private:
  Status name_modules() {
    if (modules_.empty()) return invalid("there are no modules", "modules");
    for (std::size_t i = 0; i < modules_.size(); ++i) {
      if (modules_[i].layers.empty())
        return invalid("module '" + modules_[i].name + "' has no layers", where_of(i));
      if (!index_.emplace(modules_[i].name, static_cast<std::int32_t>(i)).second)
        return invalid("a second module '" + modules_[i].name + "'", where_of(i));
      names_.push_back(modules_[i].name);
    }
    return Done{};
  }

  Result<std::int32_t> find(const std::string& name, const std::string& where) const {
    const auto found = index_.find(name);
    if (found != index_.end()) return found->second;
    return invalid("no module is called '" + name + "'", where, name_fix(name, names_));
  }

  // Kahn's algorithm; of the modules that are ready the first of the input.
  Status sort() {
    std::vector<int> inputs(modules_.size(), 0);
    for (const auto& next : topology_.next)
      for (const auto target : next) ++inputs[static_cast<std::size_t>(target)];
    std::vector<bool> done(modules_.size(), false);
    while (topology_.order.size() < modules_.size()) {
      std::size_t ready = 0;
      while (ready < modules_.size() && (done[ready] || inputs[ready] > 0)) ++ready;
      if (ready == modules_.size())
        return invalid("the modules feed each other in a cycle", "modules");
      done[ready] = true;
      topology_.order.push_back(static_cast<std::int32_t>(ready));
      for (const auto target : topology_.next[ready]) --inputs[static_cast<std::size_t>(target)];
    }
    return Done{};
  }

  Status attach(std::size_t i) {
    if (!modules_[i].attach) return Done{};
    const auto where = where_of(i) + ".attach";
    const auto host = find(*modules_[i].attach, where);
    if (!host.ok()) return host.error();
    const auto feeds = [&](std::size_t from, std::size_t to) {
      const auto& next = topology_.next[from];
      return std::find(next.begin(), next.end(), static_cast<std::int32_t>(to)) != next.end();
    };
    const auto target = static_cast<std::size_t>(host.value());
    if (!feeds(i, target) && !feeds(target, i))
      return invalid(
          "'" + modules_[i].name + "' and '" + *modules_[i].attach + "' are no neighbours", where,
          "attach to a module that feeds it or that it feeds");
    topology_.attachments[i] = {host.value(), feeds(i, target)};
    return Done{};
  }

  Status check_loops() const {
    for (std::size_t i = 0; i < modules_.size(); ++i) {
      auto host = topology_.attachments[i].host;
      for (std::size_t steps = 0; host >= 0; ++steps) {
        if (steps > modules_.size())
          return invalid("attached modules lead back to '" + modules_[i].name + "'",
                         where_of(i) + ".attach", "leave one of them unattached");
        host = topology_.attachments[static_cast<std::size_t>(host)].host;
      }
    }
    return Done{};
  }

  const std::vector<PlannedModule>& modules_;
  std::map<std::string, std::int32_t> index_;
  std::vector<std::string> names_;
  ModuleTopology topology_;
};

}  // namespace

Result<ModuleTopology> resolve_modules(const std::vector<PlannedModule>& modules) {
  return Resolver(modules).resolve();
}

}  // namespace troupe::scheduler
