#include <CLI/CLI.hpp>

#include "app/commands.hpp"
#include "app/terminal.hpp"

namespace troupe::app {

void add_data(Commands&) {}

}  // namespace troupe::app
