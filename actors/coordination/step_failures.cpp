#include "actors/coordination/step_failures.hpp"

#include <algorithm>
#include <csignal>
#include <iterator>
#include <utility>

#include "runtime/vocabulary/joined.hpp"

namespace troupe::actors {

namespace {

using Samples = std::set<std::string>;

template <class Value>
std::set<Value> common(const std::set<Value>& a, const std::set<Value>& b) {
  std::set<Value> both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::inserter(both, both.end()));
  return both;
}

/// ` for samples 'a', 'b' and 7 others`.
std::string sample_text(const Samples& samples) {
  constexpr std::size_t kNamedMax = 3;
  std::vector<std::string> words;
  for (const std::string& sample : samples) words.push_back("'" + sample + "'");
  return words.empty() ? "" : " for samples " + joined_up_to(kNamedMax, words);
}

/// What two of one step have in common that no other node would mend.
bool repeats(const StepFailure& before, const StepFailure& now) {
  if (before.generation == now.generation) return false;
  const auto may_be_chance = [](const StepFailure& failure) {
    return failure.kind == FailureKind::unexplained || failure.kind == FailureKind::device;
  };
  if (may_be_chance(before) || may_be_chance(now)) return false;
  // An exception says what is wrong; where a process only ends, its samples must tell.
  const bool have_words = before.kind == FailureKind::thrown && now.kind == FailureKind::thrown;
  return have_words || !common(before.samples, now.samples).empty();
}

Error again_thrown(const StepFailure& before, const StepFailure& now) {
  const bool is_same_step = before.step == now.step;
  const std::string what =
      is_same_step ? "step " + std::to_string(now.step) + " fails again where it is trained again"
                   : "the same goes wrong again" + sample_text(common(before.samples, now.samples));
  return {
      Errc::internal,
      what + ": " + now.who + ": " + now.said + "; before that " + before.who + ": " + before.said,
      {},
      "correct what throws there, or never returns, if it is a plug-in's, or take these samples "
      "out of the data "
      "(`troupe check JOB` tries each stage alone); else report it with the job file and the "
      "log"};
}

Error again_ended(const StepFailure& before, const StepFailure& now) {
  return {
      Errc::internal,
      before.who + " and " + now.who + " both ended in step " + std::to_string(now.step) +
          sample_text(common(before.samples, now.samples)) + ": " + before.said + ", then " +
          now.said,
      {},
      "look at what stages of plug-ins do there (`troupe check JOB` tries each stage alone), or "
      "take these samples out of the data; else report it with the job file and the log"};
}

Error again_lost(const std::vector<const StepFailure*>& lost, const Samples& samples) {
  std::string text;
  for (const StepFailure* one : lost)
    text += (text.empty() ? "" : "; ") + one->who + ": " + one->said;
  return {Errc::transport_failed,
          "nodes were lost one after the other, each while it ran step " +
              std::to_string(lost.back()->step) + sample_text(samples) + ": " + text,
          {},
          "look at the system logs of these machines (memory, drivers), and whether a stage ends "
          "its process there; then start the job again"};
}

}  // namespace

bool is_own_doing(std::int32_t signal) {
  constexpr int kOwn[] = {SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS};
  return std::find(std::begin(kOwn), std::end(kOwn), signal) != std::end(kOwn);
}

std::optional<Error> StepFailures::add(StepFailure failure) {
  if (!failures_.empty() && failures_.back().step != failure.step)
    for (StepFailure& other : std::exchange(failures_, {}))
      if (other.kind == FailureKind::thrown) thrown_ = std::move(other);
  const auto known = std::find_if(failures_.begin(), failures_.end(), [&](const StepFailure& one) {
    return one.node == failure.node && one.generation == failure.generation;
  });
  if (known == failures_.end()) {
    failures_.push_back(std::move(failure));
    return verdict(failures_.back());
  }
  if (failure.kind > known->kind) *known = std::move(failure);
  return verdict(*known);
}

std::optional<Error> StepFailures::explain(NodeId node, const std::string& how,
                                           std::int32_t signal) {
  const auto known = std::find_if(failures_.rbegin(), failures_.rend(),
                                  [node](const StepFailure& one) { return one.node == node; });
  if (known == failures_.rend() || known->kind != FailureKind::unexplained) return std::nullopt;
  known->said = how;
  if (!is_own_doing(signal)) return std::nullopt;
  known->kind = FailureKind::crashed;
  return verdict(*known);
}

std::optional<Error> StepFailures::verdict(const StepFailure& newest) const {
  if (thrown_ && newest.kind == FailureKind::thrown && newest.thrown == thrown_->thrown &&
      !common(newest.samples, thrown_->samples).empty())
    return again_thrown(*thrown_, newest);
  for (const StepFailure& other : failures_) {
    if (!repeats(other, newest)) continue;
    const bool is_later = other.generation > newest.generation;  // How one ended may be heard late.
    const StepFailure &before = is_later ? newest : other, &now = is_later ? other : newest;
    const bool have_words = before.kind == FailureKind::thrown && now.kind == FailureKind::thrown;
    return have_words ? again_thrown(before, now) : again_ended(before, now);
  }
  // Back from the newest one, a generation at a time: those in which somebody had work of it too.
  std::vector<const StepFailure*> chain{&failures_.back()};
  Samples samples = failures_.back().samples;
  std::set<LayerId> layers = failures_.back().layers;
  for (auto before = failures_.rbegin(); before != failures_.rend(); ++before) {
    if (before->generation == chain.back()->generation) continue;
    Samples both = common(samples, before->samples);
    std::set<LayerId> shared = common(layers, before->layers);
    // Another one of its generation may have had it.
    if (both.empty() || shared.empty()) continue;
    samples = std::move(both);
    layers = std::move(shared);
    chain.push_back(&*before);
  }
  if (chain.size() < kUnexplainedMax) return std::nullopt;
  std::reverse(chain.begin(), chain.end());
  return again_lost(chain, samples);
}

}  // namespace troupe::actors
