#include "scheduler/layout/layout_reasons.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <string>

#include "scheduler/iteration/stage_graph.hpp"
#include "scheduler/layout/layout_request.hpp"

namespace troupe::scheduler {

namespace {

using std::to_string;

std::string percent(double share) { return to_string(static_cast<int>(100 * share + 0.5)) + " %"; }

/// `+7 %`: how much longer, or shorter, another step takes.
std::string longer(double other_ms, double own_ms) {
  const auto share = std::lround(100 * (other_ms / own_ms - 1));
  return (share < 0 ? "" : "+") + to_string(share) + " %";
}

std::string degrees_text(const ModelGraph& model, const std::vector<Parallelism>& degrees) {
  const auto text = [](Parallelism p) {
    return "tp " + to_string(p.tp) + (p.cp > 1 ? " cp " + to_string(p.cp) : "");
  };
  const auto& llm = degrees[model.llm().index()];
  if (degrees.front() == llm) return text(llm);
  return "encoders " + text(degrees.front()) + ", llm " + text(llm);
}

/// `time per step with 1: +19 %; 4: does not fit`: the best of every other kind beside the chosen
/// one. Relative, so that a plan has one step time however its alternatives were compared.
template <class KindOf>
std::string compared(const std::vector<ScoredLayout>& scored, KindOf kind_of) {
  constexpr std::size_t kShown = 5;
  std::string text;
  std::vector<std::string> seen{kind_of(scored.front())};
  for (const auto& other : scored) {
    const std::string kind = kind_of(other);
    if (std::find(seen.begin(), seen.end(), kind) != seen.end()) continue;
    seen.push_back(kind);
    if (seen.size() > kShown + 1) break;
    text += (text.empty() ? "time per step with " : "; ") + kind + ": " +
            (other.fits ? longer(other.step.step_ms, scored.front().step.step_ms) : "does not fit");
  }
  return text.empty() ? "no other choice was possible" : text;
}

std::string cuts_reason(const AutoLayoutRequest& request, const ScoredLayout& best) {
  std::vector<double> load(best.placed.plan.devices.size());
  for (std::size_t s = 0; s < best.step.stage_ms.size(); ++s)
    for (const DeviceId device : best.placed.plan.stages[s].devices)
      load[device.index()] += best.step.stage_ms[s];
  double sum = 0;
  for (const double ms : load) sum += ms;
  const double mean = sum / static_cast<double>(load.size());
  std::string text = "the slowest device works " +
                     percent(*std::max_element(load.begin(), load.end()) / mean - 1) +
                     " more than the mean";
  for (const auto& module : request.model->graph().modules)
    if (module.freeze) text += "; " + module.name + " is frozen: no weight gradients";
  if (!request.stage_kinds.empty()) text += "; layers of two stage kinds are in stages apart";
  return text;
}

/// `2 pipelines`, or `3 replicas of vision, 2 of llm`.
std::string numbers_text(const ModelGraph& model, const LayoutCandidate& candidate) {
  const auto counted = [](std::int32_t count, const std::string& what) {
    return to_string(count) + " " + what + (count == 1 ? "" : "s");
  };
  if (candidate.numbers.empty()) return counted(candidate.pipelines(), "pipeline");
  std::string text = counted(candidate.numbers.front(), "replica");
  for (std::size_t g = 0; g < candidate.numbers.size(); ++g)
    text += (g == 0 ? " of " : ", " + to_string(candidate.numbers[g]) + " of ") +
            group_name(model, candidate.module_groups[g]);
  return text + (candidate.colocated ? ", on the same devices" : "");
}

/// Why what is faster was not chosen: nothing where it is slower.
std::string not_worth(const ScoredLayout& best, const ScoredLayout& other) {
  // It would have been chosen, had it saved as much as what it costs is worth.
  if (other.step.step_ms >= best.step.step_ms) return "";
  return devices_of(other) > devices_of(best) ? ", which is not worth its devices"
                                              : ", too little to give up pipelines for";
}

/// What the best layout of the other kind takes, which is why it was not chosen.
std::string others_text(const AutoLayoutRequest& request, const ScoredLayout& best,
                        const std::vector<ScoredLayout>& others) {
  if (others.empty()) return "";
  const ScoredLayout& other = others.front();
  std::string text = numbers_text(request.model->graph(), other.candidate) + ": ";
  if (!other.fits) return text + "does not fit";
  return text + longer(other.step.step_ms, best.step.step_ms) + not_worth(best, other);
}

/// Bytes of the fullest device.
double fullest_of(const ScoredLayout& scored) {
  const auto& peaks = scored.step.peak_memory_bytes;
  return *std::max_element(peaks.begin(), peaks.end());
}

/// Where encoders stand, and what the best layout in which they stand elsewhere takes, of which
/// devices wait for one another so long.
void add_placement_reason(const AutoLayoutRequest& request, const ScoredLayout& best,
                          const ScoredLayout* other, std::vector<LayoutReason>& reasons) {
  const auto placement = encoder_placement(best.placed.plan);
  if (!placement) return;
  if (!other) {
    reasons.push_back({describe(*placement), "no layout with them elsewhere was possible"});
    return;
  }
  const std::string elsewhere = describe(*encoder_placement(other->placed.plan));
  if (!other->fits) {
    reasons.push_back(
        {describe(*placement), "with " + elsewhere + " the fullest device would need " +
                                   byte_text(fullest_of(*other)) + " and has " +
                                   byte_text(static_cast<double>(request.device_memory.count()))});
    return;
  }
  reasons.push_back({describe(*placement),
                     "time per step with " + elsewhere + ": " +
                         longer(other->step.step_ms, best.step.step_ms) + not_worth(best, *other) +
                         "; devices then wait for " + percent(other->step.bubble) +
                         " of it, here for " + percent(best.step.bubble)});
}

/// One number of replicas for all modules, or numbers of their own.
void add_numbers_reasons(const AutoLayoutRequest& request, const std::vector<ScoredLayout>& scored,
                         const std::vector<ScoredLayout>& others,
                         std::vector<LayoutReason>& reasons) {
  const ModelGraph& model = request.model->graph();
  const ScoredLayout& best = scored.front();
  const bool own = !best.candidate.numbers.empty();
  const auto number = [&](const ScoredLayout& s) {
    return own ? numbers_text(model, s.candidate) : to_string(s.candidate.pipelines());
  };
  const std::string other = others_text(request, best, others);
  reasons.push_back({numbers_text(model, best.candidate), compared(scored, number)});
  if (own)
    reasons.push_back({"numbers of their own", other.empty() ? "no layout has one number for all"
                                                             : "time per step with " + other});
  else if (!other.empty())
    reasons.push_back({"one number for all", "time per step with " + other});
}

/// What more or fewer devices would bring.
LayoutReason devices_reason(const AutoLayoutRequest& request,
                            const std::vector<ScoredLayout>& scored) {
  const std::int32_t used = devices_of(scored.front()), all = request.cluster.devices();
  std::map<std::int32_t, double> best;
  for (const auto& other : scored)
    if (other.fits) {
      const auto [known, fresh] = best.try_emplace(devices_of(other), other.step.step_ms);
      known->second = std::min(known->second, other.step.step_ms);
    }
  const double own_ms = scored.front().step.step_ms;
  std::string why;
  const auto add = [&](auto entry) {
    why += (why.empty() ? "time per step with " : "; ") + to_string(entry->first) + ": " +
           longer(entry->second, own_ms);
  };
  auto own = best.find(used);
  if (own != best.begin()) add(std::prev(own));
  auto fastest = best.end();
  for (auto more = std::next(own); more != best.end(); ++more)
    if (fastest == best.end() || more->second < fastest->second) fastest = more;
  if (fastest != best.end()) {
    add(fastest);
    why += fastest->second < own_ms
               ? ", which is not worth " + to_string(fastest->first - used) + " devices more"
               : ", no more than with fewer";
  } else if (used < all) {
    why += std::string(why.empty() ? "" : "; ") + "the batch and the layers cannot be cut further";
  }
  if (why.empty()) {
    why = "no other number of them was as good";
  }
  return {to_string(used) + " of " + to_string(all) + " devices", why};
}

}  // namespace

std::int32_t devices_of(const ScoredLayout& scored) {
  return static_cast<std::int32_t>(scored.placed.plan.devices.size());
}

std::vector<LayoutReason> layout_reasons(const AutoLayoutRequest& request,
                                         const std::vector<ScoredLayout>& scored,
                                         const std::vector<ScoredLayout>& others) {
  const ScoredLayout& best = scored.front();
  const ModelGraph& model = request.model->graph();
  const auto form = [](const ScoredLayout& s) { return describe(s.candidate.shapes.front().form); };
  const auto degrees = [&](const ScoredLayout& s) {
    return degrees_text(model, s.candidate.parallelisms);
  };
  std::vector<LayoutReason> reasons;
  add_numbers_reasons(request, scored, others, reasons);
  if (request.planned_only) reasons.push_back({degrees(best), compared(scored, degrees)});
  std::vector<ScoredLayout> alike;  // Forms compare at the same numbers and degrees.
  for (const auto& other : scored)
    if (other.candidate.pipelines() == best.candidate.pipelines() &&
        degrees(other) == degrees(best))
      alike.push_back(other);
  if (best.candidate.numbers.empty()) reasons.push_back({form(best), compared(alike, form)});
  add_placement_reason(request, best, other_placement(scored, others), reasons);
  reasons.push_back({"cuts", cuts_reason(request, best)});
  const double fullest = fullest_of(best);
  const auto memory = static_cast<double>(request.device_memory.count());
  reasons.push_back({"memory", "the fullest device holds " + byte_text(fullest) +
                                   (memory > 0 ? " of " + byte_text(memory) + " (" +
                                                     percent(fullest / memory) + ")"
                                               : "; no limit was given")});
  if (request.planned_only) reasons.push_back(devices_reason(request, scored));
  return reasons;
}

const ScoredLayout* other_placement(const std::vector<ScoredLayout>& scored,
                                    const std::vector<ScoredLayout>& others) {
  const auto own = encoder_placement(scored.front().placed.plan);
  const ScoredLayout* best = nullptr;
  for (const auto* list : {&scored, &others})
    for (const ScoredLayout& other : *list) {
      if (encoder_placement(other.placed.plan) == own) continue;
      const bool better = !best || (other.fits && !best->fits) ||
                          (other.fits == best->fits && other.step.step_ms < best->step.step_ms);
      if (better) best = &other;
    }
  return best;
}

Error memory_error(const AutoLayoutRequest& request, const std::vector<ScoredLayout>& scored) {
  double least = 0;
  for (const auto& other : scored) {
    const double fullest = fullest_of(other);
    least = least == 0 ? fullest : std::min(least, fullest);
  }
  return {Errc::infeasible,
          "no layout fits: the fullest device needs at least " + byte_text(least) + " and has " +
              byte_text(static_cast<double>(request.device_memory.count())),
          "memory",
          "nearest choice: devices of " + byte_text(least) +
              ", more devices, or more train.microbatches"};
}

}  // namespace troupe::scheduler
