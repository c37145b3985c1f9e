#include "engine/iteration/prepared_votes.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "runtime/state/gradient_norm.hpp"

namespace troupe::engine {

namespace {

void sort_by_place(std::vector<PartLoss>& losses) {
  std::sort(losses.begin(), losses.end(), [](const PartLoss& a, const PartLoss& b) {
    return std::tie(a.replica, a.microbatch, a.part) < std::tie(b.replica, b.microbatch, b.part);
  });
}

}  // namespace

double total_loss(std::vector<PartLoss> losses, TokenCount trained_tokens) {
  sort_by_place(losses);
  double sum = 0;
  for (const PartLoss& loss : losses) sum += loss.sum;
  return trained_tokens > 0 ? sum / static_cast<double>(trained_tokens) : 0;
}

std::map<std::string, double> auxiliary_totals(std::vector<PartAuxiliary> parts) {
  std::stable_sort(parts.begin(), parts.end(), [](const PartAuxiliary& a, const PartAuxiliary& b) {
    return std::tie(a.stage, a.microbatch, a.part) < std::tie(b.stage, b.microbatch, b.part);
  });
  std::map<std::string, double> totals;
  for (const PartAuxiliary& part : parts) totals[part.name] += part.value;
  return totals;
}

StepOutcome decide_step(std::int64_t step, TokenCount trained_tokens, std::vector<PartLoss> losses,
                        std::vector<PartAuxiliary> auxiliary, std::span<const GroupNorm> norms,
                        const StepPolicy& policy) {
  StepOutcome outcome;
  sort_by_place(losses);
  for (const PartLoss& loss : losses)
    outcome.nonfinite_samples.insert(outcome.nonfinite_samples.end(),
                                     loss.nonfinite_samples.begin(), loss.nonfinite_samples.end());
  outcome.loss = total_loss(std::move(losses), trained_tokens);
  outcome.auxiliary = auxiliary_totals(std::move(auxiliary));
  const auto odd = std::ranges::find_if(
      outcome.auxiliary, [](const auto& total) { return !std::isfinite(total.second); });
  std::vector<double> squared;
  for (const GroupNorm& norm : norms) squared.push_back(norm.squared);
  outcome.grad_norm = state::global_norm(squared);
  Decision& decision = outcome.decision;
  decision.step = step;
  decision.learning_rate = policy.learning_rate;
  if (trained_tokens == 0) {
    decision.reason = "no trained tokens in the batch";
  } else if (!std::isfinite(outcome.loss)) {
    decision.reason = "the loss is not finite";
  } else if (odd != outcome.auxiliary.end()) {
    decision.reason = "the auxiliary loss '" + odd->first + "' is not finite";
  } else if (!std::isfinite(outcome.grad_norm)) {
    decision.reason = "a gradient is not finite";
  } else if (std::ranges::any_of(norms, [](const GroupNorm& norm) { return !norm.finite; })) {
    // These count in no norm (models/own_update.hpp).
    decision.reason = "what layers contribute to a parameter is not finite";
  } else {
    decision.commit = true;
    decision.clip = state::clip_factor(outcome.grad_norm, policy.max_grad_norm);
  }
  return outcome;
}

PreparedVotes::PreparedVotes(std::int64_t step, EpochNumber epoch_number, std::size_t device_count)
    : step_(step), epoch_number_(epoch_number), device_count_(device_count) {}

bool PreparedVotes::add(const Prepared& prepared) {
  if (prepared.step != step_ || prepared.epoch_number != epoch_number_) return false;
  if (!devices_.insert(prepared.device).second) return false;
  losses_.insert(losses_.end(), prepared.losses.begin(), prepared.losses.end());
  auxiliary_.insert(auxiliary_.end(), prepared.auxiliary.begin(), prepared.auxiliary.end());
  norms_.insert(norms_.end(), prepared.norms.begin(), prepared.norms.end());
  return true;
}

StepOutcome PreparedVotes::outcome(TokenCount trained_tokens, const StepPolicy& policy) const {
  auto norms = norms_;
  std::sort(norms.begin(), norms.end(), [](const GroupNorm& a, const GroupNorm& b) {
    return std::tie(a.group, a.chunk) < std::tie(b.group, b.chunk);
  });
  return decide_step(step_, trained_tokens, losses_, auxiliary_, norms, policy);
}

}  // namespace troupe::engine
