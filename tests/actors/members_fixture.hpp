// A job whose nodes come and go, for tests of what its supervisor makes of that.

#pragma once

#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/profiling/nominal_profile.hpp"
#include "tests/actors/head_fixture.hpp"
#include "tests/actors/template_set.hpp"
#include "tests/support/scratch_folder.hpp"

namespace troupe::actors {

/// A head that trains, knows how pipelines of other sizes would be cut, and keeps a log.
struct Members {
  /// `opening`: what its nodes take to open their data.
  explicit Members(const std::function<void(job::Job&)>& edit = {}, std::int64_t steps = 9,
                   std::chrono::milliseconds opening = {})
      : head(steps, edit) {
    head.resources.logger =
        observe::Logger::create(nullptr, {"head", observe::LogLevel::info, scratch / "log"})
            .value();
    for (std::size_t id = 0; id < 4; ++id) head.join("host");
    head.system.pass(opening);
    for (std::size_t id = 0; id < 4; ++id) head.ready(id);
    head.bring_up(1);
    templates = templates_of(head.resources.setup);
    head.tell(templates);
  }

  /// From now on the head knows what layers cost, and how fast the network is.
  void know_network(double gigabytes_per_s) {
    engine::JobSetup& setup = head.resources.setup;
    const auto nominal = engine::planning_costs(setup, engine::nominal_profile(setup), Bytes{});
    const auto costs = std::make_shared<engine::PlanningCosts>(*nominal.value());
    costs->options.speeds.network.gigabytes_per_s = gigabytes_per_s;
    setup.costs = costs;
  }

  /// Node 1 is lost, the job goes on without it, and another process in its place opens its data.
  void begin_to_replace_one() {
    head.plan(0);
    lose(1);
    bring_up(2, {0, 2, 3});
    head.plan(0);
    REQUIRE(head.join("another") == "1");
  }

  /// The same, and it is ready.
  void replace_one() {
    begin_to_replace_one();
    head.ready(1);
  }

  std::string log() const {
    std::ifstream stream(scratch / "log");
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  void bring_up(EpochNumber epoch, const std::vector<std::size_t>& nodes) {
    for (const std::size_t id : nodes) head.tell(fetched_atom::value, NodeId{id}, epoch, 0.0);
    for (const std::size_t id : nodes) head.tell(applied_atom::value, NodeId{id}, epoch);
  }

  void run_step(std::int64_t step, EpochNumber epoch) {
    const std::size_t devices = head.scheduler.begins.back().plan.devices.size();
    for (std::size_t device = 0; device < devices; ++device)
      head.prepared(device, step, 1, 1, epoch);
    for (std::size_t device = 0; device < devices; ++device) head.finished(device, step, epoch);
  }

  void lose(std::size_t node) { head.lose(node); }

  /// The answer to a request, or why there is none and the fix.
  std::string ask(ControlRequest::Kind kind, std::int32_t node = -1) {
    return ask(ControlRequest{kind, NodeId{node}});
  }
  std::string ask_for(const std::string& layout) {
    return ask({ControlRequest::Kind::layout, {}, layout, "other.toml"});
  }
  std::string ask(const ControlRequest& request) { return head.ask(request); }

  testing::ScratchFolder scratch;
  Head head;
  TemplateSetPtr templates;
};

}  // namespace troupe::actors
