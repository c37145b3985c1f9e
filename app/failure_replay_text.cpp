#include "app/failure_replay_text.hpp"

#include <array>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "app/terminal.hpp"

namespace troupe::app {

namespace {

using Json = nlohmann::ordered_json;
using scheduler::TimeShares;

constexpr double kMsPerHour = 3.6e6;

// One row of the result per cause of time.
struct Cause {
  const char* name;
  const char* key;
  double TimeShares::*ms;
};
constexpr std::array<Cause, 7> kCauses{{
    {"training", "training", &TimeShares::training_ms},
    {"lost work", "lost_work", &TimeShares::lost_work_ms},
    {"saving checkpoints", "checkpoint", &TimeShares::checkpoint_ms},
    {"detecting losses", "detection", &TimeShares::detection_ms},
    {"new pipelines, restarts", "reconfigure", &TimeShares::reconfigure_ms},
    {"copying, loading", "copy", &TimeShares::copy_ms},
    {"stopped", "stopped", &TimeShares::stopped_ms},
}};

Json phases_json(const scheduler::EventPhases& phases) {
  Json json{{"detect_ms", phases.detect_ms},
            {"decide_ms", phases.decide_ms},
            {"copy_ms", phases.copy_ms},
            {"rebuild_ms", phases.rebuild_ms},
            {"replay_ms", phases.replay_ms}};
  if (phases.waited_ms > 0) json["waited_ms"] = phases.waited_ms;
  if (phases.warm_up_steps == 0) return json;
  json["warm_up_ms"] = phases.warm_up_ms;
  json["warm_up_bytes"] = phases.warm_up_bytes;
  json["warm_up_steps"] = phases.warm_up_steps;
  return json;
}

Json event_json(const scheduler::EventRecord& event) {
  Json json{{"time_ms", event.time_ms},
            {"kind", event.lost ? "lost" : "joined"},
            {"outcome", scheduler::to_string(event.outcome)},
            {"nodes", event.nodes},
            {"idle", event.idle},
            {"pipelines", event.pipelines},
            {"iteration_ms", event.iteration_ms},
            {"lost_work_ms", event.lost_work_ms},
            {"lost_iterations", event.lost_iterations},
            {"recovery_ms", event.recovery_ms},
            {"copied_bytes", event.copied_bytes}};
  if (event.outcome == scheduler::EventOutcome::reconfigured)
    json.update(phases_json(event.phases));
  return json;
}

Json costs_json(const scheduler::ChangeCosts& costs) {
  return {{"detect_ms", costs.detect_ms},   {"decide_ms", costs.decide_ms},
          {"copy_ms", costs.copy_ms},       {"copies_counted", !costs.is_copy_whole},
          {"rebuild_ms", costs.rebuild_ms}, {"first_step_ms", costs.first_step_ms}};
}

std::string decimals(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

template <class Cell>
void print_row(const std::string& name, const std::vector<PlayedRecovery>& all, Cell cell) {
  std::cout << "  " << name << std::string(name.size() < 32 ? 32 - name.size() : 1, ' ');
  for (const auto& played : all) {
    const std::string text = cell(played);
    std::cout << std::string(text.size() < 14 ? 14 - text.size() : 1, ' ') << text;
  }
  std::cout << '\n';
}

}  // namespace

void print_replay_json(const ReplayFacts& facts, const std::vector<PlayedRecovery>& all) {
  Json json{{"device", facts.device},
            {"costs", facts.costs},
            {"pace", facts.pace},
            {"changes",
             {{"lost", costs_json(facts.changes.loss)},
              {"joined", costs_json(facts.changes.join)},
              {"turnover_ms", facts.changes.turnover_ms},
              {"start_ms", facts.start_ms}}},
            {"duration_ms", all.front().result.time.total_ms()}};
  if (!facts.changes_from.empty()) json["changes"]["from"] = facts.changes_from;
  if (!facts.sums.empty()) json["sums"] = facts.sums;
  for (const auto& played : all) {
    const auto& result = played.result;
    Json shares, events = Json::array();
    for (const auto& cause : kCauses)
      shares[cause.key] = result.time.*cause.ms / result.time.total_ms();
    for (const auto& event : result.events) events.push_back(event_json(event));
    json["recovery"][played.name()] = {
        {"samples", result.samples},
        {"samples_per_s", result.samples_per_s},
        {"iterations", result.iterations},
        {"repeated_iterations", result.repeated_iterations},
        {"idle_share", result.idle_share},
        {"time_share", std::move(shares)},
        {"reconfigurations", played.count(scheduler::EventOutcome::reconfigured)},
        {"restarts", played.count(scheduler::EventOutcome::restarted)},
        {"stops", played.count(scheduler::EventOutcome::stopped)},
        {"events", std::move(events)}};
  }
  std::cout << json.dump(2) << '\n';
}

void print_replay(const ReplayFacts& facts, const std::vector<PlayedRecovery>& all) {
  using scheduler::EventOutcome;
  std::cout << facts.job << ": " << decimals(all.front().result.time.total_ms() / kMsPerHour, 2)
            << " h, " << facts.nodes << " nodes at first, " << facts.peak_nodes << " at most, "
            << facts.node << " each\n"
            << facts.costs_words << (facts.sums.empty() ? "" : "\n") << facts.sums << "\n\n";
  print_row("recovery", all, [](const PlayedRecovery& p) { return std::string(p.name()); });
  print_row("samples", all, [](const PlayedRecovery& p) { return with_commas(p.result.samples); });
  print_row("samples/s", all,
            [](const PlayedRecovery& p) { return decimals(p.result.samples_per_s, 3); });
  for (const auto& cause : kCauses)
    print_row(std::string("time: ") + cause.name, all, [&](const PlayedRecovery& p) {
      return decimals(100 * (p.result.time.*cause.ms) / p.result.time.total_ms(), 2) + "%";
    });
  print_row("idle nodes", all,
            [](const PlayedRecovery& p) { return decimals(100 * p.result.idle_share, 2) + "%"; });
  const auto counted = [&](const char* name, EventOutcome outcome) {
    print_row(name, all, [&](const PlayedRecovery& p) { return with_commas(p.count(outcome)); });
  };
  counted("reconfigurations", EventOutcome::reconfigured);
  counted("restarts", EventOutcome::restarted);
  counted("stops", EventOutcome::stopped);
  print_row("iterations trained twice", all,
            [](const PlayedRecovery& p) { return with_commas(p.result.repeated_iterations); });
}

}  // namespace troupe::app
