// Commands that are planned but not there yet: they say so, and exit 2.

#include <CLI/CLI.hpp>
#include <array>

#include "app/commands.hpp"
#include "app/terminal.hpp"

namespace troupe::app {

namespace {

struct Planned {
  const char* name;
  const char* summary;
  const char* meanwhile;  ///< What helps until then.
};

constexpr std::array<Planned, 2> kPlanned{{
    {"simulate", "Predict the step time of a job",
     "`troupe solve simulate` takes workloads as JSON"},
    {"whatif", "Say what losing or adding nodes would do",
     "`troupe solve reconfigure` takes pipelines as JSON"},
}};

}  // namespace

void add_planned(Commands& commands) {
  for (const auto& planned : kPlanned) {
    auto* command =
        commands.add(planned.name, std::string(planned.summary) + " (not there yet)", [&planned] {
          return report({Errc::unavailable, "this command is planned but not there yet",
                         std::string("troupe ") + planned.name, planned.meanwhile});
        });
    command->allow_extras();  // Whatever else was typed: the answer is the same.
  }
}

}  // namespace troupe::app
