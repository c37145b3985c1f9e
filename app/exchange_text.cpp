#include "app/exchange_text.hpp"

#include <cstddef>
#include <cstdint>

#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::app {

namespace {

/// With what helps, which is said of the key in its place.
std::string reason(const Error& refused) {
  const std::string key = refused.where.empty() ? std::string() : refused.where + ": ";
  return refused.message + (refused.fix.empty() ? std::string() : "; " + key + refused.fix);
}

/// Behind the name of a phase, of the one step that there is.
std::string in_this_step(const engine::PhaseExchanges& phase) {
  if (phase.exchanged > 0) return "is exchanged";
  return "is not exchanged: " + (phase.why ? reason(*phase.why) : "it would be no more even");
}

/// The same of several steps that are exchanged.
std::string in_steps(const engine::PhaseExchanges& phase, std::int64_t steps) {
  if (phase.exchanged == steps) return "in all of these";
  std::string text = "in " + std::to_string(phase.exchanged) + " of these";
  const std::int64_t even = steps - phase.exchanged - phase.refused;
  if (even > 0) text += ", in " + std::to_string(even) + " it would be no more even";
  if (phase.why) text += ", in " + std::to_string(phase.refused) + " not: " + reason(*phase.why);
  return text;
}

/// Of steps that are exchanged; empty where all phases are in all of them.
std::string phases_text(const ParallelPlan& plan, const engine::ExchangeCount& count) {
  std::string text;
  bool are_all = true;
  for (std::size_t g = 0; g < count.phases.size(); ++g) {
    if (!engine::can_exchange(plan, ModuleGroupId{g})) continue;
    const engine::PhaseExchanges& phase = count.phases[g];
    are_all = are_all && phase.exchanged == count.exchanged;
    text += (text.empty() ? "" : "; ") + plan.module_groups[g].name + " " +
            (count.steps == 1 ? in_this_step(phase) : in_steps(phase, count.exchanged));
  }
  return are_all ? std::string() : text;
}

}  // namespace

std::string exchange_text(const ParallelPlan& plan, const std::string& asked,
                          const engine::ExchangeCount& count) {
  std::string text = "balancer.exchange = \"" + asked + "\": ";
  const bool can_exchange = engine::can_exchange(plan);
  if (asked == "off") return can_exchange ? text + "nothing is exchanged" : std::string();
  if (!can_exchange)
    return text + "nothing is exchanged: no encoder has two replicas to share work; lay out more " +
           "of one, or pin their number (parallel.MODULE.dp)";
  const std::string phases = phases_text(plan, count);
  const std::string why_not =
      count.prevented ? reason(*count.prevented) : "no shorter step with it";
  if (count.steps == 1 && count.exchanged == 0) return text + "not exchanged; " + why_not;
  if (count.steps == 1) return text + (phases.empty() ? "exchanged" : phases);
  text += "exchanged in " + std::to_string(count.exchanged) + " of " + std::to_string(count.steps) +
          " steps" + (phases.empty() ? "" : ": " + phases);
  if (count.exchanged == count.steps) return text;
  return text + (count.exchanged > 0 ? "; in the others " : "; ") + why_not;
}

}  // namespace troupe::app
