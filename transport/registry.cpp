#include "transport/registry.hpp"

#include "transport/inproc/factory.hpp"
#include "transport/ucx/factory.hpp"
#include "transport/ucx/log.hpp"

namespace troupe::transport {
namespace {

using Factory = Result<std::unique_ptr<Transport>> (*)(const TransportOptions&);

struct Row {
  std::string_view name;
  Factory create;
};

// One row per backend.
constexpr Row kBackends[] = {
    {"inproc", create_inproc},
    {"ucx", create_ucx},
};

std::string known_names() {
  std::string names;
  for (const auto& row : kBackends) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

Status check(const TransportOptions& options) {
  const auto wrong = [](std::string what) -> Status {
    return Error{Errc::invalid_argument, std::move(what), "", ""};
  };
  if (options.self < 0) return wrong("a transport needs the node's own id, 0 or more");
  if (options.receives_max.count() <= 0) return wrong("receives_max must be positive");
  if (options.unexpected_max.count() <= 0) return wrong("unexpected_max must be positive");
  return Done{};
}

}  // namespace

std::vector<std::string_view> transport_names() {
  std::vector<std::string_view> names;
  for (const auto& row : kBackends) names.push_back(row.name);
  return names;
}

Result<std::unique_ptr<Transport>> create_transport(std::string_view name,
                                                    const TransportOptions& options) {
  if (auto status = check(options); !status) return std::move(status).error();
  for (const auto& row : kBackends) {
    if (row.name == name) return row.create(options);
  }
  return Error{Errc::not_found, "there is no transport '" + std::string(name) + "'", "",
               "use one of: " + known_names()};
}

void leave_signals_alone() { keep_ucx_from_signals(); }

}  // namespace troupe::transport
