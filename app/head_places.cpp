#include "app/head_places.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "app/control_file.hpp"
#include "engine/profiling/this_machine.hpp"
#include "runtime/job/load_job.hpp"

namespace troupe::app {

namespace {

/// Where a process of this machine connects to; none: not known before somebody listens.
std::optional<HostPort> address_of(const std::string& text) {
  const auto parsed = parse_host_port(text);
  if (!parsed.ok() || parsed.value().port == 0) return std::nullopt;
  HostPort address = parsed.value();
  if (address.is_any()) address.host = "127.0.0.1";
  return address;
}

bool is_at(const HeadPlace& place, const HostPort& address) {
  return place.address.text() == address.text();
}

}  // namespace

std::vector<HeadPlace> head_places(const HeadClues& clues, const std::string& found_last) {
  std::vector<HeadPlace> places;
  const auto add = [&](const std::string& text) {
    const auto address = address_of(text);
    if (!address) return;
    if (std::ranges::any_of(places, [&](const auto& place) { return is_at(place, *address); }))
      return;
    auto key = clues.key_for(*address);
    if (key.ok()) places.push_back({*address, std::move(key).value()});
  };
  if (!clues.job_file.empty()) {
    const auto own = job::load_job(clues.job_file, {});
    if (own.ok()) add(own.value().job.cluster.listen);
  }
  add(clues.joined);
  add(clues.listen);
  if (const auto control = read_control(clues.run); control.ok()) {
    const ControlFile& file = control.value();
    const auto address = address_of(file.host == engine::host_name() ? file.local : file.far);
    if (address)
      places.insert(places.begin(), HeadPlace{*address, [key = file.key]() -> Result<door::JobKey> {
                                                return key;
                                              }});
  }
  std::stable_partition(places.begin(), places.end(),
                        [&](const HeadPlace& place) { return place.address.text() != found_last; });
  return places;
}

}  // namespace troupe::app
