#include "engine/run/begun_events.hpp"

#include <algorithm>
#include <string>
#include <system_error>

#include "runtime/files/read_stream.hpp"
#include "runtime/observe/line_file.hpp"

namespace troupe::engine {

namespace fs = std::filesystem;

namespace {

fs::path file_of(const fs::path& run) { return run / "begun_events.jsonl"; }

Status remove_file(const fs::path& file) {
  std::error_code code;
  fs::remove(file, code);
  if (!code) return Done{};
  return Error{Errc::io_failed, "cannot remove what is told: " + code.message(), file.string(),
               "check the permissions of the run folder and its disk"};
}

bool is_among(const std::vector<NodeId>& nodes, const std::vector<NodeId>& others) {
  return std::ranges::all_of(
      nodes, [&](NodeId node) { return std::ranges::find(others, node) != others.end(); });
}

}  // namespace

Status BegunEvents::begin(const observe::RunEvent& event) {
  std::erase_if(begun_, [&](const observe::RunEvent& before) {
    return before.kind == event.kind && is_among(before.nodes, event.nodes);
  });
  begun_.push_back(event);
  begun_.back().has_phases = false;
  begun_.back().why += "; the head ended before the job went on";
  return write();
}

Status BegunEvents::ended(const observe::RunEvent& event) {
  const auto is_of_it = [&](const observe::RunEvent& begun) {
    return begun.kind == event.kind && begun.generation <= event.generation;
  };
  // A checkpoint, say, may be told of while a change is not over.
  const bool is_change = std::ranges::any_of(begun_, is_of_it);
  // Who joins or leaves, and is lost as the job ends.
  const auto is_lost = [&](const observe::RunEvent& begun) {
    return event.kind == "lost" && begun.generation <= event.generation &&
           is_among(begun.nodes, event.nodes);
  };
  const auto count = std::erase_if(begun_, [&](const observe::RunEvent& begun) {
    return is_of_it(begun) || is_lost(begun) || (is_change && begun.generation < event.generation);
  });
  return count > 0 ? write() : Status(Done{});
}

Status BegunEvents::tell(const fs::path& run) {
  files::ReadStream file(file_of(run));
  if (!file) return Done{};
  auto events = observe::LineFile::open(run / "events.jsonl", observe::LineFile::Mode::resume);
  if (!events.ok()) return std::move(events).error();
  for (std::string line; std::getline(file, line);)
    if (auto written = events.value().write(line); !written.ok()) return written;
  return remove_file(file_of(run));
}

Status BegunEvents::write() const {
  if (begun_.empty()) return remove_file(file_of(run_));
  std::string lines;
  for (const observe::RunEvent& event : begun_) lines += observe::event_line(event) + "\n";
  return observe::write_whole_file(file_of(run_), lines);
}

}  // namespace troupe::engine
