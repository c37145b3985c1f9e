#include "app/own_code.hpp"

#include <utility>

namespace troupe::app {

namespace {

bool is_own_program = false;

}  // namespace

void note_own_program() { is_own_program = true; }

Result<std::vector<engine::PluginIdentity>> own_code() {
  auto identities = engine::identify_plugins();
  if (!is_own_program) return identities;
  // Still the file that runs where another build has taken its name.
  auto program = engine::identify_program("/proc/self/exe");
  if (!program.ok()) return std::move(program).error();
  identities.push_back(std::move(program).value());
  return identities;
}

}  // namespace troupe::app
